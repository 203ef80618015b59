"""One version of a collector: its code, its process, its schedule, and what it last said."""

from __future__ import annotations

import math
import selectors
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from ray_sentinel.clock import Clock
from ray_sentinel.collect.ledger import Ledger, Record, remaining
from ray_sentinel.collect.protocol import (
    Answer,
    Ask,
    FromChild,
    Happened,
    Hello,
    Limits,
    Outcome,
    Setup,
    Source,
    Stop,
)
from ray_sentinel.collect.schedule import Schedule, Step, Timing
from ray_sentinel.collect.wishes import Wishes
from ray_sentinel.collect.worker import Handlers, Worker
from ray_sentinel.errors import SentinelError
from ray_sentinel.model.identity import Rank
from ray_sentinel.model.metrics import Event, Family

KEPT_INTERVALS = 3
"""Families older than so many intervals are dropped: a value served for ever would be a lie."""
CLOSE_GRACE = 1.0
"""Seconds that a collector has to close what it holds before its process is killed."""
_SHORTEST, _LONGEST = 0.05, 86_400.0


class Surroundings(msgspec.Struct, kw_only=True):
    """What all collectors of one runner share."""

    host: str
    clock: Clock
    selector: selectors.BaseSelector
    ledger: Ledger
    environ: Mapping[str, str]
    write_log: Callable[[str, str], None]
    """Takes a collector's name and a line."""
    on_events: Callable[[tuple[Event, ...]], None]
    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    dev: Path = Path("/dev")
    state_dir: Path | None = None
    log_dir: Path | None = None
    limits: Limits = Limits()
    start_deadline: float = 30.0
    live: bool = True
    ranks: tuple[Rank, ...] = ()
    handed_on: float | None = None


