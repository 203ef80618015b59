"""The messages between agents, coordinator and deployers, as MessagePack: versions may differ.

Ray's pickles carry records by class, and break between versions; these do not.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from ray_sentinel.masking import mask_record
from ray_sentinel.model.connections import AwaitedAnswer, Connection
from ray_sentinel.model.identity import Rank
from ray_sentinel.model.incident import RankOutput, Writer
from ray_sentinel.model.metrics import Family
from ray_sentinel.model.progress import Snapshot
from ray_sentinel.model.samples import StreamName, TableHeld
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.progress.discovery.ray_workers import RayWorker

T = TypeVar("T")


class HistoryRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent should send for the embedded history in addition to what the rules read."""

    series: int = 0
    """Most series to send, including those of the rules; 0 for only those of the rules."""
    seconds: float = 5.0
    """Seconds between two values of a series."""


class AgentReport(msgspec.Struct, frozen=True, kw_only=True):
    """Agent to coordinator, about once a second, or as often as the coordinator asks for."""

    snapshot: Snapshot
    incarnation: str
    """An id that differs with every start of the agent."""
    began: float = 0.0
    """When the agent was started, in seconds since the machine was (``CLOCK_BOOTTIME``); 0 from an
    agent that does not say."""
    pid: int = 0
    raylet: int = 0
    """The pid of the node's raylet."""
    notes: tuple[str, ...] = ()
    """What people should know of this node, such as a port that was taken."""
    workers_version: int = 0
    """The version of ``workers`` that it knows."""
    targets_version: int = 0
    """The version of ``targets`` that it knows; 0 for none."""
    memory_bytes: int | None = None
    """Resident memory of the agent."""


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """The coordinator's answer. ``exits`` are the orders that are safely in the event log."""

    exits: tuple[int, ...] = ()
    families: tuple[Family, ...] = ()
    """The coordinator's own metrics, for the head's agent to serve."""
    targets: tuple[str, ...] | None = None
    """``host:port`` of all agents, for service discovery; None where the agent knows them."""
    targets_version: int = 0
    raylets: tuple[int, ...] = ()
    """Pids of the raylets whose agents are on the same machine, in the same PID namespace,
    including the receiver's own."""
    workers: tuple[RayWorker, ...] | None = None
    """The actors' processes on the node; None where the agent knows them already."""
    workers_version: int = 0
    drivers: tuple[tuple[str, int], ...] = ()
    """Addresses and pids of the drivers of Ray's jobs."""
    history: HistoryRequest = HistoryRequest()
    """What the embedded history needs."""
    relay: str = ""
    """The node whose relay the agent is to report to; empty for the coordinator."""
    interval: float = 0.0
    """Seconds between two reports while nothing happens on the node, if longer than configured."""
    tables: dict[StreamName, TableHeld] = {}
    """The keys of the node's series that the coordinator has; it needs the others."""
    held: int = 0
    """The sequence number of the agent's report that the next one may build on (``ReportDelta``). 0
    for none; a report that built on another one was not accepted."""


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """A coordinator's description of itself."""

    protocol: int
    version: str
    pid: int
    config: bytes = b""
    restarts: int = 0


class AgentInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the coordinator knows about one agent's process."""

    node_id: str
    host: str
    address: str
    pid: int
    incarnation: str
    restarts: int
    age_seconds: float
    """Seconds since its last report."""


class Sampled(msgspec.Struct, frozen=True, kw_only=True):
    """The stacks of some processes, already parsed."""

    facts: tuple[StackFact, ...] = ()
    problems: tuple[str, ...] = ()


class Connections(msgspec.Struct, frozen=True, kw_only=True):
    """The connections of some processes of a node, and why they, or some, are unknown."""

    found: tuple[Connection, ...] = ()
    locks: tuple[AwaitedAnswer, ...] = ()
    """The locks on files that they await of each other."""
    problem: str = ""


class CaptureRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to run the tools against on one node."""

    suspects: tuple[Rank, ...] = ()
    waiters: tuple[Rank, ...] = ()
    """One rank of each class of waiters; like the suspects, they may be paused."""
    others: tuple[Rank, ...] = ()
    """Ranks for which only harmless tools may be used."""
    thorough: bool = False
    """Whether to run cuda-gdb, where it is configured, on all of them."""
    apart: bool = False
    """Whether each process's file is read by itself, so that equal stacks are reported for each
    process, not only once."""


class DumpRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Which flight recorders of one node are wanted."""

    ranks: tuple[Rank, ...]
    raw: bool = False
    """Whether the recorders are wanted as the ranks wrote them; otherwise in the form that
    ``evidence.flight_recorder.reduced`` describes."""
    judged: bool = False
    """Whether that form may lack what is not read to judge a hang or a failure."""
    known: tuple[tuple[bytes, ...], ...] = ()
    """For each of ``ranks``, in their order, the digests that the coordinator has of its recorders,
    in the order of ``Dump.place``; an empty one for none."""
    most_bytes: int = 0
    """Most bytes of all dumps in the answer."""
    after: float = 0.0
    """The node's turn: the seconds that a finished answer of ``most_bytes`` waits before it is
    sent; smaller ones wait in proportion. So nodes whose ranks are all asked at once do not all
    answer at once."""

    def turn(self, size: int) -> float:
        """Seconds that an answer with this many bytes of dumps waits once it is gathered.

        >>> DumpRequest(ranks=(), most_bytes=1000, after=4.0).turn(250)
        1.0
        """
        return self.after * size / self.most_bytes if size else 0.0


NCCL_PLACE, OTHERS_PLACE = 0, 1
"""The place of NCCL's recorder, which a rank's watchdog writes too, and that of the recorder of all
other libraries."""


class Dump(msgspec.Struct, frozen=True, kw_only=True):
    """One flight recorder."""

    rank: int
    data: bytes
    """The dump; empty where the coordinator has it already."""
    place: int = 0
    """Whose recorder it is: ``NCCL_PLACE`` or ``OTHERS_PLACE``, whichever others the rank has."""
    pickled: bool = False
    """Whether a raw dump is a pickle, as PyTorch's watchdog writes it; otherwise JSON."""
    digest: bytes = b""
    """The digest of the reduced form that was requested."""


class Dumps(msgspec.Struct, frozen=True, kw_only=True):
    """The flight recorders of one node's ranks."""

    dumps: tuple[Dump, ...] = ()
    problems: tuple[str, ...] = ()
    """What went wrong, with a line for each rank that has no dump."""


class OutputRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Whose last lines of output are wanted from one node."""

    writers: tuple[Writer, ...]
    most_bytes: int = 0
    """Most bytes of all outputs in the answer."""


class Outputs(msgspec.Struct, frozen=True, kw_only=True):
    """The last lines of some processes of a node, masked; one for each that was asked about."""

    found: tuple[RankOutput, ...] = ()


class NodeCapture(msgspec.Struct, frozen=True, kw_only=True):
    """The output of the tools on one node: files by name, and the facts in them."""

    files: dict[str, bytes] = {}
    facts: tuple[StackFact, ...] = ()
    problems: tuple[str, ...] = ()


def pack(value: Any) -> bytes:
    """A record as bytes."""
    return msgspec.msgpack.encode(value)


def pack_masked(value: Any) -> bytes:
    """``pack`` with the secrets in all texts masked: for what leaves the node it was read on.

    Flight recorders (``Dump.data``) are passed on unchanged: they hold the names of functions,
    files and groups, and sizes. The files of tools and ranks were masked as they were read.
    """
    return pack(mask_record(value))


def unpack(data: bytes, kind: type[T]) -> T:
    """Decode what ``pack`` encoded. Raises msgspec.DecodeError for anything else."""
    return msgspec.msgpack.decode(data, type=kind)
