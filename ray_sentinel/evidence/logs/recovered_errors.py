"""Separates the errors that training recovered from from those that it did not."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ray_sentinel.evidence.logs.causes import ANYTIME, tier
from ray_sentinel.evidence.logs.clocks import FARTHEST_ZONE, round_zone
from ray_sentinel.evidence.logs.errors.engines import ENGINE_UP
from ray_sentinel.evidence.logs.records import FileFacts, Hit, StepSeen
from ray_sentinel.evidence.logs.training.timeline import (
    SURVIVED_STEPS,
    TrainingTimeline,
    steps_after,
    steps_between,
)

_SAME_MOMENT = 60.0
_UNHARMED_STEPS = 10
"""Least number of steps, over more than a minute, that show that a machine's own record harmed no
rank where nothing failed: whoever lost a rank stands still after those that were under way."""
_EACH_COUNTS = frozenset({"cancelled", "preempted", "hang"})
"""Classes that are never taken as survived because an earlier attempt survived them: what ended one
attempt may end the next one too."""


def split_survived(
    hits: Sequence[Hit], files: Sequence[FileFacts], training: TrainingTimeline, completed: bool
) -> tuple[list[Hit], list[Hit]]:
    """(errors that training did not survive, errors that it did)."""
    needed = 1 if completed else SURVIVED_STEPS
    past: list[Hit] = []
    fatal: list[Hit] = []
    lasting: list[Hit] = []
    notices: list[Hit] = []
    for hit in hits:
        if tier(hit.signature.kind) == 0 and not completed:
            lasting.append(hit)
        elif hit.signature.kind == "nan-loss" and not completed:
            (past if _numbers_came_back(hit, files, training) else fatal).append(hit)
        elif steps_after(hit, files, training) >= needed:
            (notices if hit.signature.kind == "preempted" else past).append(hit)
        else:
            (lasting if files[hit.file].file.kind == "kernel" else fatal).append(hit)
    carried_out = [hit for hit in notices if not completed and _announces(hit, fatal)]
    past += [hit for hit in notices if hit not in carried_out]
    past += _worked_on(fatal, files)
    past += _served_on(fatal, files) if not training.steps else ()
    past += _shut_down(fatal, files)
    past += _expected_by_tests(fatal, files)
    past += tolerated(fatal, past)
    past += _long_past(lasting, fatal, files, training)
    gone = {id(hit) for hit in past} - {id(hit) for hit in _of_the_failure(past, fatal)}
    return (
        [hit for hit in hits if id(hit) not in gone],
        [hit for hit in hits if id(hit) in gone],
    )


def _announces(notice: Hit, fatal: Sequence[Hit]) -> bool:
    """Whether a failure followed the notice that a node will be taken back: training goes on for
    the minutes that the notice gives."""
    ends = (hit.latest for hit in fatal if hit is not notice)
    began = notice.latest
    return began is not None and any(
        end is not None and 0.0 <= end - began <= ANYTIME for end in ends
    )


def _of_the_failure(past: Sequence[Hit], fatal: Sequence[Hit]) -> Iterator[Hit]:
    """The driver's record of a bad address just before the program's own error: other ranks' steps
    between the two are no recovery of this one."""
    kind = "illegal-memory-access"
    ends = [hit.time for hit in fatal if hit.signature.kind == kind and hit.time is not None]
    for hit in past:
        of_driver = hit.signature.kind == kind and hit.signature.accuses == "named"
        at = hit.time
        if of_driver and at is not None and any(0.0 <= end - at <= _SAME_MOMENT for end in ends):
            yield hit


def _numbers_came_back(hit: Hit, files: Sequence[FileFacts], training: TrainingTimeline) -> bool:
    """Steps after it, and all of the last ones, have a finite loss and norm: one bad step that
    was left out, or that training got over."""
    own = [seen for seen in files[hit.file].steps if seen.offset > hit.offset]
    if not own:
        if hit.latest is None:
            return False
        own = [s for s in training.steps if s.time is not None and s.time > hit.latest]
    told = [seen for seen in own if seen.step.loss is not None or seen.step.norm is not None]
    return len(told) >= SURVIVED_STEPS and all(map(_is_finite, told[-SURVIVED_STEPS:]))


def _is_finite(seen: StepSeen) -> bool:
    values = (seen.step.loss, seen.step.norm)
    return all(value is None or math.isfinite(value) for value in values)


def _worked_on(hits: Sequence[Hit], files: Sequence[FileFacts]) -> list[Hit]:
    """An engine's messages that it waits, if it worked well afterwards; and later ones that came
    too seldom to mean anything."""
    waits = [hit for hit in hits if hit.signature.engine]
    if not waits:
        return []
    works = [hit for facts in files for hit in facts.hits if hit.signature.id in ENGINE_UP]
    over = [hit for hit in waits if any(_shows_work(work, hit, waits, works) for work in works)]
    gone = {id(hit) for hit in over}
    left: dict[str, list[Hit]] = {}
    for hit in waits:
        if id(hit) not in gone:
            left.setdefault(hit.signature.id, []).append(hit)
    for since in left.values():
        if over and sum(hit.repeated for hit in since) < since[0].signature.least:
            over += since
    return over


def _served_on(hits: Sequence[Hit], files: Sequence[FileFacts]) -> Iterator[Hit]:
    """Exceptions after which the server, which makes no steps, answered further requests: it failed
    at one request only."""
    works = [h for facts in files for h in facts.hits if h.signature.id == "engine-works"]
    for hit in hits:
        if hit.exception is None or hit.signature.kind != "python-exception":
            continue
        later = [h for h in works if h.file == hit.file and _shows_work(h, hit, hits, works)]
        if len(later) >= SURVIVED_STEPS:
            yield hit


def _shut_down(hits: Sequence[Hit], files: Sequence[FileFacts]) -> list[Hit]:
    """Ends of an engine's processes after its server had begun to shut down."""
    begun: dict[int, int] = {}
    for facts in files:
        for hit in facts.hits:
            if hit.signature.id == "engine-stopping":
                begun.setdefault(hit.file, hit.offset)
    ends = [hit for hit in hits if hit.signature.id == "engine-process-died"]
    return [hit for hit in ends if hit.offset > begun.get(hit.file, hit.offset)]


