"""One version of a collector: its code, its process, its schedule, and its last result."""

from __future__ import annotations

import math

from ray_sentinel.collect import protocol
from ray_sentinel.collect.child_registry import ChildRecord, remaining
from ray_sentinel.collect.runner_context import CollectorConfig, RunnerContext
from ray_sentinel.collect.schedule import Schedule, ScheduleStep, Timing
from ray_sentinel.collect.worker import CollectorProcess
from ray_sentinel.errors import SentinelError
from ray_sentinel.model.metrics import Event, Family

# The last result of a version of a collector, and how long it holds.

KEPT_INTERVALS = 3
"""Intervals for which families are kept: older values would be wrong."""


class LastResult:
    """The result of the last run, and the families of the last good one."""

    def __init__(self) -> None:
        self.tried = False
        """Whether a run has ended, well or not."""
        self.success: bool | None = None
        self.seconds: float | None = None
        self.last_success: float | None = None
        """Unix seconds."""
        self.families: tuple[Family, ...] = ()
        """What may be served now."""
        self.problems: tuple[str, ...] = ()
        self.error = ""
        """What the last run raised."""
        self.misconfigured = False
        """Whether the last run failed because of its settings."""
        self.outcome: protocol.Outcome | None = None
        """The outcome of the last run that was answered."""
        self._last_families: tuple[Family, ...] = ()
        """The last families: "nothing new" means that they still hold."""
        self._fresh_at = 0.0

    def answered(self, answer: protocol.RunAnswer, now: float, wall: float) -> None:
        """A run ended by itself, at ``now`` (monotonic) or ``wall`` (Unix seconds)."""
        self.tried, self.misconfigured = True, answer.misconfigured
        self.outcome, self.problems = answer.outcome, answer.problems
        if answer.outcome == "skip":
            self.success, self.families = None, ()
        elif answer.outcome in ("ok", "nodata", "absent"):
            self.success, self.error = True, ""
            self.last_success, self._fresh_at = wall, now + answer.pause
            if answer.outcome != "nodata":
                self._last_families = answer.families
            self.families = self._last_families
        else:
            self.failed(answer.message)

    def failed(self, why: str) -> None:
        """A run failed, or its process did."""
        self.tried, self.success, self.error = True, False, why

    def inherit(self, older: LastResult) -> None:
        """Take over the families of the previous version, if this one had nothing new."""
        if self.outcome == "nodata":
            self.families = self._last_families = older._last_families

    @property
    def gist(self) -> tuple[bool | None, tuple[str, ...], tuple[Family, ...]]:
        """The result without its time and duration."""
        return (self.success, self.problems, self.families)

    def expiry(self, interval: float) -> float:
        """When the families become too old (monotonic seconds); infinity if there are none."""
        return self._fresh_at + KEPT_INTERVALS * interval if self.families else math.inf

    def complaint(self) -> str:
        """The problem of the last run; empty if there was none."""
        if self.success is False:
            return self.error
        more = f" (and {len(self.problems) - 1} more)" if len(self.problems) > 1 else ""
        return self.problems[0] + more if self.problems else ""


CLOSE_GRACE = 1.0
"""Seconds that a collector has to close what it holds before its process is killed."""
_SHORTEST, _LONGEST = 0.05, 86_400.0


