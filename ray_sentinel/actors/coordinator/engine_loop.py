"""The engine and what surrounds it: a lock, the clock, the event log, and the path that its actions
take.

Events come from agents, from the reconciler, from tools and from a timer, on any thread; they are
handled one at a time.
"""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from operator import is_not
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ray_sentinel.actors.coordinator.event_log.log import MOST_STATE
from ray_sentinel.actors.coordinator.event_log.writer import LogWriter
from ray_sentinel.clock import Clock, SteadyClock
from ray_sentinel.engine.actions import AnyAction
from ray_sentinel.engine.engine import Engine
from ray_sentinel.engine.events import (
    AnyEvent,
    DumpAsked,
    MemoryShort,
    Resumed,
    SnapshotReceived,
    Tick,
)
from ray_sentinel.engine.last_hour.lanes_report import LanesPicture
from ray_sentinel.engine.last_hour.pulse_report import PulsePicture
from ray_sentinel.engine.last_hour.rank_gpus import rank_gpus
from ray_sentinel.engine.last_hour.rank_series import find_rank, rank_series
from ray_sentinel.engine.state import StateCut
from ray_sentinel.engine.status import StatusPicture
from ray_sentinel.engine.telemetry.gpu_map import gpu_map
from ray_sentinel.engine.telemetry.port_map import port_map
from ray_sentinel.engine.telemetry.series import HostRow
from ray_sentinel.masking import mask_record
from ray_sentinel.model.alert import Alert
from ray_sentinel.model.gpus import GpuMap, GpuQuantity, RankGpus
from ray_sentinel.model.identity import Rank
from ray_sentinel.model.incident import EvidenceItem, Incident, Milestone, Transition
from ray_sentinel.model.last_hour import (
    LanesReport,
    PulseMark,
    PulsePhase,
    PulseReport,
    RankAsked,
    RankSeries,
)
from ray_sentinel.model.ports import PortMap
from ray_sentinel.model.samples import StreamName, TableHeld
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.model.status import Status
from ray_sentinel.model.straggler import StragglerStatus

log = logging.getLogger(__name__)

T = TypeVar("T")
RECOVERY_GRACE = 3.0
"""Seconds after a restart in which agents find us again before silence counts."""


_CUT = (
    "the nodes' metrics take more than coordinator.series_bytes, {} MiB: less than their last half "
    "hour is known, and least of those that no rule reads"
)


