"""Whether a job finished, is still making progress, or went silent."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ray_sentinel.evidence.logs.clocks import FARTHEST_ZONE, round_zone
from ray_sentinel.evidence.logs.errors.engines import last_served
from ray_sentinel.evidence.logs.errors.signatures import Signature
from ray_sentinel.evidence.logs.records import FileFacts, Hit
from ray_sentinel.evidence.logs.training.phases import PhaseSeen
from ray_sentinel.evidence.logs.training.steps import ReportedStep
from ray_sentinel.evidence.logs.training.timeline import TrainingTimeline

_STARTING = frozenset(
    {"import", "dataset", "placement", "process-group", "model-load", "queue-wiring"}
)
_QUIET_LEAST = 300.0
_QUIET_STEPS = 10.0
_QUIET_PHASE = 900.0
_SILENT = {"kv-cache": 600.0, "graph-capture": 600.0}
"""Phase → seconds for which it may be silent: an engine that has loaded its model prints nothing
until its graphs are captured."""
_OF_ENGINES = frozenset({"model-load", "kv-cache", "graph-capture", "teardown"})
"""The last phases of a serving engine: after them, one without a request does all that is asked of
it."""
_FRESH_LEAST = 600.0
_FRESH_STEPS = 5.0
_OF_THE_CLUSTER = frozenset({"raylet", "gcs", "monitor", "ray", "events", "kernel", "agent"})
"""Kinds of files that go on without the job: they show only that the cluster lives."""
_PROMPT = 90.0

_TEARDOWN = frozenset(
    {
        "actor-fail",
        "cancelled",
        "heartbeat-timeout",
        "nccl-timeout",
        "signal-kill",
        "transport-lost",
        "unknown-death",
    }
)
"""Classes of what may go wrong when all is done; any other failure may have cost the last
checkpoint."""
_LAST_STEP = Signature(id="last-step", kind="completed", role="note")


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """Whether training finished, and whether it still makes progress."""

    completed: bool = False
    marker: Hit | None = None
    """The line that says that training finished."""
    moving: bool = False

    def split(self, hits: Sequence[Hit]) -> tuple[list[Hit], list[Hit]]:
        """(before, after) the end of training; all hits are before it if there is none."""
        if self.marker is None:
            return list(hits), []
        before = [hit for hit in hits if not _after(hit, self.marker)]
        return before, [hit for hit in hits if _after(hit, self.marker)]


def find_ending(
    files: Sequence[FileFacts], training: TrainingTimeline, now: float | None, *, live: bool
) -> Ending:
    """Find a line that says that training ended normally, and that no later step contradicts."""
    markers = [h for f in files for h in f.hits if h.signature.kind == "completed"]
    for marker in sorted(markers, key=lambda h: (h.time or 0.0, h.offset), reverse=True):
        if not _training_follows(marker, files, training):
            return Ending(completed=True, marker=marker)
    last = _last_of_all(files, training)
    if last is not None:
        return Ending(completed=True, marker=last)
    return Ending(moving=_moving(files, training, now, live=live))


def _last_of_all(files: Sequence[FileFacts], training: TrainingTimeline) -> Hit | None:
    """The last of all planned steps, if only a teardown may have followed it."""
    if not training.steps or training.file is None:
        return None
    seen = training.steps[-1]
    step = seen.step
    if step.step is None or not _is_last(step, files):
        return None
    hit = Hit(
        file=training.file,
        offset=seen.offset,
        text=f"step {step.step}",
        signature=_LAST_STEP,
        time=seen.time,
        streamed=seen.streamed,
    )
    # What was printed after a bar may stand on the bar's own line.
    told = [h for f in files for h in f.hits if _after(h, hit) or _same_line(h, hit)]
    ends = all(_is_teardown(h) for h in told if h.signature.role not in ("harmless", "note"))
    return hit if ends else None


def _is_teardown(hit: Hit) -> bool:
    # The caller of a remote task got an error instead of its result: training was not finished.
    if hit.signature.role == "echo":
        return "RayTaskError" not in (hit.exception.kind if hit.exception else hit.text)
    return hit.signature.kind in _TEARDOWN


def _same_line(one: Hit, other: Hit) -> bool:
    return (one.file, one.offset) == (other.file, other.offset)


def _is_last(step: ReportedStep, files: Sequence[FileFacts]) -> bool:
    if step.per_epoch:
        return False
    if step.total is not None:
        return step.step == step.total > 1
    # What counts from 0 (MaxText) ends one below the number in its header.
    planned = {int(f.facts["total_steps"]) for f in files if "total_steps" in f.facts}
    return any(total > 1 and step.step in (total - 1, total) for total in planned)


def _training_follows(marker: Hit, files: Sequence[FileFacts], training: TrainingTimeline) -> bool:
    """Training steps or a new start follow the marker."""
    facts = files[marker.file]
    steps = {s.step.step for s in facts.steps if s.offset > marker.offset and not s.step.left}
    if len(steps) > 1:
        return True
    starts = [p for p in facts.phases if p.offset > marker.offset and p.phase in _STARTING]
    if starts:
        return True
    if marker.time is None or training.file == marker.file:
        return False
    margin = 5 * (training.step_seconds or 1.0) + 5.0
    return training.last_time is not None and training.last_time > marker.time + margin


def _after(hit: Hit, marker: Hit) -> bool:
    if hit.file == marker.file:
        return hit.offset > marker.offset
    if hit.time is not None and marker.time is not None:
        return hit.time >= marker.time
    return True


def _moving(
    files: Sequence[FileFacts], training: TrainingTimeline, now: float | None, *, live: bool
) -> bool:
    """The newest sign of life is fresh: the lines' own times if they have any, else the files'."""
    if now is None or _session_ended(files, training):
        return False
    own = of_the_job(files)
    newest = _newest(own, live=live)
    if newest is None:
        return False
    fresh = max(_FRESH_LEAST, _FRESH_STEPS * (training.step_seconds or 0.0))
    if -86_400.0 < now - newest < fresh:
        return True
    return any(_just_written(facts, now, fresh) for facts in own)


def of_the_job(files: Sequence[FileFacts]) -> list[FileFacts]:
    """The files that the job's own processes write."""
    return [facts for facts in files if facts.file.kind not in _OF_THE_CLUSTER]


