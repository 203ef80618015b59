"""What a watch knows of its jobs. A segment of its log begins with it."""

from __future__ import annotations

import msgspec

from ray_sentinel.model.identity import Node, ProcessId
from ray_sentinel.model.progress import Exit, RankSnapshot
from ray_sentinel.model.stacks import StackFact


class RankMemory(msgspec.Struct, frozen=True, kw_only=True):
    """One process of a rank. Times are the coordinator's."""

    snapshot: RankSnapshot
    """The last."""
    node: str
    node_time: float
    """When it was made, on the node's clock."""
    seen_at: float
    first_seen: float
    moved_at: float
    advanced_at: float
    data_at: float
    states: dict[str, float] = {}
    """Since when it is stopped, starved, ..."""
    exit: Exit | None = None
    exited_at: float | None = None
    gone_at: float | None = None
    lost: bool = False
    look: StackFact | None = None
    """Its last stacks, while the job has not been seen to train."""


class JobMemory(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a job."""

    job: str
    attempt: int
    first_seen: float
    last_moved: float
    busy_seconds: float = 0.0
    has_trained: bool = False
    complete_since: float | None = None
    disturbed_until: float = 0.0
    steps_recorded: int = 0
    pace: tuple[float, ...] = ()
    """Durations of steps in seconds, the newest last."""
    gaps: tuple[float, ...] = ()
    """Durations of quiet spells."""
    ended_at: float | None = None
    exits: tuple[tuple[float, Exit], ...] = ()
    """Since the last incident."""
    exits_told: tuple[tuple[ProcessId, float], ...] = ()
    """All, and when they were."""
    ranks: tuple[RankMemory, ...] = ()


class NodeMemory(msgspec.Struct, frozen=True, kw_only=True):
    """One node."""

    node: Node
    joined_at: float
    seen_at: float | None = None
    leaving_since: float | None = None
    left_at: float | None = None
    expected_leave: bool = False
    leave_reason: str = ""
    offset: float = 0.0


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """All nodes and jobs."""

    after: int = 0
    """The highest number of an incident that had been given away by then."""
    phases: dict[str, dict[str, tuple[float, ...]]] = {}
    """Job → phase → seconds."""
    nodes: tuple[NodeMemory, ...] = ()
    jobs: tuple[JobMemory, ...] = ()
