"""One job under diagnosis: its series, its log's facts, and what follows from them.

Playbooks share a case. Everything here is a function of the series and the options; it is computed
when first asked for and kept.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar, cast

import msgspec
import numpy as np

from ray_sentinel.diagnose import checkpoints, stats, timeline, trust
from ray_sentinel.diagnose.checkpoints import CheckpointPause
from ray_sentinel.diagnose.logs import LogFacts
from ray_sentinel.diagnose.series import Bools, Floats
from ray_sentinel.diagnose.timeline import Timeline
from ray_sentinel.diagnose.view import View

T = TypeVar("T")

WARM_UP_STEPS = 5
"""Number of steps after a start that say nothing about the pace: kernels are compiled, caches
filled."""

BLOCK = 20.0
"""How many times a step or a cell, whichever is shorter, the time must last over which steps are
counted: the step time is then known to some 2 %."""
IDLE_SHARE = 0.75
"""Share of its usual level below which a GPU's power is a dip."""
TOP_LEVEL = 0.97
"""Quantile of a GPU's power that is its power at work, even in a job that stood still most of the
time."""


UNIFORM = 0.8
"""Share of the hosts that must show something together for it to be what all of them share."""


def everywhere(some: int, hosts: int) -> bool:
    """Whether so many of the hosts are as good as all: then none of them is to blame."""
    return hosts > 1 and some >= UNIFORM * hosts


class DiagnoseOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the user states beside the source."""

    window: tuple[float, float] | None = None
    accused: tuple[str, ...] = ()
    """Hosts that a heartbeat timeout accused."""
    coordinator: str = ""
    crash_at: float | None = None
    heartbeat_timeout: float | None = None
    checkpoint_period: float | None = None
    failed_checkpoint: float | None = None
    """The step whose checkpoint failed."""
    now: float | None = None
    """The time of the query in Unix seconds, which shows whether the job may still run."""


class JobCase:
    """Facts of one job over one view."""

    def __init__(
        self, view: View, logs: LogFacts | None = None, options: DiagnoseOptions | None = None
    ) -> None:
        self.view = view
        self.logs = logs or LogFacts()
        self.options = options or DiagnoseOptions()
        self.ghosts = view.hidden = trust.ghosts(view)
        self._found: dict[Callable[[JobCase], Any], Any] = {}

    @property
    def times(self) -> Floats:
        """The axis of all panels (T,)."""
        return self.view.times

    @property
    def cell(self) -> float:
        """Seconds of one cell."""
        return self.view.step

    @cached_property
    def _presence(self) -> tuple[tuple[str, ...], Bools]:
        return trust.presence(self.view)

    @property
    def hosts(self) -> tuple[str, ...]:
        """All hosts, sorted."""
        return self._presence[0]

    @property
    def present(self) -> Bools:
        """(H, T) where a host has any sample."""
        return self._presence[1]

    @cached_property
    def line(self) -> Timeline:
        """The job's progress."""
        return timeline.build(
            self.view.panel("train.step"),
            self.view.panel("train.step_time"),
            self.present,
            self.times,
        )

    @cached_property
    def superseded(self) -> Bools:
        """(T,) cells whose steps were repeated after a restart."""
        return timeline.superseded(self.line, self.times)

    @cached_property
    def recorded_durations(self) -> Floats:
        """(T,) step times where a step ended, otherwise NaN; all NaN if they are not recorded."""
        panel = self.view.panel("train.step_time")
        if panel.empty:
            return np.full(self.times.size, np.nan)
        slowest = stats.largest(panel.values, 0)
        if self.line.advances.size:
            # A value that is only carried on after the last step is not a new one.
            slowest = np.where(self.times <= (self.line.last_progress or 0.0), slowest, np.nan)
        return slowest

    @property
    def durations(self) -> Floats:
        """(T,) step times as they are recorded, or else as counted from the steps that were
        done."""
        recorded = not self.view.panel("train.step_time").empty
        return self.recorded_durations if recorded else self.counted_durations[0]

    @cached_property
    def counted_durations(self) -> tuple[Floats, Bools]:
        """(T,) seconds a step took in steady training, by how far the steps rose, and the first
        cell of each block of cells that has one value.

        The step is read once a cell: of two readings it is known only to a step, or to a cell, how
        far apart they are. So a block is so long that this hardly matters.
        """
        values, first = np.full(self.times.size, np.nan), np.zeros(self.times.size, dtype=bool)
        line = self.line
        usual = line.step_seconds if np.isfinite(line.step_seconds) else self.cell
        least = BLOCK * min(usual, self.cell)
        for left, right in stats.runs(self.steady):
            inside = (line.advances >= self.times[left]) & (line.advances <= self.times[right - 1])
            at, steps = line.advances[inside], line.steps[inside]
            begin = 0
            for end in range(1, at.size):
                if at[end] - at[begin] < least:
                    continue
                if steps[end] > steps[begin]:
                    cells = (self.times > at[begin]) & (self.times <= at[end])
                    values[cells] = (at[end] - at[begin]) / (steps[end] - steps[begin])
                    first[int(np.argmax(cells))] = True
                begin = end
        return values, first

    @cached_property
    def activity(self) -> Floats:
        """(T,) the job's GPU power over its own usual level at work; NaN without power."""
        power = self.view.panel("gpu.power")
        if power.empty:
            return np.full(self.times.size, np.nan)
        usual = stats.quantile(power.values, TOP_LEVEL, axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            return stats.median(power.values / usual[:, None], axis=0)

    @cached_property
    def saving(self) -> Bools:
        """(T,) the signature of a checkpoint: GPUs below their level while storage is busy."""
        busy = np.zeros(self.times.size, dtype=bool)
        for key, least in (("io.full", 3.0), ("io.some", 5.0), ("io.dirty", 256 << 20),
                           ("host.procs_blocked", 3.0)):  # fmt: skip
            panel = self.view.panel(key)
            if panel.empty:
                continue
            top = stats.largest(panel.values, 0)
            usual, noise = stats.middle(top), float(stats.sigma(top))
            busy |= top > max(usual + 5 * noise, usual + least)
        idle = self.activity < IDLE_SHARE
        if np.isnan(self.activity).all():
            return busy
        return busy & idle

    @cached_property
    def checkpoints(self) -> tuple[CheckpointPause, ...]:
        """The checkpoints that were recognised."""
        slow = checkpoints.slow_steps(self.line, self.recorded_durations, self.times)
        period = self.options.checkpoint_period or self.logs.checkpoint_period
        return checkpoints.find(slow, self.line, self.saving, self.times, period)

    @cached_property
    def checkpoint_cells(self) -> Bools:
        """(T,) cells that a checkpoint may have touched."""
        return checkpoints.cells(self.checkpoints, self.times, self.line.step_seconds)

    @cached_property
    def training(self) -> Bools:
        """(T,) cells in which steps are done, outside stalls; judged by power if there are no
        steps."""
        if not self.line.trained:
            return np.asarray(self.activity > IDLE_SHARE)
        first, last = float(self.line.advances[0]), self.line.last_progress or 0.0
        cells = (self.times >= first) & (self.times <= last)
        for stall in self.line.stalls:
            cells &= ~((self.times > stall.start + self.cell) & (self.times < stall.end))
        return cells

    @cached_property
    def steady(self) -> Bools:
        """(T,) training, apart from checkpoints and the first steps after each start."""
        cells = self.training & ~self.checkpoint_cells
        line = self.line
        begins = [*line.restarts, *line.advances[:1].tolist()]
        for begin in begins:
            # The first steps compile and warm caches.
            first = int(np.searchsorted(line.advances, begin))
            settled = float(line.advances[min(first + WARM_UP_STEPS, line.advances.size - 1)])
            cells &= ~((self.times >= begin) & (self.times <= settled + self.cell))
        return cells if cells.any() else self.training

    def once(self, find: Callable[[JobCase], T]) -> T:
        """The result of ``find`` for this case, computed at the first call."""
        if find not in self._found:
            self._found[find] = find(self)
        return cast("T", self._found[find])

    def cell_of(self, moment: float) -> int:
        """The cell that a moment falls into."""
        return int(np.clip(np.searchsorted(self.times, moment), 0, self.times.size - 1))

    def promql(self, key: str) -> str:
        """The query for a quantity, over all its series."""
        return self.view.panel(key).promql()
