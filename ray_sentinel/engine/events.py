"""The input of the engine. Every event carries the coordinator's time, so a log of events can be
replayed.

Times inside a snapshot are on its agent's clock, and ages (``snapshot.time - moment``) are computed
on it. Exits and events of nodes are converted with ``NodeState.offset``, so an order across nodes
is as good as that. Both are steady clocks (``ray_sentinel.clock``): no wall clock that is set moves
them.
"""

from __future__ import annotations

import msgspec

from ray_sentinel.model.identity import Node
from ray_sentinel.model.incident import Incident, RankLog
from ray_sentinel.model.progress import Snapshot
from ray_sentinel.model.ras import RasFacts
from ray_sentinel.model.ray_calls import EndedCalls, RayCalls, RayLook
from ray_sentinel.model.ray_deaths import RayDeath
from ray_sentinel.model.recorder import RecorderFacts
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.model.straggler import StragglerFacts

LOG_VERSION = 1


class EngineEvent(msgspec.Struct, frozen=True, kw_only=True, tag_field="event"):
    """Base: ``time`` is the coordinator's, in Unix seconds of its steady clock."""

    time: float


class SnapshotReceived(EngineEvent, frozen=True, tag="snapshot"):
    """An agent has sent a report."""

    snapshot: Snapshot


class Tick(EngineEvent, frozen=True, tag="tick"):
    """Time has passed: rules are evaluated."""


class Resumed(EngineEvent, frozen=True, tag="resumed"):
    """The coordinator is back after a restart, or took over a log; nobody was listening before.

    Until the next tick agents find it again, and unanswered requests are repeated right before that
    tick.
    """


class NodeJoined(EngineEvent, frozen=True, tag="node_joined"):
    """Ray shows a new node."""

    node: Node


class NodeDraining(EngineEvent, frozen=True, tag="node_draining"):
    """Ray drains a node: it will go, and everything that runs there ends. This cannot be undone."""

    node_id: str
    deadline: float = 0.0
    """Unix seconds by which it goes, on Ray's clock; 0 where none was given."""


class NodeLeft(EngineEvent, frozen=True, tag="node_left"):
    """Ray lists a node as dead. ``expected`` if it was drained or we released it."""

    node_id: str
    expected: bool = False
    reason: str = ""


class NodeProbed(EngineEvent, frozen=True, tag="node_probed"):
    """Whether the raylet of a silent node still answers; None if that could not be determined."""

    node_id: str
    alive: bool | None
    detail: str = ""


class StacksTaken(EngineEvent, frozen=True, tag="stacks"):
    """One round of non-intrusive stacks, classified. Late answers arrive as events of their own."""

    incident: str
    round: int
    facts: tuple[StackFact, ...] = ()
    problems: tuple[str, ...] = ()
    asked_at: float | None = None
    """When stacks were requested that arrived after their round had been judged without them; None
    for the round itself."""


class KeptEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """What a verdict was made of, packed, so that a later version can judge it anew; small evidence
    is in the event, larger in a file."""

    data: bytes = b""
    """The packed evidence; in a log, empty where it is in a file or was left out."""
    file: str = ""
    """Name of its file, in the folder of the event log; empty where it is in ``data``."""
    left_out: str = ""
    """Why it is not kept; empty where it is."""


class RecorderExplained(EngineEvent, frozen=True, tag="recorder"):
    """The flight recorders of a job's ranks; ``facts`` is None if there were none."""

    incident: str
    facts: RecorderFacts | None
    problems: tuple[str, ...] = ()
    judged_from: KeptEvidence | None = None
    """The dumps that ``facts`` were made of; None if there were none, and in logs of older
    versions. The engine does not read it, but a replay does."""


class RasExplained(EngineEvent, frozen=True, tag="ras"):
    """NCCL RAS's answer about a job; ``facts`` is None if no service could be asked."""

    incident: str
    facts: RasFacts | None
    problems: tuple[str, ...] = ()
    judged_from: KeptEvidence | None = None
    """The answers that ``facts`` were made of, as in ``RecorderExplained``."""


