"""The state machine of a supervised command: events in, actions out. Pure.

    choosing ──Offered──▶ starting ──Started──▶ running ──Exited──▶ waiting, or finished
                                                   │
                                                HangSeen
                                                   ▼
                                               capturing ──Captured──▶ ending ──Exited──▶ waiting

    waiting ──Tick──▶ clearing ──Cleared──▶ choosing

Only ``begin``, ``resume`` and ``handle`` change the state. Times come with the events: how long it
waits goes by the steady clock, what the ledger keeps by the other one.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from ray_sentinel.backoff import Backoff
from ray_sentinel.clock import Moment
from ray_sentinel.supervise.actions import (
    Announce,
    Choose,
    Clear,
    EndAttempt,
    Finish,
    Launch,
    RunResult,
    SecureEvidence,
    SupervisorAction,
)
from ray_sentinel.supervise.bad_nodes import BadNode, unknown
from ray_sentinel.supervise.curable import incurable
from ray_sentinel.supervise.events import (
    AttemptStarted,
    Cleared,
    EvidenceSecured,
    Exited,
    HangSeen,
    NodesFound,
    Offered,
    Progressed,
    Saved,
    StopAsked,
    SupervisorEvent,
    TimePassed,
    Unkillable,
)
from ray_sentinel.supervise.policy import Failure, Policy, ResumePoint

Phase = Literal[
    "choosing", "starting", "running", "capturing", "ending", "waiting", "clearing", "finished"
]


class SupervisionState(msgspec.Struct, kw_only=True):
    """What must survive the supervisor: kept on disk while none runs. Times are Unix seconds."""

    attempt: int = 0
    retries_left: int = 0
    total_retries: int = 0
    best_step: int | None = None
    time_lost: float = 0.0
    """Seconds lost to failures: from each failed attempt's last checkpoint, else its start, to the
    next launch."""
    attempt_started: float = 0.0
    failed_at: float | None = None
    last_saved: float | None = None
    checkpoint: ResumePoint | None = None
    saved: bool = False
    """Whether there was a checkpoint: if none is found any more, it was lost."""
    left_out: list[ResumePoint] = []
    """Checkpoints that do not load."""
    failures: list[Failure] = []
    """The failures since the last progress."""
    bad_nodes: list[BadNode] = []
    begun: float = 0.0
    """When the first attempt started; what was bad before that may have been mended."""


class RestartStateMachine:
    """One supervised command."""

    def __init__(
        self,
        policy: Policy,
        ledger: SupervisionState | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """``draw`` returns random numbers in [0, 1)."""
        self.policy = policy
        self.ledger = ledger or SupervisionState(retries_left=policy.max_retries)
        self.phase: Phase = "choosing"
        self._draw = draw
        self._step: int | None = None
        self._due = 0.0
        self._since = self._failed_at = -math.inf
        self._hang = ""
        self._stop: int | None = None

    @property
    def under_way(self) -> bool:
        """Whether an attempt was launched whose end was not seen yet."""
        return self.phase in ("starting", "running", "capturing", "ending")

    def begin(self) -> list[SupervisorAction]:
        """Start the first attempt."""
        return [self._choose()]

    def resume(self) -> list[SupervisorAction]:
        """Continue with an attempt that an earlier supervisor started, and that runs or has ended
        since."""
        self.phase = "starting"
        return []

    def handle(self, event: SupervisorEvent) -> list[SupervisorAction]:
        """Process one event. Returns the actions to carry out."""
        if self.phase == "finished":
            return []
        match event:
            case Offered():
                return self._offered(event)
            case AttemptStarted():
                return self._started(event)
            case Progressed() | Saved():
                return self._moved(event)
            case HangSeen() | EvidenceSecured():
                return self._hangs(event)
            case Exited():
                return self._exited(event)
            case NodesFound():
                return self._nodes_found(event.nodes, event.time.wall)
            case Unkillable():
                return self._unkillable(event)
            case StopAsked():
                return self._stop_asked(event)
            case Cleared():
                return self._cleared(event)
            case TimePassed():
                return self._tick(event)
        return []

    def _started(self, event: AttemptStarted) -> list[SupervisorAction]:
        self.phase = "running"
        self.ledger.attempt_started = event.time.wall
        self.ledger.begun = self.ledger.begun or event.time.wall
        return [] if self._stop is None else self._end()

    def _choose(self) -> Choose:
        self.phase = "choosing"
        return Choose(without=frozenset(self.ledger.left_out))

    def _offered(self, event: Offered) -> list[SupervisorAction]:
        if self._stop is not None:
            return self._stopped()
        if event.problem:
            return self._finish(False, event.problem)
        if self.ledger.failed_at is not None:
            lost_since = self.ledger.last_saved or self.ledger.attempt_started
            lost_since = max(lost_since, self.ledger.attempt_started)
            self.ledger.time_lost += max(0.0, event.time.wall - lost_since)
            self.ledger.failed_at = None
        self.ledger.checkpoint = event.checkpoint
        self.ledger.saved = self.ledger.saved or event.checkpoint is not None
        self._step = None
        self.phase = "starting"
        self.ledger.attempt_started = event.time.wall
        without = tuple(node.host for node in self.ledger.bad_nodes)
        return [Launch(attempt=self.ledger.attempt, checkpoint=event.checkpoint, without=without)]

    def _moved(self, event: Progressed | Saved) -> list[SupervisorAction]:
        if self.phase not in ("running", "capturing"):
            return []
        if isinstance(event, Progressed):
            self._step = event.step
            best = self.ledger.best_step
            self.ledger.best_step = event.step if best is None else max(best, event.step)
            return []
        self.ledger.saved = True
        start = self.ledger.checkpoint.step if self.ledger.checkpoint else -1
        if event.step > start and self.ledger.failures:
            # Saved progress: what failed before has been got past.
            self.ledger.failures.clear()
            self.ledger.retries_left = self.policy.max_retries
            return [Announce(text=f"step {event.step} is saved: the retry budget is full again")]
        return []

    def _nodes_found(self, nodes: Sequence[BadNode], now: float) -> list[SupervisorAction]:
        dated = [
            msgspec.structs.replace(one, at=now if one.at is None else one.at) for one in nodes
        ]
        ours = [one for one in dated if one.at is not None and one.at >= self.ledger.begun]
        new = unknown(ours, self.ledger.bad_nodes)
        if not new:
            return []
        self.ledger.bad_nodes += new
        text = "; ".join(f"bad node {one.host}: {one.why}" for one in new)
        return [Announce(text=text, event="bad-node")]

    def _hangs(self, event: HangSeen | EvidenceSecured) -> list[SupervisorAction]:
        if isinstance(event, EvidenceSecured):
            return self._end() if self.phase == "capturing" else []
        if self.phase != "running":
            return []
        self.phase = "capturing"
        self._since = event.time.steady
        self._hang = event.why
        return [Announce(text=f"hang: {event.why}", event="hang"), SecureEvidence(why=event.why)]

    def _unkillable(self, event: Unkillable) -> list[SupervisorAction]:
        text = f"pid {event.pid} hangs in the kernel and cannot be ended: reboot its node"
        return self._finish(False, text)

    def _end(self) -> list[SupervisorAction]:
        self.phase = "ending"
        return [EndAttempt(signal=self._stop or 15)]

    def _exited(self, event: Exited) -> list[SupervisorAction]:
        blamed = event.failure.nodes if event.failure is not None else ()
        return [*self._nodes_found(blamed, event.time.wall), *self._after(event)]

    def _after(self, event: Exited) -> list[SupervisorAction]:
        self.ledger.last_saved = event.last_saved
        self.ledger.saved = self.ledger.saved or event.last_saved is not None
        if self._stop is not None:
            return self._stopped()
        failure = event.failure
        if failure is None:
            # While its evidence is taken it may end after all.
            if not self._hang or self.phase == "capturing":
                return self._finish(True, "the command ended with status 0")
            failure = Failure(kind="hang", text=self._hang, step=self._step)
        elif self._hang:
            then = f"; then {failure.text}" if self.phase == "capturing" else ""
            text = self._hang + then
            failure = msgspec.structs.replace(failure, kind="hang", text=text, exception="")
        self._hang = ""
        step = self._step if failure.step is None else failure.step
        failure = msgspec.structs.replace(
            failure, step=step, began=step is not None or self._began(event)
        )
        if failure.kind == "soft-success":
            return self._finish(True, f"training was complete: {failure.text}")
        return self._failed(failure, event.time)

    def _began(self, event: Exited) -> bool:
        """Whether the attempt got through its start, even if none of its steps is known."""
        since, longest = self.ledger.attempt_started, self.policy.startup_threshold
        return (event.last_saved or 0.0) > since or 0.0 < longest < event.time.wall - since

    def _failed(self, failure: Failure, now: Moment) -> list[SupervisorAction]:
        ledger = self.ledger
        left_out = self._leave_out(failure)
        why = "" if self.policy.always_restart else incurable(failure, ledger.failures)
        ledger.failures.append(failure)
        ledger.failed_at = now.wall
        if why:
            return self._finish(False, f"not restarted, because {why}")
        if ledger.retries_left <= 0:
            restarts = "1 restart" if (most := self.policy.max_retries) == 1 else f"{most} restarts"
            text = f"given up after {restarts} without progress: "
            return self._finish(False, text + failure.text)
        ledger.retries_left -= 1
        ledger.total_retries += 1
        ledger.attempt += 1
        delay = self._delay(len(ledger.failures))
        self._failed_at, self._due = now.steady, now.steady + delay
        self.phase = "waiting"
        said = f"attempt {ledger.attempt - 1} failed ({failure.text}); restart in {delay:.0f} s"
        if ledger.bad_nodes:
            said += f", without {', '.join(node.host for node in ledger.bad_nodes)}"
        return [*left_out, Announce(text=said, event="restart")]

    def _leave_out(self, failure: Failure) -> list[SupervisorAction]:
        start = self.ledger.checkpoint
        if failure.kind != "checkpoint-load" or start is None:
            return []
        self.ledger.left_out.append(start)
        return [Announce(text=f"{start.path} does not load and is left out")]

    def _delay(self, failures: int) -> float:
        policy = self.policy
        backoff = Backoff(first=policy.retry_delay, most=policy.max_delay, jitter=policy.jitter)
        return backoff.delay(failures, self._draw)

    def _stop_asked(self, event: StopAsked) -> list[SupervisorAction]:
        first, self._stop = self._stop is None, event.signal
        if self.phase in ("running", "capturing", "ending"):
            # A second request while it ends does not wait for the grace.
            return self._end() if first else [EndAttempt(signal=9)]
        return [] if self.phase == "starting" else self._stopped()

    def _stopped(self) -> list[SupervisorAction]:
        return self._finish(False, f"stopped by signal {self._stop}")

    def _cleared(self, event: Cleared) -> list[SupervisorAction]:
        if self.phase != "clearing":
            return []
        if not event.problem:
            return [self._choose()]
        if event.time.steady - self._since > self.policy.clear_seconds:
            return self._finish(False, f"not restarted, because {event.problem}")
        self.phase = "waiting"
        self._due = event.time.steady + 2.0
        return []

    def _tick(self, event: TimePassed) -> list[SupervisorAction]:
        late = self.policy.capture_seconds
        if self.phase == "capturing" and event.time.steady - self._since > late:
            return [Announce(text=f"the capture did not end within {late:.0f} s"), *self._end()]
        if self.phase == "waiting" and event.time.steady >= self._due:
            if self._since < self._failed_at:
                self._since = event.time.steady
            self.phase = "clearing"
            return [Clear()]
        return []

    def _finish(self, success: bool, reason: str) -> list[SupervisorAction]:
        self.phase = "finished"
        result = RunResult(
            success=success,
            reason=reason,
            final_step=self.ledger.best_step if self._step is None else self._step,
            total_retries=self.ledger.total_retries,
            time_lost_seconds=self.ledger.time_lost,
            stopped_by=self._stop,
            bad_nodes=tuple(self.ledger.bad_nodes),
        )
        return [Finish(result=result)]