def _expected_by_tests(hits: Sequence[Hit], files: Sequence[FileFacts]) -> list[Hit]:
    """Errors that a run of tests whose tests all passed had provoked."""
    found: list[Hit] = []
    for index, facts in enumerate(files):
        begun: int | None = None
        for note in facts.hits:
            if note.signature.id == "tests-begin":
                begun = note.offset
            elif note.signature.id == "tests-passed" and begun is not None:
                found += [h for h in hits if h.file == index and begun < h.offset < note.offset]
                begun = None
    return found


def _shows_work(work: Hit, wait: Hit, waits: Sequence[Hit], works: Sequence[Hit]) -> bool:
    """``work`` was done after ``wait``, by the same engine as far as the lines tell."""
    engine = wait.origin.actor.rpartition("_DP")[2] if "_DP" in wait.origin.actor else ""
    told = work.groups.get("engine", "")
    if engine.isdigit() and told.isdigit() and int(engine) != int(told):
        return False
    if work.file == wait.file:
        return work.offset > wait.offset
    # Parts of an engine that write files of their own belong together where there is only one
    # engine.
    alone = len({hit.file for hit in waits}) == 1 == len({hit.file for hit in works})
    dated = work.time is not None and wait.time is not None
    return alone and dated and (work.time or 0.0) > (wait.time or 0.0)


def tolerated(hits: Sequence[Hit], past: Sequence[Hit]) -> list[Hit]:
    """Warnings that training got over before; the last of them is no more a cause than the earlier
    ones."""
    warned = [hit.signature for hit in past if hit.signature.severity == "warning"]
    known = {signature.id for signature in warned if signature.kind not in _EACH_COUNTS}
    return [hit for hit in hits if hit.signature.id in known]


def _long_past(
    lasting: Sequence[Hit],
    fatal: Sequence[Hit],
    files: Sequence[FileFacts],
    training: TrainingTimeline,
) -> Iterator[Hit]:
    """Records of a machine itself (``lasting``) that are about another time than the job's failure.

    Other ranks may go on for a while without a lost machine: where the job failed, steps alone
    prove nothing.
    """
    own = [f for f in files if f.file.kind != "kernel"]
    begin = min((f.first_time for f in own if f.first_time is not None), default=None)
    end = max((f.last_time for f in own if f.last_time is not None), default=None)
    failures = sorted(hit.time for hit in fatal if hit.time is not None)
    dated = [(when, hit) for hit in lasting if (when := hit.latest) is not None]
    for when, hit in sorted(dated, key=lambda item: item[0], reverse=True):
        failed = min((at for at in failures if at >= when), default=None)
        until = end if failed is None else failed
        unharmed = failed is None and _went_on(when, begin, end, training)
        if until is not None and (unharmed or _is_past(when, until, begin, training)):
            yield hit
        else:
            failures.append(when)


def _went_on(
    record: float, begin: float | None, end: float | None, training: TrainingTimeline
) -> bool:
    """Made while the job ran, on the job's clock, and training made many steps up to ``end``."""
    if begin is None or end is None or record < begin or _other_zone(record, end):
        return False
    return steps_between(record + _SAME_MOMENT, end, training) >= _UNHARMED_STEPS


def _is_past(
    record: float, failure: float, begin: float | None, training: TrainingTimeline
) -> bool:
    """Long before the job, or long before the failure with training going on in between."""
    if begin is not None and record < begin - ANYTIME:
        return not _other_zone(record, failure)
    made = steps_between(record, failure, training)
    return failure - record > ANYTIME and made >= SURVIVED_STEPS


def _other_zone(record: float, failure: float) -> bool:
    """Written when the job failed, on a clock some hours off: ``dmesg -T`` gives local times."""
    apart = failure - record
    return 0 < apart < FARTHEST_ZONE and abs(apart - round_zone(apart)) < _SAME_MOMENT
