"""Errors that training did not survive, apart from those that it did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ray_sentinel.evidence.logs.causes import ANYTIME, tier
from ray_sentinel.evidence.logs.clocks import FARTHEST_ZONE, round_zone
from ray_sentinel.evidence.logs.records import FileFacts, Hit
from ray_sentinel.evidence.logs.timeline import (
    SURVIVED_STEPS,
    Training,
    steps_after,
    steps_between,
)

_SAME_MOMENT = 60.0
_EACH_COUNTS = frozenset({"cancelled", "preempted", "hang"})
"""What ended one attempt may end the next one too."""


def split_survived(
    hits: Sequence[Hit], files: Sequence[FileFacts], training: Training, completed: bool
) -> tuple[list[Hit], list[Hit]]:
    """(those that training did not survive, those that it did)."""
    needed = 1 if completed else SURVIVED_STEPS
    past: list[Hit] = []
    fatal: list[Hit] = []
    lasting: list[Hit] = []
    for hit in hits:
        if tier(hit.signature.kind) == 0 and not completed:
            lasting.append(hit)
        elif hit.signature.kind == "nan-loss" and not completed:
            fatal.append(hit)
        else:
            after = steps_after(hit, files, training)
            (past if after >= needed else fatal).append(hit)
    past += lived_with(fatal, past)
    past += _long_past(lasting, fatal, files, training)
    gone = {id(hit) for hit in past}
    return (
        [hit for hit in hits if id(hit) not in gone],
        [hit for hit in hits if id(hit) in gone],
    )


def lived_with(hits: Sequence[Hit], past: Sequence[Hit]) -> list[Hit]:
    """Warnings that training got over before: the last of them is as little a cause."""
    warned = [hit.signature for hit in past if hit.signature.severity == "warning"]
    known = {signature.id for signature in warned if signature.kind not in _EACH_COUNTS}
    return [hit for hit in hits if hit.signature.id in known]


def _long_past(
    lasting: Sequence[Hit], fatal: Sequence[Hit], files: Sequence[FileFacts], training: Training
) -> Iterator[Hit]:
    """What a machine's record tells of another time than that of the job's failure.

    Other ranks may go on for a while without a machine that is lost: steps alone tell nothing.
    """
    own = [f for f in files if f.file.kind != "kernel"]
    begin = min((f.first_time for f in own if f.first_time is not None), default=None)
    end = max((f.last_time for f in own if f.last_time is not None), default=None)
    failures = sorted(hit.time for hit in fatal if hit.time is not None)
    dated = [(when, hit) for hit in lasting if (when := _latest(hit)) is not None]
    for when, hit in sorted(dated, key=lambda item: item[0], reverse=True):
        until = min((at for at in failures if at >= when), default=end)
        if until is not None and _is_past(when, until, begin, training):
            yield hit
        else:
            failures.append(when)


def _is_past(record: float, failure: float, begin: float | None, training: Training) -> bool:
    """Long before the job, or long before the failure with training going on in between."""
    if begin is not None and record < begin - ANYTIME:
        return not _other_zone(record, failure)
    made = steps_between(record, failure, training)
    return failure - record > ANYTIME and made >= SURVIVED_STEPS


def _other_zone(record: float, failure: float) -> bool:
    """Written when the job failed, on a clock some hours off: ``dmesg -T`` gives local times."""
    apart = failure - record
    return 0 < apart < FARTHEST_ZONE and abs(apart - round_zone(apart)) < _SAME_MOMENT


def _latest(hit: Hit) -> float | None:
    """When the line was printed at the latest."""
    return hit.time if hit.own_time else hit.next_time