class EngineLoop:
    """Owns the engine. ``feed`` may be called from any thread.

    Inside, all times are on ``clock``; what ``incidents`` and ``status`` give, and the incidents of
    actions, are on the wall clock.
    """

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        act: Callable[[AnyAction], None],
        folder: Path | None,
        max_log_bytes: int,
    ) -> None:
        """The log goes to ``folder``; without one nothing is stored."""
        self._engine = engine
        self._clock = clock if isinstance(clock, SteadyClock) else SteadyClock(clock)
        self._act = act
        self._lock = threading.RLock()
        self._last = 0.0
        self.begun = engine.now
        self.writer = LogWriter(
            folder,
            max_log_bytes,
            clock,
            waiting_bytes=engine.config.coordinator.log_waiting_bytes,
            clock_offset=self._clock.offset,
        )
        self._cut = _CUT.format(engine.config.coordinator.series_bytes >> 20)
        self._pending: tuple[AnyAction, ...] = ()
        self._hold_until = 0.0
        self.cycle_seconds: float | None = None
        """Seconds that the last tick took."""
        self.last_cycle: float | None = None
        """When it ended, on the monotonic clock."""

    def resume(self, pending: Iterable[AnyAction], *, restarted: bool = True) -> None:
        """Continue where an earlier coordinator was: ``pending`` are its unanswered requests. If
        this one was ``restarted``, the agents have a moment to find it again."""
        self._pending = tuple(pending)
        if restarted:
            self._hold_until = self._clock.now() + RECOVERY_GRACE
        if restarted or self._pending:
            self.feed(Resumed(time=self._clock.now()))

    def tick(self, agents_are_back: Callable[[], bool]) -> None:
        """Let time pass. After a restart, wait for ``agents_are_back``, or for a moment: until
        then, what looks like silence is the coordinator's own absence."""
        if self._clock.now() < self._hold_until and not agents_are_back():
            return
        # Unanswered requests are repeated once there are agents to ask.
        pending, self._pending = self._pending, ()
        for action in pending:
            self.act(action)
        begun = time.monotonic()
        self.feed(Tick(time=self._clock.now()))
        self.cycle_seconds = time.monotonic() - begun
        self.last_cycle = self._clock.monotonic()

    def feed(self, event: AnyEvent) -> int:
        """Handle one event at the current time, whatever time it was made with; time never goes
        back. Returns its number in the log."""
        if not isinstance(event, SnapshotReceived | Tick):
            # A snapshot's agent has masked it; what was read here has not been yet. Before the
            # lock: with the stacks of thousands of ranks it takes longer than the engine.
            event = mask_record(event)
        now = self._clock.now()
        with self._lock:
            self._last = max(self._last, now)
            event = msgspec.structs.replace(event, time=self._last)
            state = self._segment_state()
            actions = self._engine.handle(event)
            number = self.writer.put(event, state)
            for told in self._engine.events_of(actions):
                state = self._segment_state()
                self._engine.handle(told)
                self.writer.put(told, state)
            log_failures(self._engine)
            # Under the lock, so that actions keep the order of their events; it only queues them.
            for action in actions:
                self.act(action)
        return number

    def _segment_state(self) -> StateCut | None:
        """The state that a segment of the log begins with; None if the next event begins none."""
        if not self.writer.begins:
            return None
        # Copied, not packed: the log's thread does that, while the engine goes on.
        with collecting_later():
            return self._engine.state.cut(MOST_STATE, self._lock)

    def act(self, action: AnyAction) -> None:
        """Carry out an action that the engine requested now or before; its incident has times on
        the wall clock."""
        self._act(shown(action, self._clock.shift))

    def written(self, number: int) -> bool:
        """Whether the event with this number is in the log, or never will be."""
        return self.writer.done >= number

    def incidents(self) -> tuple[Incident, ...]:
        """All confirmed incidents, the newest last."""
        with self._lock:
            known = self._engine.incidents()
        return shown(known, self._clock.shift)

    def status(self) -> Status:
        """The state, its verdict, and the jobs."""
        with self._lock:
            picture = StatusPicture(self._engine.state, self._clock.now())
        return shown(picture.status(), self._clock.shift)

    def pulse(self) -> PulseReport:
        """The durations of steps and calls over the last hour."""
        with self._lock:
            picture = PulsePicture(self._engine.view, self._clock.now(), self._engine.alerts())
        return mask_record(shown(picture.report(), self._clock.shift))

    def lanes(self) -> LanesReport:
        """What ranks and roles did over the last hour."""
        with self._lock:
            picture = LanesPicture(self._engine.view, self._clock.now())
        return mask_record(shown(picture.report(), self._clock.shift))

    def gpus(self, quantity: GpuQuantity) -> GpuMap:
        """The newest values of all GPUs. The engine continues meanwhile."""
        telemetry = self._engine.view.telemetry
        return mask_record(gpu_map(telemetry, quantity, self._clock.now(), self._lock))

    def rank_gpus(self, quantity: GpuQuantity) -> RankGpus:
        """The newest value of each rank's GPU. The engine continues meanwhile."""
        found = rank_gpus(self._engine.view, quantity, self._clock.now(), self._lock)
        return mask_record(found)

    def ports(self) -> PortMap:
        """The RDMA ports. The engine continues meanwhile."""
        return mask_record(port_map(self._engine.view.telemetry, self._clock.now(), self._lock))

    def rank_series(self, asked: RankAsked) -> RankSeries | None:
        """The series that are held of one rank; None if there is no such rank."""
        with self._lock:
            view = self._engine.view
            rank = find_rank(view, asked)
            if rank is None:
                return None
            found = rank_series(view, rank, self._clock.now())
        return mask_record(shown(found, self._clock.shift))

    def rank(self, asked: RankAsked) -> Rank | None:
        """The rank that was asked for; None if there is no such rank."""
        with self._lock:
            found = find_rank(self._engine.view, asked)
            return found.rank if found is not None else None

    def dump(self, job: str, why: str, *, thorough: bool = False) -> tuple[Incident, ...]:
        """Capture a running job now, or all of them without a name. Returns the incidents that were
        created for it; none if no such job runs."""
        event = DumpAsked(time=self._clock.now(), job=job, why=why, thorough=thorough)
        with self._lock:
            # Under one lock, because the incidents of an event in between would be taken for this
            # one's.
            before = {one.id for one in self._engine.incidents()}
            self.feed(event)
            made = tuple(one for one in self._engine.incidents() if one.id not in before)
        return shown(made, self._clock.shift)

    def free_memory(self) -> str:
        """Make the engine drop data to save memory. Returns the part that gave some, "" if none
        can."""
        before = self.drop_counts
        self.feed(MemoryShort(time=self._clock.now()))
        after = self.drop_counts
        return next((part for part, times in after.items() if times > before.get(part, 0)), "")

    @property
    def drop_counts(self) -> dict[str, int]:
        """How often each part had to drop data."""
        with self._lock:
            return dict(self._engine.state.shed)

    def tables_of(self, node_id: str) -> dict[StreamName, TableHeld]:
        """Which keys of a node's series are known."""
        with self._lock:
            return self._engine.view.telemetry.held(node_id)

    @property
    def series_bytes(self) -> int:
        """Memory of the nodes' series."""
        with self._lock:
            return self._engine.view.telemetry.size

    def rows(self, until: dict[str, float], begin: float, seconds: float) -> Iterator[HostRow]:
        """``Telemetry.rows``, with times on the wall clock. The engine continues meanwhile."""
        shift = self._clock.shift
        telemetry = self._engine.view.telemetry
        for at, host, values in telemetry.rows(until, begin, seconds, self._lock):
            yield at + shift, host, values

    def learned_phases(self) -> dict[str, dict[str, tuple[float, ...]]]:
        """The learned durations of every job's phases: job → phase → seconds."""
        with self._lock:
            return self._engine.view.learned()

    def notes(self) -> tuple[str, ...]:
        """Problems with the engine or the log, and servers that have no ranks."""
        with self._lock:
            jobs = {job.job for job in self._engine.view.jobs.values()}
            failures = [
                f"{part} failed ({said}): the coordinator's log has the traceback"
                for part, said in self._engine.failures.told.items()
            ]
            cut = self._engine.view.telemetry.cut
            others = [a for a in self._engine.alerts() if a.job and a.job not in jobs]
        said = (f"{alert.job}: {alert.text}" for alert in others)
        failed = filter(None, (self.writer.reduced, self._cut if cut else ""))
        return (*failed, *failures, *self.writer.notes, *said)

    def close(self) -> None:
        """Write what is waiting."""
        self.writer.close()