class StragglersFound(EngineEvent, frozen=True, tag="stragglers"):
    """The stragglers of a running job; ``facts`` is None if no rank has a recorder."""

    job: str
    attempt: int
    facts: StragglerFacts | None


class StragglersKept(EngineEvent, frozen=True, tag="stragglers_kept"):
    """What the last look at stragglers before an incident was judged by. The engine does not read
    it, but a replay does. Looks that no incident follows are not kept: one takes a thousand times
    as many bytes as its verdict."""

    incident: str
    at: float
    """The time of that look's ``StragglersFound``."""
    judged_from: KeptEvidence


EvidenceEvent = RecorderExplained | RasExplained | StragglersKept
"""Events that come with what a verdict was made of."""


class RayTableTold(EngineEvent, frozen=True, tag="ray_table"):
    """Ray's drivers, living actors or unplaced groups have changed. ``table.calls`` is empty,
    because calls are only requested where something is silent."""

    table: RayCalls


class RayJobLooked(EngineEvent, frozen=True, tag="ray_job"):
    """One look at a Ray job."""

    ray_job: str
    """Ray's job id, in hex."""
    look: RayLook


class EndedCallsTold(EngineEvent, frozen=True, tag="ended_calls"):
    """How long the ended calls of a Ray job took, and when calls began and ended; empty if Ray
    does not report it."""

    ray_job: str
    """Ray's job id, in hex."""
    ended: dict[str, EndedCalls] = {}
    """Ended calls by name."""
    running: dict[str, float] | None = None
    """Since when the oldest running call of each name has been running, in Unix time; None if that
    was not requested."""
    changes: tuple[int, ...] = ()
    """The last whole Unix seconds in which any of them began or ended, in ascending order."""


class RayDeathsTold(EngineEvent, frozen=True, tag="ray_deaths"):
    """Processes of Ray jobs have ended; each is reported once."""

    deaths: tuple[RayDeath, ...]


class CaptureDone(EngineEvent, frozen=True, tag="captured"):
    """The bundle is on disk, or could not be written yet: ``problems`` says why, and a second event
    follows once it has been written."""

    incident: str
    bundle: str
    problems: tuple[str, ...] = ()
    facts: tuple[StackFact, ...] = ()
    """Facts from the deeper tools, if they show more than the rounds did."""
    logs: tuple[RankLog, ...] = ()
    """The last output of the ranks concerned."""


class NoticeSent(EngineEvent, frozen=True, tag="notice_sent"):
    """A notification about an incident in this ``state`` was delivered."""

    incident: str
    state: str


class IncidentTold(EngineEvent, frozen=True, tag="told"):
    """An incident was published as given here. It follows the event that caused that: a replay by
    the version that wrote the log learns nothing from it. Another version, whose rules may judge
    the same events differently, keeps the incident as it was published."""

    incident: Incident


class PhasesRecalled(EngineEvent, frozen=True, tag="phases_recalled"):
    """The phase durations of earlier runs: job → phase → seconds."""

    phases: dict[str, dict[str, tuple[float, ...]]]


class DumpAsked(EngineEvent, frozen=True, tag="dump_asked"):
    """A user asked for a capture. An empty ``job`` means all jobs."""

    job: str = ""
    why: str = "asked by hand"
    thorough: bool = False
    """The same as in ``actions.Capture``."""


class MemoryShort(EngineEvent, frozen=True, tag="memory_short"):
    """The coordinator uses more memory than its limit."""


AnyEvent = (
    SnapshotReceived
    | Tick
    | Resumed
    | NodeJoined
    | NodeDraining
    | NodeLeft
    | NodeProbed
    | StacksTaken
    | RecorderExplained
    | RasExplained
    | StragglersFound
    | StragglersKept
    | RayTableTold
    | RayJobLooked
    | EndedCallsTold
    | RayDeathsTold
    | CaptureDone
    | DumpAsked
    | NoticeSent
    | IncidentTold
    | PhasesRecalled
    | MemoryShort
)