class Version:
    """Runs one version. ``step`` is called when it is due; messages come through the selector."""

    def __init__(
        self,
        source: Source,
        wishes: Wishes,
        around: Surroundings,
        leftovers: tuple[Record, ...] = (),
    ) -> None:
        """``leftovers`` are processes of an earlier runner that could not be killed."""
        self.source = source
        self._leftovers = leftovers
        self._wishes, self._around = wishes, around
        timing = Timing(
            interval=wishes.interval or 10.0,
            deadline=wishes.deadline or 5.0,
            start_deadline=around.start_deadline,
        )
        left = sum(remaining(record) for record in leftovers)
        self.schedule = Schedule(around.clock.monotonic(), timing, left)
        self.success: bool | None = None
        self.seconds: float | None = None
        self.last_success: float | None = None
        """Unix seconds."""
        self.families: tuple[Family, ...] = ()
        """What may be served now."""
        self._last_families: tuple[Family, ...] = ()
        """What it yielded last: "nothing new" means that it still holds."""
        self.problems: tuple[str, ...] = ()
        self.error = ""
        """What the last run raised."""
        self.held_events: list[Event] | None = None
        """Events wait here while the version is on trial."""
        self.outcome: Outcome | None = None
        """Of the last run that was answered."""
        self._tried = False
        self.changed = False
        """What is served or said of it is another than when this was last set to False."""
        self._worker: Worker | None = None
        self._fresh_at = 0.0
        self._asked_at = 0.0
        self._sequence = 0
        self._retired = False
        self._patience_until = 0.0
        """Until then a process that was told to end may do so by itself."""

    @property
    def at(self) -> float:
        """When ``step`` has something to do next (monotonic seconds)."""
        at = self.schedule.at
        expiry = self._expiry() if self.families else math.inf
        return min(at if at is not None else math.inf, expiry)

    @property
    def finished(self) -> bool:
        """It was retired, and nothing of it is left."""
        return self._retired and self._worker is None

    @property
    def over(self) -> bool:
        """It was retired, and what is left of it, if anything, cannot be ended."""
        return self.finished or (self._retired and self.schedule.phase == "stuck")

    @property
    def skipped(self) -> str:
        """Why it asked to be left out; empty if it did not."""
        return self.schedule.message if self.outcome == "skip" else ""

    @property
    def judgeable(self) -> bool:
        """A run has ended, well or not, or the process has, and it is known how."""
        return self._tried and self.schedule.phase != "ending"

    def inherit(self, older: Version) -> None:
        """What the version before yielded last still holds: this one had nothing new to say."""
        if self.outcome == "nodata":
            self.families = self._last_families = older._last_families

    def release_events(self) -> None:
        """The trial is over: pass on the events that waited, and those to come at once."""
        held, self.held_events = self.held_events, None
        if held:
            self._around.on_events(tuple(held))

    def message(self) -> str:
        """Why it is not well, or empty."""
        if self.schedule.state in ("skipped", "quarantined", "stuck"):
            return self.schedule.message or self.error
        if self.success is False:
            return self.error
        more = f" (and {len(self.problems) - 1} more)" if len(self.problems) > 1 else ""
        return self.problems[0] + more if self.problems else ""

    def step(self, now: float, *, may_ask: bool = True) -> None:
        """Do what is due."""
        if self.families and now >= self._expiry():
            self.families, self.changed = (), True
        if not may_ask and self.schedule.phase == "ready":
            return
        step = self.schedule.step(now)
        if step is None:
            return
        self.changed = True
        if step is Step.SPAWN:
            self._spawn(now)
        elif step is Step.ASK:
            self._ask(now)
        elif step is Step.KILL:
            self._failed(self.schedule.message)
            self._kill()
        elif step is Step.CHECK:
            self._check(now)

    def retire(self, now: float) -> None:
        """End the process for good, in peace if it can; ``finished`` tells when it is over."""
        if self._retired:
            return
        self._retired = True
        in_peace = self.schedule.phase in ("ready", "running")
        self.schedule.retire(now)
        if self._worker is not None and in_peace:
            self._patience_until = now + CLOSE_GRACE
            self._worker.send(Stop())
        else:
            self._kill()

    def restart(self, now: float) -> None:
        """Begin anew at once."""
        if self.schedule.restart(now) is Step.KILL:
            self._kill()

    def log(self, text: str) -> None:
        """Write a line to the collector's log."""
        self._around.write_log(self.source.name, text)

    def _spawn(self, now: float) -> None:
        around, wishes = self._around, self._wishes
        setup = Setup(
            source=self.source,
            host=around.host,
            proc=around.proc,
            sys=around.sys,
            dev=around.dev,
            options=wishes.options,
            interval=wishes.interval,
            deadline=wishes.deadline,
            state_dir=around.state_dir / self.source.name if around.state_dir else None,
            log_dir=around.log_dir,
            live=around.live,
            limits=around.limits,
        )
        handlers = Handlers(message=self._on_message, log=self.log, closed=self._on_closed)
        try:
            self._worker = Worker(
                setup,
                handlers,
                selector=around.selector,
                ledger=around.ledger,
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
            Ask(
                sequence=self._sequence,
                deadline=deadline,
                ranks=self._around.ranks,
                handed_on=self._around.handed_on,
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
        self.schedule.survived(now, left + (self._worker.remaining() if self._worker else 0))

    def _kill(self) -> None:
        if self._worker is not None:
            self._worker.kill()

    def _on_message(self, message: FromChild) -> None:
        phase = self.schedule.phase
        self.changed = True
        if isinstance(message, Happened):
            if self.held_events is not None:
                self.held_events.extend(message.events)
            else:
                self._around.on_events(message.events)
        elif isinstance(message, Hello) and phase == "starting":
            self.schedule.hello(self._around.clock.monotonic(), self._timing(message))
        elif isinstance(message, Answer) and message.sequence == self._expected(phase):
            self._on_answer(message)

    def _expected(self, phase: str) -> int | None:
        return {"starting": 0, "running": self._sequence}.get(phase)

    def _on_answer(self, answer: Answer) -> None:
        now = self._around.clock.monotonic()
        self._tried = True
        self.outcome = answer.outcome
        if answer.sequence:
            self.seconds = now - self._asked_at
        step = self.schedule.answered(now, answer.outcome, answer.message)
        self.problems = answer.problems
        if answer.outcome == "skip":
            # It closes what it holds, and ends by itself.
            self._patience_until = now + CLOSE_GRACE
            self.success, self.families = None, ()
            self.log(f"[runner] left out: {answer.message}")
        elif answer.outcome in ("ok", "nodata"):
            self.success, self.error = True, ""
            self.last_success = self._around.clock.now()
            self._fresh_at = now
            if answer.outcome == "ok":
                self._last_families = answer.families
            self.families = self._last_families
        else:
            self._failed(answer.message)
        if step is Step.KILL and answer.outcome != "skip":
            self._kill()

    def _on_closed(self, why: str) -> None:
        where = self._worker.where() if self._worker is not None else ""
        step = self.schedule.closed(self._around.clock.monotonic(), why, where)
        if step is Step.KILL:
            self.changed = True
            self._failed(self.schedule.message)
            self._kill()

    def _failed(self, why: str) -> None:
        self._tried = True
        self.success = False
        self.error = why
        self.log(f"[runner] failed: {why or 'its process has ended'}")

    def _timing(self, hello: Hello) -> Timing:
        return Timing(
            interval=_sane(hello.interval, 10.0),
            deadline=_sane(hello.deadline, 5.0),
            start_deadline=self._around.start_deadline,
        )

    def _expiry(self) -> float:
        return self._fresh_at + KEPT_INTERVALS * self.schedule.timing.interval


def _sane(seconds: float, usual: float) -> float:
    if not math.isfinite(seconds) or seconds <= 0:
        return usual
    return min(max(seconds, _SHORTEST), _LONGEST)