class Version:
    """Runs one version. ``step`` is called when it is due; messages come through the selector."""

    def __init__(
        self,
        source: protocol.CollectorSource,
        settings: CollectorConfig,
        around: RunnerContext,
        leftovers: tuple[ChildRecord, ...] = (),
        wait: float = 0.0,
    ) -> None:
        """``leftovers`` are processes of an earlier runner that could not be killed. The process is
        started after ``wait`` seconds."""
        self.source = source
        self._leftovers = leftovers
        self._settings, self._around = settings, around
        timing = Timing(
            interval=settings.interval or 10.0,
            deadline=settings.deadline or 5.0,
            start_deadline=around.start_deadline,
        )
        left = sum(remaining(record) for record in leftovers)
        self.schedule = Schedule(around.clock.monotonic() + wait, timing, left)
        self.last = LastResult()
        self.held_events: list[Event] | None = None
        """Events wait here while the version is on trial."""
        self.changed = False
        """Whether its families or its status have changed since this was last set to False."""
        self._worker: CollectorProcess | None = None
        self._asked_at = 0.0
        self._sequence = 0
        self._wants_cluster = False
        self._retired = False
        self._patience_until = 0.0
        """Until then (monotonic seconds) a process that was told to end may do so by itself."""

    @property
    def at(self) -> float:
        """When ``step`` has something to do next (monotonic seconds)."""
        at = self.schedule.at
        return min(at if at is not None else math.inf, self._expiry())

    @property
    def finished(self) -> bool:
        """Whether it was retired, and nothing of it is left."""
        return self._retired and self._worker is None

    @property
    def over(self) -> bool:
        """Whether it was retired, and what may be left of it cannot be ended."""
        return self.finished or (self._retired and self.schedule.phase == "stuck")

    @property
    def skipped(self) -> str:
        """Why it asked to be left out; empty if it did not."""
        return self.schedule.message if self.last.outcome == "skip" else ""

    @property
    def judgeable(self) -> bool:
        """Whether a run, or the process, has ended, well or not, and how is known."""
        return self.last.tried and self.schedule.phase != "ending"

    def release_events(self) -> None:
        """The trial is over: pass on the events that were held back, and later ones at once."""
        held, self.held_events = self.held_events, None
        if held:
            self._around.on_events(tuple(held))

    def message(self) -> str:
        """Why it does not work; empty if it does."""
        if self.schedule.state in ("skipped", "quarantined", "stuck"):
            return self.schedule.message or self.last.error
        return self.last.complaint()

    def step(self, now: float, *, may_ask: bool = True) -> None:
        """Do what is due."""
        if now >= self._expiry():
            self.last.families, self.changed = (), True
        if not may_ask and self.schedule.phase == "ready":
            return
        step = self.schedule.step(now)
        if step is None:
            return
        self.changed = self.changed or step is not ScheduleStep.ASK
        if step is ScheduleStep.SPAWN:
            self._spawn(now)
        elif step is ScheduleStep.ASK:
            self._ask(now)
        elif step is ScheduleStep.KILL:
            self._failed(self.schedule.message)
            self._kill()
        elif step is ScheduleStep.CHECK:
            self._check(now)

    def retire(self, now: float) -> None:
        """End the process for good, letting it close if it can; ``finished`` says when that is
        complete."""
        if self._retired:
            return
        self._retired = True
        in_peace = self.schedule.phase in ("ready", "running")
        self.schedule.retire(now)
        if self._worker is not None and in_peace:
            self._patience_until = now + CLOSE_GRACE
            self._worker.send(protocol.StopCollector())
        else:
            self._kill()

    def log(self, text: str) -> None:
        """Write a line to the collector's log."""
        self._around.write_log(self.source.name, text)

    def _spawn(self, now: float) -> None:
        around = self._around
        try:
            self._worker = CollectorProcess(
                around.setup(self.source, self._settings),
                on_message=self._on_message,
                on_closed=self._on_closed,
                log=self.log,
                selector=around.selector,
                children=around.children,
                environ=around.environ,
            )
        except (OSError, SentinelError) as error:
            self.schedule.not_spawned(now, f"its process cannot be started: {error}")
            self._failed(self.schedule.message)
            return
        self.schedule.spawned(now)
        self.log(f"[runner] started process {self._worker.pid}")

    def _ask(self, now: float) -> None:
        if self._worker is None:
            return
        self._sequence += 1
        self._asked_at = now
        deadline = self.schedule.timing.deadline
        self._worker.send(
            protocol.Ask(
                sequence=self._sequence,
                deadline=deadline,
                ranks=self._around.ranks,
                handed_on=self._around.handed_on,
                cluster=self._around.cluster() if self._wants_cluster else None,
            )
        )
        self.schedule.asked(now)

    def _check(self, now: float) -> None:
        worker = self._worker
        if worker is not None and worker.gone():
            self.log(f"[runner] process {worker.pid} {worker.epitaph()}")
            self._worker = None
        left = sum(remaining(record) for record in self._leftovers)
        if self._worker is None and not left:
            self._leftovers = ()
            self.schedule.ended(now, f"its process {worker.epitaph()}" if worker else "")
            return
        if now >= self._patience_until:
            self._kill()
        self.schedule.still_alive(now, left + (self._worker.remaining() if self._worker else 0))

    def _kill(self) -> None:
        if self._worker is not None:
            self._worker.kill()

    def _on_message(self, message: protocol.FromChild) -> None:
        phase, before = self.schedule.phase, self.last.gist
        if isinstance(message, protocol.Happened):
            if self.held_events is not None:
                self.held_events.extend(message.events)
            else:
                self._around.on_events(message.events)
        elif isinstance(message, protocol.Hello) and phase == "starting":
            self._wants_cluster = message.wants_cluster
            self.schedule.hello(self._around.clock.monotonic(), self._timing(message))
        elif isinstance(message, protocol.RunAnswer) and message.sequence == self._expected(phase):
            self._on_answer(message)
        # One that is asked each second answers the same for days: that need not be served again.
        quiet = phase == "running" and self.last.success and self.last.gist == before
        self.changed = self.changed or not quiet

    def _expected(self, phase: str) -> int | None:
        return {"starting": 0, "running": self._sequence}.get(phase)

    def _on_answer(self, answer: protocol.RunAnswer) -> None:
        now = self._around.clock.monotonic()
        if answer.sequence:
            self.last.seconds = now - self._asked_at
        step = self.schedule.answered(now, answer.outcome, answer.message, answer.pause)
        self.last.answered(answer, now, self._around.clock.now())
        if answer.outcome == "skip":
            # It closes what it holds, and ends by itself.
            self._patience_until = now + CLOSE_GRACE
            self.log(f"[runner] left out: {answer.message}")
        elif not self.last.success:
            self._log_failure(answer.message)
        if step is ScheduleStep.KILL and answer.outcome != "skip":
            self._kill()

    def _on_closed(self, why: str) -> None:
        where = self._worker.where() if self._worker is not None else ""
        step = self.schedule.closed(self._around.clock.monotonic(), why, where)
        if step is ScheduleStep.KILL:
            self.changed = True
            self._failed(self.schedule.message)
            self._kill()

    def _failed(self, why: str) -> None:
        self.last.failed(why)
        self._log_failure(why)

    def _log_failure(self, why: str) -> None:
        self.log(f"[runner] failed: {why or 'its process has ended'}")

    def _timing(self, hello: protocol.Hello) -> Timing:
        return Timing(
            interval=_sane(hello.interval, 10.0),
            deadline=_sane(hello.deadline, 5.0),
            start_deadline=self._around.start_deadline,
        )

    def _expiry(self) -> float:
        return self.last.expiry(self.schedule.timing.interval)


def _sane(seconds: float, usual: float) -> float:
    if not math.isfinite(seconds) or seconds <= 0:
        return usual
    return min(max(seconds, _SHORTEST), _LONGEST)