def _newest(files: Sequence[FileFacts], *, live: bool) -> float | None:
    """The latest time that a line contains. In a live session, the files' own times count too;
    elsewhere a file that was copied a moment ago would seem as new."""
    times = [f.last_time for f in files if f.last_time is not None]
    if live:
        times += [f.file.modified for f in files if f.file.modified is not None]
    return max(times, default=None)


def _just_written(facts: FileFacts, now: float, fresh: float) -> bool:
    """The file changed a moment ago, and its last line is of that moment in another time zone."""
    modified, last = facts.file.modified, facts.last_time
    if modified is None or last is None or not -60.0 < now - modified < fresh:
        return False
    zone = round_zone(modified - last)
    return abs(zone) <= FARTHEST_ZONE and abs(modified - last - zone) < _PROMPT


def _session_ended(files: Sequence[FileFacts], training: TrainingTimeline) -> bool:
    """Ray's own processes have said that they stop, and no step came after."""
    ends = [h.time for f in files for h in f.hits if h.signature.id == "ray-session-ended"]
    last = max((when for when in ends if when is not None), default=None)
    return last is not None and (training.last_time is None or last >= training.last_time)


def went_silent(
    files: Sequence[FileFacts],
    training: TrainingTimeline,
    phase: PhaseSeen | None,
    now: float | None,
    *,
    live: bool,
) -> bool:
    """Whether the time from the last progress to the last sign of life is far too long."""
    own = [f for f in files if f.file.kind != "kernel"]  # a machine outlives the job
    ends = [f.last_time for f in own if f.last_time is not None]
    if not ends:
        return False
    end = now if live and now is not None else max(ends)
    last = training.latest
    limit = max(_QUIET_LEAST, _QUIET_STEPS * (training.step_seconds or 0.0))
    if last is None and phase is None:
        limit = _QUIET_PHASE
    first = phase is not None and phase.phase == "train" and not training.steps
    if phase is not None and (first or phase.phase not in ("train", "teardown")):
        limit = _SILENT.get(phase.phase, _QUIET_PHASE)
        last = max(filter(None, (last, phase.time)), default=None)
    if not training.steps:
        last = max(filter(None, (last, _served_at(files, phase))), default=None)
    if last is None and live:
        last = _newest(of_the_job(files), live=True)
    return last is not None and end - last > limit


def _served_at(files: Sequence[FileFacts], phase: PhaseSeen | None) -> float | None:
    served = last_served(files, at_rest=phase is None or phase.phase in _OF_ENGINES)
    return served.time if served else None
