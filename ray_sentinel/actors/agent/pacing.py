"""When an agent reports: at once when something happens on its node, otherwise as rarely as it
may."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable

from ray_sentinel.model.progress import HELD, OVER, RankSnapshot, RayProcess

_REPORTED_AT_ONCE = HELD | OVER
"""States of processes that are reported at once."""
_Shape = tuple[tuple[object, ...], ...]


class ReportPace:
    """Decides which of an agent's looks at its node are reported: each, unless the coordinator asks
    for fewer.

    What a process counts (steps, CPU time, the call that it runs) changes all the time, and is
    reported when a report is due; who is there, and who is held up, is reported at once, and with
    every look while anybody is held up. No event moves the times at which reports are due, and they
    differ between agents: otherwise, after a job's start, all agents would report in the same
    second for ever.

    May be used by two threads: one that looks, and one that reports.
    """

    def __init__(self, least: float, phase: float | None = None) -> None:
        """``least``: seconds between two looks. ``phase``, 0..1: when in each interval a report is
        due; at random if not given."""
        self._least = least
        self._phase = random.random() if phase is None else phase
        self._asked = self._interval = least
        self._turn = -1
        self._failed = False
        self._reported: _Shape = ()

    @property
    def interval(self) -> float:
        """Seconds between two reports while nothing happens, counted from the last report."""
        return self._interval

    def set_interval(self, wanted: float | None) -> None:
        """Set the interval that the coordinator asks for, rounded up to whole looks. It takes
        effect with the next report, which states it. None if a report did not reach the
        coordinator."""
        if wanted is None:
            self._failed = True
        else:
            self._asked = self._least * max(1, math.ceil(wanted / self._least - 1e-6))

    def due(
        self,
        ranks: Iterable[RankSnapshot],
        ray_processes: Iterable[RayProcess],
        now: float,
        *,
        owes: bool,
    ) -> bool:
        """Whether to report what was seen ``now`` (increasing seconds), which then counts as
        reported. ``owes``: there is more to report."""
        shape, held = _shape(ranks, ray_processes)
        turn = math.floor(now / self._interval + self._phase)
        usual = self._interval <= self._least or turn != self._turn
        if not (usual or owes or held or self._failed or shape != self._reported):
            return False
        self._reported, self._turn, self._failed = shape, turn, False
        self._interval = self._asked
        return True


def _shape(
    ranks: Iterable[RankSnapshot], ray_processes: Iterable[RayProcess]
) -> tuple[_Shape, bool]:
    """Who is there and held up by what, and whether anybody is held up."""
    shape: list[tuple[object, ...]] = []
    held = False
    for one in ranks:
        state = one.process
        stopped = state.state if state.state in _REPORTED_AT_ONCE else ""
        how = (stopped, state.frozen, bool(state.tracer_pid), state.interpreter == "gil-held")
        held = held or any(how)
        said = one.progress is not None and one.progress.last_words is not None
        shape.append((one.rank.id, one.rank.process, how, said))
    for process in ray_processes:
        stopped = process.state if process.state in _REPORTED_AT_ONCE else ""
        held = held or bool(stopped)
        shape.append((process.process, stopped))
    return tuple(shape), held