@contextmanager
def collecting_later() -> Iterator[None]:
    """Postpone garbage collection. The block makes no garbage, but enough objects for the collector
    to search everything we hold, which takes longer than the block."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def log_failures(engine: Engine) -> list[str]:
    """Log what has failed in the engine since the last call, each part once. Returns a sentence on
    each."""
    said = []
    for part, failed in engine.failures.take_new().items():
        log.error("the engine failed in %s", part, exc_info=failed)
        failed.__traceback__ = None  # it would keep all that was known then
        said.append(f"the engine failed in {part} ({type(failed).__name__}: {failed})")
    return said


# Times as people see them: the engine's are on a steady clock, those shown on the wall clock. The
# two differ once the wall clock was set since the coordinator started; ``shift`` is their
# difference in seconds.

_TIMES: dict[type, tuple[str, ...]] = {
    Incident: ("suspected_at", "last_progress", "job_since", "confirmed_at", "resolved_at"),
    Transition: ("at",),
    Milestone: ("at",),
    EvidenceItem: ("at",),
    StackFact: ("at",),
    StragglerStatus: ("at",),
    Alert: ("since",),
    PulseReport: ("begin",),
    PulsePhase: ("start", "end"),
    PulseMark: ("at",),
    LanesReport: ("begin", "end"),
    RankSeries: ("begin", "end"),
}
"""The fields of records that are times on the engine's clock; 0 or None where one is not known."""


def shown(value: T, shift: float) -> T:
    """A record, or a tuple of records, with all times in it on the wall clock."""
    return _shown(value, shift) if shift else value


def _shown(value: Any, shift: float) -> Any:
    kind = type(value)
    if kind is tuple:
        parts = [_shown(part, shift) for part in value]
        return tuple(parts) if any(map(is_not, parts, value)) else value
    if not isinstance(value, msgspec.Struct):
        return value
    moved = {
        name: known + shift for name in _TIMES.get(kind, ()) if (known := getattr(value, name))
    }
    if isinstance(value, StragglerStatus):
        moved["heat"] = tuple((at + shift, cost) for at, cost in value.heat)
    elif isinstance(value, Incident):
        moved["clock_shift"] = value.clock_shift + shift
    for name in value.__struct_fields__:
        if name not in moved:
            held = getattr(value, name)
            if (told := _shown(held, shift)) is not held:
                moved[name] = told
    return msgspec.structs.replace(value, **moved) if moved else value
