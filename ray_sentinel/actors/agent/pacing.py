"""When an agent reports: at once when something happens on its node, else as seldom as it may."""

from __future__ import annotations

from collections.abc import Iterable

from ray_sentinel.model.progress import RankSnapshot, RayProcess

_HELD = frozenset("TtDZX")
"""States of processes that are stopped, blocked in the kernel, or over."""
_Shape = tuple[tuple[object, ...], ...]


class ReportPace:
    """``least``: seconds between two looks of the agent, and so between two reports.

    What a process counts (steps, CPU time, the call that it runs) changes all the time, and is told
    when a report is due; who is there, and who is held up, is told at once, and as long as anybody
    is held up. May be used by two threads: one that looks, and one that reports.
    """

    def __init__(self, least: float) -> None:
        self._least = least
        self._wanted = 0.0
        self._told: _Shape = ()
        self._told_at = float("-inf")

    @property
    def interval(self) -> float:
        """Seconds within which the next report follows."""
        return max(self._least, self._wanted)

    def take(self, wanted: float | None) -> None:
        """What the coordinator asks for; None where a report did not reach it."""
        if wanted is None:
            self._told_at = float("-inf")
        else:
            self._wanted = wanted

    def due(
        self,
        ranks: Iterable[RankSnapshot],
        ray_processes: Iterable[RayProcess],
        now: float,
        *,
        owes: bool,
    ) -> bool:
        """Whether to report what was seen ``now`` (seconds that only rise), which is then taken for
        told. ``owes``: there is more to tell."""
        shape, held = _shape(ranks, ray_processes)
        # Looks come every ``least`` seconds: the nearest one.
        waited = now - self._told_at >= self.interval - self._least / 2
        if not (owes or held or waited or shape != self._told):
            return False
        self._told, self._told_at = shape, now
        return True


def _shape(
    ranks: Iterable[RankSnapshot], ray_processes: Iterable[RayProcess]
) -> tuple[_Shape, bool]:
    """Who is there and is held up by what, and whether anybody is."""
    shape: list[tuple[object, ...]] = []
    held = False
    for one in ranks:
        state = one.process
        stopped = state.state if state.state in _HELD else ""
        how = (stopped, state.frozen, bool(state.tracer_pid), state.interpreter == "gil-held")
        held = held or any(how)
        said = one.progress is not None and one.progress.last_words is not None
        shape.append((one.rank.id, one.rank.process, how, said))
    for process in ray_processes:
        stopped = process.state if process.state in _HELD else ""
        held = held or bool(stopped)
        shape.append((process.process, stopped))
    return tuple(shape), held
