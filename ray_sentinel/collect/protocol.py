"""What the runner and a collector's process say to each other, over the process's stdin and stdout.

A frame is four bytes of length, most significant first, and as many bytes of MessagePack holding
one of the messages below. The process ends when its stdin does.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import msgspec

from ray_sentinel.model.identity import Rank
from ray_sentinel.model.metrics import Event, Family
from ray_sentinel.model.ray_cluster import RayCluster

MAX_FRAME = 64 << 20
"""Most bytes of one message; a longer one is taken for garbage, and its sender is ended."""

Outcome = Literal["ok", "nodata", "absent", "skip", "error", "timeout"]
SourceKind = Literal["entry-point", "python", "script"]
COMMON_KEYS = ("enabled", "interval", "deadline")
"""Keys of ``[collectors.NAME]`` that are for the runner; all others are the collector's own
settings."""


class FrameError(Exception):
    """The received bytes are not a frame of this protocol."""


class CollectorSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where the code of a collector is."""

    name: str
    kind: SourceKind
    target: str
    """``module:Class`` of an entry point; otherwise the path of the file to load or to run."""
    origin: str = ""
    """The name shown to people: the distribution, or the user's own file."""
    class_name: str = ""
    """The collector's class in a Python file."""
    digest: str = ""
    """Digest of the file's bytes; empty for an entry point."""


class Roots(msgspec.Struct, frozen=True, kw_only=True):
    """The folders that hold a machine's files."""

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    dev: Path = Path("/dev")

    @property
    def live(self) -> bool:
        """Whether they are this machine's; otherwise a captured tree, and nothing outside it may be
        read."""
        return self == Roots()


class OutputLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much one run of a collector may yield; the rest is dropped, and its status says so."""

    series: int = 20_000
    samples: int = 200_000
    """Most samples in all, those with a timestamp included: a history has many samples of one
    series."""
    labels: int = 32
    """Most labels of one series."""
    label_length: int = 512
    """Most characters of one label value."""
    events: int = 2_000
    problems: int = 20


class Setup(msgspec.Struct, frozen=True, kw_only=True, tag="setup"):
    """Runner to process, first message: which collector to run."""

    source: CollectorSource
    host: str
    roots: Roots = Roots()
    options: dict[str, Any] = {}
    """The collector's table in the configuration, without the runner's own keys."""
    interval: float | None = None
    deadline: float | None = None
    """Seconds that one run may take; None for the collector's own deadline."""
    state_dir: Path | None = None
    log_dir: Path | None = None
    live: bool = True
    limits: OutputLimits = OutputLimits()


class Ask(msgspec.Struct, frozen=True, kw_only=True, tag="ask"):
    """Runner to process: collect once."""

    sequence: int
    deadline: float
    """Seconds from now until the run must have ended."""
    ranks: tuple[Rank, ...] = ()
    handed_on: float | None = None
    """As ``Context.handed_on``; the clock is the machine's, and so the same in every process."""
    cluster: RayCluster | None = None
    """As ``Context.cluster``; sent only to collectors that want it."""


class StopCollector(msgspec.Struct, frozen=True, tag="stop"):
    """Runner to process: close the collector and end."""


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    """Process to runner: the collector is made."""

    interval: float
    deadline: float
    metrics: tuple[str, ...] = ()
    """Names of the families that the collector declares."""
    wants_cluster: bool = False


class ProgramStarted(msgspec.Struct, frozen=True, tag="started"):
    """Process to runner: a program was started in a group of its own, led by ``pid``."""

    pid: int


class Happened(msgspec.Struct, frozen=True, tag="happened"):
    """Process to runner, as soon as they are yielded: events, so that they are not lost with a
    failed run."""

    events: tuple[Event, ...]


class RunAnswer(msgspec.Struct, frozen=True, kw_only=True, tag="answer"):
    """Process to runner: the result of a run. Sequence 0 answers the setup, if that failed."""

    sequence: int
    outcome: Outcome
    message: str = ""
    families: tuple[Family, ...] = ()
    problems: tuple[str, ...] = ()
    misconfigured: bool = False
    """Whether the collector could not be made because its settings are wrong; ``message`` says
    which."""
    pause: float = 0.0
    """Seconds for which the collector wants no further run."""


ToChild = Setup | Ask | StopCollector
FromChild = Hello | ProgramStarted | Happened | RunAnswer
Message = TypeVar("Message")

_encoder = msgspec.msgpack.Encoder(enc_hook=str)


def encode(message: ToChild | FromChild) -> bytes:
    """The message as a frame."""
    body = _encoder.encode(message)
    return len(body).to_bytes(4, "big") + body


class Frames(Generic[Message]):
    """Assembles frames from pieces of any size."""

    def __init__(self, kind: type[Message] | Any) -> None:
        self._decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(
            kind, dec_hook=lambda wanted, value: wanted(value)
        )
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that ``data`` completes. Raises FrameError if it is not of this protocol."""
        self._buffer += data
        while len(self._buffer) >= 4:
            length = int.from_bytes(self._buffer[:4], "big")
            if length > MAX_FRAME:
                raise FrameError(f"a message of {length} bytes is longer than {MAX_FRAME}")
            if len(self._buffer) < 4 + length:
                return
            body = bytes(self._buffer[4 : 4 + length])
            del self._buffer[: 4 + length]
            try:
                yield self._decoder.decode(body)
            except (ValueError, TypeError, RecursionError) as error:
                raise FrameError(f"a message cannot be read: {error}") from None
