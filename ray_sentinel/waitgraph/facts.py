"""The facts that the graph of waits is made of.

A fact says one thing about one process, call, operation or resource, when it was seen and by which
witness. A fact accuses nobody: that is left to ``solver``.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.incident import FaultKind
from ray_sentinel.model.ras import RasKind

# How something waits (``WaitsFor.how``).
IN_OPERATION = "in"  # a process in a collective or a transfer
NOT_REACHED = "has not come to it"  # an operation for a process that is missing
RUNS_IN = "runs in"  # a call for the process that executes it
QUEUED = "is queued at"  # a call that its actor has not begun
BUILT = "is to be built"  # a call whose runtime environment does not exist yet
MAY_COME_FROM = "may come from"  # an object about whose creation nothing is known
UNCALLED = "has nothing to do until it is called by"  # an actor at rest
ANSWER = "an answer of"  # a process that has sent a request over a connection of its own
LOCKED = "a lock on a file"  # a process for a lock
HELD_BY = "is held by"  # a lock for the process that is to release it
# How a step of a chain leads on that is no wait (``ChainLink.how``).
CALLED = "called"  # from a process that has made a call but does not wait for it alone
HANDED_TO = "has handed its requests to"  # from an actor to the ranks of the engine below it
FactKind = FaultKind | RasKind | Literal["", "rank-unlisted", "remote-error"]
"""What a fact proves of a process, for programs; empty if nothing in particular.
``rank-unlisted``: an answer about all ranks leaves it out. ``remote-error``: others were told that
it failed, and nothing names it."""
NodeKind = Literal["process", "call", "operation", "resource", "several"]


class WaitNode(msgspec.Struct, frozen=True, order=True):
    """What can wait or be waited for.

    ``key`` is unique within its kind: of a process "HOST:PID:START", of a call Ray's task id, of an
    operation its group and number, of a resource its own name. ``several`` represents many nodes
    that others await together, so that thousands of nodes that await thousands do not make millions
    of edges; it is never a member of a root or a link of a chain.
    """

    kind: NodeKind
    key: str


def process_node(process: ProcessId) -> WaitNode:
    """The node of a process.

    >>> process_node(ProcessId("node1", 42, 7)).key
    'node1:42:7'
    """
    return WaitNode("process", f"{process.host}:{process.pid}:{process.start}")


def node_of_rank(rank: int) -> WaitNode:
    """The node of the rank with this number, where its process is not known.

    >>> node_of_rank(3).key
    'rank 3'
    """
    return WaitNode("process", f"rank {rank}")


def node_at(host: str, pid: int, gpu: int | None = None) -> WaitNode:
    """The node of a process whose rank is not known; with a GPU, of its rank there.

    >>> node_at("node1", 42).key
    'node1:42'
    """
    return WaitNode("process", f"{host}:{pid}" + (f":gpu {gpu}" if gpu is not None else ""))


def call_node(task_id: str) -> WaitNode:
    """The node of a Ray task or actor call; ``task_id`` in hex."""
    return WaitNode("call", task_id)


class WaitsFor(msgspec.Struct, frozen=True, kw_only=True):
    """``who`` waits for ``awaited``."""

    who: WaitNode
    awaited: WaitNode
    how: str
    """How it waits, such as "ray.get", "all_reduce" or "queued"."""
    since: float | None = None
    """Unix time; None if unknown."""
    any_of: bool = False
    """Whether one of the things that it waits for is enough, as in ``ray.wait``; otherwise it needs
    them all."""
    witness: str = ""


def not_reached(process: WaitNode, operation: WaitNode, witness: str = "") -> WaitsFor:
    """``process`` has not reached ``operation``, which needs it."""
    return WaitsFor(who=operation, awaited=process, how=NOT_REACHED, witness=witness)


class ProcessFact(msgspec.Struct, frozen=True, kw_only=True):
    """Base of what is said of one process that waits for nobody."""

    process: WaitNode
    kind: FactKind = ""
    looks: int | None = None
    """How often it was seen, looks apart; None if once is proof."""
    witness: str = ""


class Broken(ProcessFact, frozen=True, kw_only=True):
    """``process`` cannot go on; ``why`` is the proof: stopped, blocked in the kernel, ended."""

    why: str


class Elsewhere(ProcessFact, frozen=True, kw_only=True):
    """``process`` is in code that waits for nobody in the graph."""

    place: str
    """The place as "function (file:line)"."""
    doing: str
    """What it does there, in short, such as "sleeping" or "reading from a file or pipe"."""

    @property
    def why(self) -> str:
        """What it does and where: "sleeping in score (reward.py:88)"."""
        where = f"in {self.place}" if self.place and self.place not in self.doing else ""
        return " ".join(filter(None, (self.doing, where)))


class Moves(msgspec.Struct, frozen=True, kw_only=True):
    """``process`` was seen making progress: what is slow is not stuck."""

    process: WaitNode
    witness: str = ""


class Mute(ProcessFact, frozen=True, kw_only=True):
    """Nothing can be learned about ``process``; ``why`` names the remedy, if there is one."""

    why: str


WaitFact = WaitsFor | Broken | Elsewhere | Moves | Mute
