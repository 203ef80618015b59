"""The durations of a job's steps and calls over the last hour, aggregated in intervals of ten
seconds.

``DurationStats`` knows what is usual, without the time; this is the course over time that people
look at. It costs a job some 10 kB a lane, whatever its pace and size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from itertools import islice

import msgspec

from ray_sentinel.engine.phases import TRAINING
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.last_hour import PulseLane, PulsePhase

WIDTH = 10.0
"""Seconds of one place."""
PLACES = 360
"""How many places are kept: an hour."""
MOST_LANES = 24
"""Most lanes of one job that are kept; with more methods, those that have gone longest without a
call are dropped."""
SHOWN_LANES = 6
"""Most lanes of one job that are shown: those in which most of the time was spent."""
MOST_PHASES = 128
"""Most past phases of one job that are kept: the last ones."""
MOST_BYTES = 8 << 20
"""Most bytes of all jobs together, about as they are in a snapshot: 34 jobs with all lanes full."""
PLACE_BYTES = 28
"""Most bytes of one place when packed: two numbers of up to nine bytes each, and two of up to five.
"""
PHASE_BYTES = 24
"""Bytes of one phase in addition to its name."""


class PulsePlace(msgspec.Struct, array_like=True):
    """What ended within one interval of ten seconds."""

    number: int
    """The number of the interval, counted from the clock's beginning."""
    count: int
    seconds: float
    """The sum of their durations."""
    longest: float


class Pulse(msgspec.Struct):
    """The pulse of one job. Times are seconds on the coordinator's clock."""

    lanes: dict[str, list[PulsePlace]] = {}
    """Places by the method's name, "" for steps; the most recently used lane last."""
    phases: list[tuple[str, float, float]] = []
    """Past phases as (phase, begin, end), in the order of their ends."""

    def add(self, lane: str, seconds: float, at: float) -> None:
        """Record a step or a call that took ``seconds`` and ended at ``at``."""
        if not (math.isfinite(seconds) and seconds >= 0.0):
            return
        places = self.lanes[lane] = self.lanes.pop(lane, [])
        while len(self.lanes) > MOST_LANES:
            del self.lanes[next(iter(self.lanes))]
        number = int(at // WIDTH)
        # A step that was reported late belongs to the newest place.
        if not places or number > places[-1].number:
            places.append(PulsePlace(number, 0, 0.0, 0.0))
            if number - places[0].number > PLACES:
                self.lanes[lane] = places = [p for p in places if number - p.number < PLACES]
        last = places[-1]
        last.count, last.seconds = last.count + 1, last.seconds + seconds
        last.longest = max(last.longest, seconds)

    def note_phase(self, phase: str, begun: float, ended: float) -> None:
        """Record that a rank left a phase. All ranks go through it together, so overlapping phases
        are one."""
        # Only the last ones are examined: the job's ranks leave a phase at about the same time.
        for index in range(len(self.phases) - 1, max(-1, len(self.phases) - 4), -1):
            name, start, end = self.phases[index]
            if name == phase and begun <= end:
                self.phases[index] = (phase, min(start, begun), max(end, ended))
                return
        self.phases.append((phase, begun, ended))
        del self.phases[:-MOST_PHASES]

    def drop_oldest(self, now: float, least_seconds: float) -> bool:
        """Drop the older half, but nothing from the last ``least_seconds``. Returns whether
        anything was dropped."""
        numbers = [places[0].number for places in self.lanes.values() if places]
        begins = [WIDTH * min(numbers)] if numbers else []
        begins += [start for _, start, _ in self.phases]
        if not begins:
            return False
        until = min(now - least_seconds, (min(begins) + now) / 2)
        places = sum(map(len, self.lanes.values())) + len(self.phases)
        for name, known in list(self.lanes.items()):
            kept = [place for place in known if WIDTH * (place.number + 1) > until]
            if kept:
                self.lanes[name] = kept
            else:
                del self.lanes[name]
        self.phases = [one for one in self.phases if one[2] >= until]
        return sum(map(len, self.lanes.values())) + len(self.phases) < places

    @property
    def size(self) -> int:
        """Approximate bytes in a snapshot."""
        lanes = sum(len(name) + PLACE_BYTES * len(places) for name, places in self.lanes.items())
        return lanes + sum(PHASE_BYTES + len(phase) for phase, _, _ in self.phases)

    def clear(self) -> None:
        """Drop all of it."""
        self.lanes, self.phases = {}, []

    def copied(self) -> Pulse:
        """A copy that no later event changes. Of a lane, only the newest place still changes: the
        others are shared."""
        return Pulse(
            lanes={name: [*places[:-1], copy(places[-1])] for name, places in self.lanes.items()},
            phases=list(self.phases),
        )

    def moved_since(self, first: int) -> bool:
        """Whether anything has ended since interval ``first``."""
        return any(places[-1].number >= first for places in self.lanes.values())

    def shown_lanes(self, first: int) -> tuple[PulseLane, ...]:
        """The lanes in which most of the time was spent since interval ``first``, by name."""
        kept = {
            name: [place for place in places if place.number >= first]
            for name, places in self.lanes.items()
        }
        most = sorted(kept, key=lambda name: -sum(place.seconds for place in kept[name]))
        return tuple(
            PulseLane(name=name, points=tuple(_points(kept[name], first)))
            for name in sorted(islice((name for name in most if kept[name]), SHOWN_LANES))
        )

    def shown_phases(
        self, since: float, now: Mapping[ProcessId, tuple[str, float]], living: Iterable[ProcessId]
    ) -> tuple[PulsePhase, ...]:
        """The phases that ended after ``since``. ``now`` are the phases that processes are in, and
        since when, of which the ``living`` count."""
        over = [
            PulsePhase(phase=phase, start=begun, end=ended)
            for phase, begun, ended in self.phases
            if ended >= since
        ]
        open_since: dict[str, float] = {}
        for process in living:
            phase, begun = now.get(process, ("", 0.0))
            if phase not in TRAINING:
                open_since[phase] = min(begun, open_since.get(phase, begun))
        return (
            *over,
            *(PulsePhase(phase=phase, start=begun) for phase, begun in open_since.items()),
        )


def _points(places: Iterable[PulsePlace], first: int) -> Iterator[tuple[int, int, float, float]]:
    for place in places:
        mean = place.seconds / max(place.count, 1)
        yield place.number - first, place.count, _short(mean), _short(place.longest)


def _short(seconds: float) -> float:
    """The number rounded to four digits, which is more than a picture shows."""
    return float(f"{seconds:.4g}")
