"""One answer of the RAS service, in whatever format."""

from __future__ import annotations

from typing import Literal

import msgspec

State = Literal["", "INIT", "RUNNING", "FINALIZE", "ABORT", "NOCOMM", "UNRESPONSIVE", "DEAD"]
"""The state of a rank in a communicator. ``NOCOMM``: its process answers, and says that it is not a
member. ``""``: nothing is known."""

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
"""Host, pid and NVML index (-1 where unknown): what identifies a rank across communicators."""


class RasProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process that RAS names as a whole."""

    host: str
    pid: int
    gpus: tuple[int, ...] = ()
    """The NVML indices of the process's GPUs."""


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """A rank of a communicator; ``rank`` is the communicator's own number."""

    rank: int
    host: str = ""
    pid: int | None = None
    gpu: int | None = None
    state: State = ""
    error: str = ""
    """The error of the initialization or the asynchronous one, in NCCL's words; empty without
    any."""
    counts: dict[str, int] = {}
    """Kind of collective → how many were launched since the communicator was made. Sends and
    receives are not counted. Empty where the answer does not say."""

    @property
    def place(self) -> Place | None:
        """Its process and GPU, if known."""
        if not self.host or self.pid is None:
            return None
        return self.host, self.pid, -1 if self.gpu is None else self.gpu


class Communicator(msgspec.Struct, frozen=True, kw_only=True):
    """A communicator. ``hash`` alone is not unique; text output has no secondary hash."""

    hash: str
    """The communicator's 16 hexadecimal digits, without a prefix."""
    secondary: str = ""
    size: int
    members: tuple[Member, ...] = ()
    """The members that the answer names, including missing ones."""
    unknown: int = 0
    """Number of members of which the answer says that they exist, but not who they are."""
    unlisted: tuple[int, ...] = ()
    """Ranks of the communicator, by its own numbers, that a whole JSON answer lists neither as
    present nor as missing."""

    @property
    def key(self) -> str:
        """Identifies it: its hash, with the secondary one if known."""
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
    """The name of the file that the answer is from."""
    text: bool = False
    """The answer was text for people, which names outliers only."""
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
    """Number of processes in the whole job, as far as the answering one knows."""
    gpus: int | None = None
    seconds: float | None = None
    """Seconds that gathering the answer took."""
    timeouts: int = 0
    cut: bool = False
    """The answer ended before it was whole; what it had is read."""
    problems: tuple[str, ...] = ()


def bare_hash(text: str) -> str:
    """A communicator's hash as 16 hexadecimal digits; text and JSON write it differently.

    >>> bare_hash("0xae94423cfbb2ef4")
    '0ae94423cfbb2ef4'
    """
    digits = text.strip().lower().removeprefix("0x")
    return digits.rjust(16, "0") if digits else ""
