"""Shifts the times of all files of a job to one clock.

Nodes may log in different time zones. A file whose first and last time both differ from the others'
by the same multiple of half an hour is shifted to their clock, unless it belongs to another run.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

import msgspec

from ray_sentinel.evidence.logs.records import FileFacts

_HALF_HOUR = 1800.0
FARTHEST_ZONE = 14 * 3600.0
_HALF_YEAR = 180 * 86_400.0
_SAME_JOB = 14 * 86_400.0
"""Most seconds between the ends of two logs of one job."""
_SLACK = 240.0
_REQUEUED = 600.0
"""Most seconds between the end of a job and its next start for it to count as the same job,
requeued."""
_SOME_STEPS = 3


def round_zone(seconds: float) -> float:
    """The nearest difference that two time zones can have, in seconds."""
    return round(seconds / _HALF_HOUR) * _HALF_HOUR


def clock_shifts(files: Sequence[FileFacts]) -> list[float]:
    """Seconds to add to each file's times so that all are on the clock of most of them."""
    dated = [f for f in files if f.first_time is not None and f.last_time is not None]
    if len(dated) < 2:
        return [0.0] * len(files)
    anchor = max(dated, key=lambda f: (f.last_time or 0) - (f.first_time or 0))
    first, last = anchor.first_time or 0.0, anchor.last_time or 0.0
    return [
        _year_shift(f.last_time, last)
        or (0.0 if _follows(f, dated) else _shift(f.first_time, f.last_time, first, last))
        for f in files
    ]


def _year_shift(last: float | None, to_last: float) -> float:
    """Seconds to add to a log without years (syslog) whose year was guessed wrongly; otherwise
    0."""
    if last is None or abs(to_last - last) < _HALF_YEAR:
        return 0.0
    here, there = _utc(last), _utc(to_last)
    moved = [_in_year(here, year) for year in (there.year - 1, there.year, there.year + 1)]
    best = min(filter(None, moved), key=lambda when: abs(when.timestamp() - to_last), default=None)
    if best is None or abs(best.timestamp() - to_last) > _SAME_JOB:
        return 0.0
    return best.timestamp() - last


def _utc(when: float) -> datetime:
    return datetime.fromtimestamp(when, timezone.utc)


def _in_year(when: datetime, year: int) -> datetime | None:
    try:
        return when.replace(year=year)
    except ValueError:
        return None  # the 29th of February


def _shift(first: float | None, last: float | None, to_first: float, to_last: float) -> float:
    if first is None or last is None:
        return 0.0
    begin, end = to_first - first, to_last - last
    whole = round_zone(end)
    if (
        whole
        and abs(whole) <= FARTHEST_ZONE
        and abs(end - whole) < _SLACK
        and abs(begin - whole) < _SLACK
    ):
        return whole
    return 0.0


def _follows(facts: FileFacts, others: Sequence[FileFacts]) -> bool:
    """Whether it is another run of the job, before or after that of another file, and not a node in
    another time zone."""
    return any(
        _next_to(one, two)
        for other in others
        if other is not facts
        for one, two in ((facts, other), (other, facts))
    )


def _next_to(before: FileFacts, after: FileFacts) -> bool:
    """``after`` begins where ``before`` ended, by its times or by its steps."""
    end, begin = before.last_time, after.first_time
    if end is not None and begin is not None and 0 <= begin - end < _REQUEUED:
        return True
    ended = [seen.step.step for seen in before.steps if seen.step.step is not None]
    began = [seen.step.step for seen in after.steps if seen.step.step is not None]
    if min(len(ended), len(began)) < _SOME_STEPS:
        return False
    return min(ended) < max(ended) <= min(began)


def shifted(facts: FileFacts, seconds: float) -> FileFacts:
    """``facts`` with all times moved."""
    if not seconds:
        return facts

    def move(when: float | None) -> float | None:
        return when + seconds if when is not None else None

    replace = msgspec.structs.replace
    return replace(
        facts,
        hits=[
            replace(hit, time=move(hit.time), next_time=move(hit.next_time)) for hit in facts.hits
        ],
        steps=[
            replace(seen, time=move(seen.time), next_time=move(seen.next_time))
            for seen in facts.steps
        ],
        phases=[replace(seen, time=move(seen.time)) for seen in facts.phases],
        first_time=move(facts.first_time),
        last_time=move(facts.last_time),
        last_times=tuple(when + seconds for when in facts.last_times),
    )
