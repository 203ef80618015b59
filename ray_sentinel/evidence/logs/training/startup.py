"""A start-up that is stuck: lines are still printed, but one phase lasts far beyond its limit.

If no line is printed any more, the job stands still (``outcome.went_silent``); if one of the
phase's own bars or counts still grows, it is slow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.evidence.logs.case import LogAnalysis
from ray_sentinel.evidence.logs.errors.catalogue import Catalogue
from ray_sentinel.evidence.logs.errors.engines import ENGINE_UP
from ray_sentinel.evidence.logs.outcome import of_the_job
from ray_sentinel.evidence.logs.records import FileFacts
from ray_sentinel.evidence.logs.training.phases import PhaseSeen

_STARTED = frozenset({"train", "teardown", "evaluate", "checkpoint"})
_LEAST = 900.0
_TIMES = 2.0
"""How many times its usual longest time a phase may take."""
_GOES_ON = 120.0
_LINES = 3
"""Number of lines, well after the phase's last mark, which show that more than the phase's end was
printed."""
_ENGINE_UP = ENGINE_UP | {"engine-idle"}
"""Notes of an engine that serves: it is a job without steps, and has started."""
_COUNT = re.compile(r"(?P<percent>\d{1,3})%|\b(?P<done>\d{1,9}) ?(?:/| of ) ?(?P<total>\d{1,9})")
_WAITS = re.compile(r"(?i)attempt|retr|elapsed|wait|out of|timeout")


class StuckStart(msgspec.Struct, frozen=True, kw_only=True):
    """The phase that the start-up is in, since when, and how long it may take, in seconds."""

    first: PhaseSeen
    file: int
    seconds: float
    limit: float


def stuck_start(case: LogAnalysis) -> StuckStart | None:
    """The phase that has lasted too long; None if there was a step, or it is within its limit."""
    files, phase = case.files, case.phase
    if case.training.steps or phase is None or phase.phase in _STARTED:
        return None
    end = _end(case)
    if end is None or phase.time is None:
        return None
    if any(hit.signature.id in _ENGINE_UP for facts in files for hit in facts.hits):
        return None
    marks = [
        (seen, index)
        for index, facts in enumerate(files)
        for seen in facts.phases
        if seen.phase == phase.phase and seen.time is not None
    ]
    first, file = min(marks, key=lambda mark: mark[0].time or 0.0)
    begun = first.time or 0.0
    limit = max(_LEAST, _TIMES * _usual(case.catalogue, phase.phase))
    if end - begun <= limit or not _lines_follow(files, begun, phase.time):
        return None
    if end - _last_growth([seen for seen, _ in marks]) <= limit:
        return None
    return StuckStart(first=first, file=file, seconds=end - begun, limit=limit)


def _end(case: LogAnalysis) -> float | None:
    """The last sign of life, or the reader's current time if the job may be alive."""
    if case.question.live and case.ending.moving and case.question.now is not None:
        return case.question.now
    times = (facts.last_time for facts in of_the_job(case.files))
    return max((when for when in times if when is not None), default=None)


def _usual(catalogue: Catalogue, phase: str) -> float:
    marks = (item.mark for item in catalogue.marks if item.mark.phase == phase)
    return max((mark.usual_seconds or 0.0 for mark in marks), default=0.0)


def _lines_follow(files: Sequence[FileFacts], begun: float, marked: float) -> bool:
    """Lines came long after the phase began: its own marks again, or others."""
    times = sorted(when for facts in of_the_job(files) for when in facts.last_times)
    later = [when for when in times if when - marked > _GOES_ON]
    return marked - begun > _GOES_ON or len(later) >= _LINES


def _last_growth(marks: Iterable[PhaseSeen]) -> float:
    """When a bar or a count of the phase grew last; 0 if none did."""
    grown, before = 0.0, -1.0
    for seen in sorted(marks, key=lambda mark: (mark.time or 0.0, mark.offset)):
        match = _COUNT.search(seen.text) if not _WAITS.search(seen.text) else None
        if match is None:
            continue
        total = float(match["total"] or 0)
        share = float(match["percent"]) / 100 if match["percent"] else 0.0
        share = float(match["done"]) / total if match["done"] and total else share
        if share > before and before >= 0.0:
            grown = seen.time or 0.0
        before = share
    return grown
