"""The output of the engine: actions that its caller carries out and answers with events."""

from __future__ import annotations

import msgspec

from ray_sentinel.model.identity import Rank
from ray_sentinel.model.incident import Incident, Writer


class Action(msgspec.Struct, frozen=True, kw_only=True, tag_field="action"):
    """Base of all actions."""


class TakeStacks(Action, frozen=True, tag="take_stacks"):
    """Sample the stacks of ``ranks`` without pausing them. Each sample is answered by a StacksTaken
    with this round's number.

    ``incident`` is empty for a routine sample of ranks that do not report progress.
    """

    incident: str
    round: int
    ranks: tuple[Rank, ...]
    looks: int = 1


class AskRecorder(Action, frozen=True, tag="ask_recorder"):
    """Fetch the flight recorders of ``ranks``; answered by RecorderExplained.

    ``failed``: ranks have already ended, so the recorded operations have failed. ``overrun``: those
    of them that were sent more than they had asked for.
    """

    incident: str
    ranks: tuple[Rank, ...]
    failed: bool = False
    overrun: tuple[int, ...] = ()


class AskRas(Action, frozen=True, tag="ask_ras"):
    """Ask the RAS service of NCCL on the nodes of ``ranks``; answered by RasExplained, unless no
    rank has NCCL."""

    incident: str
    ranks: tuple[Rank, ...]


class AskArrivals(Action, frozen=True, tag="ask_arrivals"):
    """Find out when the ranks of a running job called their collectives; answered by
    StragglersFound. ``offsets`` are seconds to add to the clocks of some ranks' hosts."""

    job: str
    attempt: int
    ranks: tuple[Rank, ...]
    offsets: dict[int, float] = {}


class ProbeNode(Action, frozen=True, tag="probe_node"):
    """See whether a silent node's raylet still answers; answered by NodeProbed."""

    node_id: str


class LookAtRayJob(Action, frozen=True, tag="look_at_ray_job"):
    """Ask Ray which calls of a job have not ended, and take the stacks of its processes, twice;
    answered by RayJobLooked."""

    ray_job: str
    """Ray's job id, in hex."""
    times: bool = False
    """Whether to ask also how long its ended calls took."""
    deployments: tuple[str, ...] = ()
    """The deployments of Ray Serve, by their job names, whose replicas to look at, whichever job
    has made them."""


class AskEndedCalls(Action, frozen=True, tag="ask_ended_calls"):
    """Ask Ray when calls of a job began and ended, and how long they took; answered by
    EndedCallsTold."""

    ray_job: str
    """Ray's job id, in hex."""
    running: bool = False
    """Whether to ask instead since when the calls that have not ended have been running."""
    lenders: tuple[str, ...] = ()
    """The other jobs whose actors the job has called."""


class Capture(Action, frozen=True, tag="capture"):
    """Run all tools and write the bundle; answered by CaptureDone.

    ``suspects`` and ``waiters`` (one of each class) may be paused; ``others`` get harmless tools.
    """

    incident: Incident
    suspects: tuple[Rank, ...] = ()
    waiters: tuple[Rank, ...] = ()
    others: tuple[Rank, ...] = ()
    gone: tuple[Rank, ...] = ()
    """Ranks that have ended; their last output may still be there."""
    members: tuple[Writer, ...] = ()
    """Processes that are named and are not ranks of the job, such as drivers and actors."""
    thorough: bool = False
    """Whether to run cuda-gdb, if it is configured, on all of them."""


class Publish(Action, frozen=True, tag="publish"):
    """The incident has changed: store it, rewrite its report, notify the receivers."""

    incident: Incident


AnyAction = (
    TakeStacks
    | AskRecorder
    | AskRas
    | AskArrivals
    | ProbeNode
    | LookAtRayJob
    | AskEndedCalls
    | Capture
    | Publish
)
