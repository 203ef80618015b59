"""One answer of the RAS service, in whatever format."""

from __future__ import annotations

from typing import Literal

import msgspec

State = Literal["", "INIT", "RUNNING", "FINALIZE", "ABORT", "NOCOMM", "UNRESPONSIVE", "DEAD"]
"""Of a rank in a communicator. ``NOCOMM``: its process answers and says that it is no member.
``""``: nothing is known."""

LIVE: frozenset[State] = frozenset({"INIT", "RUNNING", "FINALIZE", "ABORT"})

# ncclResult_t of nccl.h
SUCCESS, REMOTE_ERROR, IN_PROGRESS = 0, 6, 7
ERRORS = {
    1: "Unhandled CUDA error",
    2: "System error",
    3: "Internal error",
    4: "Invalid argument",
    5: "Invalid usage",
    6: "Remote process error",
}

Place = tuple[str, int, int]
"""(host, pid, NVML index; -1 unknown): what is the same rank in every communicator."""


class RasProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process that RAS names as a whole."""

    host: str
    pid: int
    gpus: tuple[int, ...] = ()
    """NVML indices."""


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A rank of a communicator; ``rank`` is the communicator's own number."""

    rank: int
    host: str = ""
    pid: int | None = None
    gpu: int | None = None
    state: State = ""
    error: str = ""
    """Initialization or asynchronous error, in NCCL's words."""
    counts: dict[str, int] = {}
    """Collectives launched by kind, since the communicator was made. Sends and receives are not
    counted. Empty where the answer does not say."""

    @property
    def place(self) -> Place | None:
        """Its process and GPU, if known."""
        if not self.host or self.pid is None:
            return None
        return self.host, self.pid, -1 if self.gpu is None else self.gpu


class Communicator(msgspec.Struct, frozen=True, kw_only=True):
    """A communicator. ``hash`` alone is not unique; text output has no secondary hash."""

    hash: str
    """Hexadecimal digits without a prefix, 16 of them."""
    secondary: str = ""
    size: int
    members: tuple[Member, ...] = ()
    """Those that the answer names, missing ones too."""
    unknown: int = 0
    """Members of which the answer says that they exist and not who they are."""
    cut: bool = False
    """The answer ended within it."""
    unlisted: tuple[int, ...] = ()
    """Its ranks, by its own numbers, that a whole JSON answer lists neither as present nor as
    missing."""

    @property
    def key(self) -> str:
        return f"{self.hash}/{self.secondary}" if self.secondary else self.hash

    @property
    def name(self) -> str:
        """Its name for people."""
        return f"communicator {self.hash or '?'} of {self.size} ranks"


class TableRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the text output's table: communicators that look alike."""

    communicators: int
    size: int
    ranks: int
    status: str
    errors: frozenset[str]


class Poll(msgspec.Struct, frozen=True, kw_only=True):
    """One answer."""

    name: str = ""
    """The file that it is from."""
    text: bool = False
    """Whether it was for people; such an answer names outliers only."""
    library: str = ""
    version: str = ""
    timestamp: str = ""
    """Local time of the answering process, "YYYY-MM-DD hh:mm:ss"; only JSON has it."""
    communicators: tuple[Communicator, ...] = ()
    rows: tuple[TableRow, ...] = ()
    dead: tuple[RasProcess, ...] = ()
    missing: tuple[RasProcess, ...] = ()
    """Processes that did not answer, and are not yet taken for dead."""
    dead_count: int = 0
    missing_count: int = 0
    processes: int | None = None
    """In the whole job, as far as the answering process knows."""
    gpus: int | None = None
    seconds: float | None = None
    """How long the gathering took."""
    timeouts: int = 0
    problems: tuple[str, ...] = ()


def bare_hash(text: str) -> str:
    """A communicator's hash as 16 hexadecimal digits; text and JSON write it differently.

    >>> bare_hash("0xae94423cfbb2ef4")
    '0ae94423cfbb2ef4'
    """
    digits = text.strip().lower().removeprefix("0x")
    return digits.rjust(16, "0") if digits else ""
