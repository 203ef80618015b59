"""The loop that feeds a ``RestartStateMachine`` with events and carries out its actions."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

import msgspec

from ray_sentinel import process, signals
from ray_sentinel.clock import Clock, KeptMoment, Moment, SystemClock, moment
from ray_sentinel.errors import SentinelError, UsageError
from ray_sentinel.masking import mask_argv
from ray_sentinel.private_files import opener
from ray_sentinel.progress.discovery.environment import ROLE_VARIABLE
from ray_sentinel.progress.proc import pidfd
from ray_sentinel.progress.rank.own_process import start_ticks
from ray_sentinel.supervise import actions, events
from ray_sentinel.supervise.actions import RunResult, SupervisorAction
from ray_sentinel.supervise.attempt.command import current_folder, filled, resolved, variables
from ray_sentinel.supervise.attempt.keeper import KILL_SECONDS, LEFT_GRACE, Order
from ray_sentinel.supervise.attempt.movement import AttemptMovement
from ray_sentinel.supervise.attempt.orphans import end_orphans
from ray_sentinel.supervise.attempt.tail import OutputTail
from ray_sentinel.supervise.attempt.terminal import Terminal
from ray_sentinel.supervise.checkpoints import Checkpoints
from ray_sentinel.supervise.events import Cleared, EvidenceSecured, Offered, SupervisorEvent
from ray_sentinel.supervise.json_records import encode
from ray_sentinel.supervise.parts import Parts, Sighting
from ray_sentinel.supervise.policy import Failure, Policy
from ray_sentinel.supervise.restart_state_machine import RestartStateMachine
from ray_sentinel.supervise.run_folder import STATE, RunFolder, State, Told
from ray_sentinel.supervise.task import RunTask
from ray_sentinel.whole_file import write_whole

# The signals that a supervisor is given: to stop, or for the command.

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2)


@contextlib.contextmanager
def caught(stop: Callable[[int], None], pass_on: Callable[[int], None]) -> Iterator[None]:
    """Call these with a signal's number until the block ends; in the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_stop(number: int, frame: FrameType | None) -> None:
        stop(number)

    def on_other(number: int, frame: FrameType | None) -> None:
        pass_on(number)

    # What nohup had ignored stays so: the run must outlive its terminal.
    stopping = [
        number
        for number in STOPPING
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN
    ]
    before = {
        **{number: signal.signal(number, on_stop) for number in stopping},
        **{number: signal.signal(number, on_other) for number in PASSED_ON},
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# Starting a keeper that outlives the supervisor.


def start_keeper(folder: Path, order: Order) -> None:
    """Start a keeper that survives the end of this process. Raises SentinelError, OSError."""
    environ: Mapping[str, str] = {**os.environ, ROLE_VARIABLE: "keeper"}
    reading, writing = os.pipe()
    try:
        with open(folder / "keeper.log", "ab", opener=opener) as log:
            keeper = process.spawn(
                process.python_module("ray_sentinel.supervise.attempt.keeper", str(folder)),
                stdin=reading,
                stdout=log,
                stderr=log,
                env=environ,
                outlives_us=True,
            )
    finally:
        os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        # Before the keeper may begin: when we are killed now, our next life must find it.
        state = State(keeper=keeper.pid, keeper_start=start_ticks(keeper.pid))
        write_whole(folder / STATE, encode(state))
        pipe.write(encode(order))


# Work that may hang, done in threads: then only its answer is missing.


class Aside:
    """Runs each kind of work at most once at a time, and passes its result to ``answer``, from its
    thread, with the attempt that it is about, which may have ended long before."""

    def __init__(
        self,
        answer: Callable[[int, SupervisorEvent], None],
        say: Callable[[str], None],
        clock: Clock,
    ) -> None:
        self._answer, self._say, self._clock = answer, say, clock
        self._busy: set[str] = set()

    def do(self, what: str, attempt: int, work: Callable[[], SupervisorEvent | None]) -> None:
        """Start the work, unless it is in progress."""
        if what in self._busy:
            return
        self._busy.add(what)

        def go() -> None:
            event: SupervisorEvent | None = None
            try:
                event = work()
            except (SentinelError, OSError) as error:
                self._say(f"{what}: {error}")
                event = _fallback(what, moment(self._clock), str(error))
            finally:
                self._busy.discard(what)
                if event is not None:
                    self._answer(attempt, event)

        threading.Thread(target=go, name=f"ray-sentinel-{what}", daemon=True).start()


def _fallback(what: str, now: Moment, problem: str) -> SupervisorEvent | None:
    """The answer for a course that waits for one."""
    if what == "choose":
        return Offered(time=now, problem=problem)
    if what == "clear":
        return Cleared(time=now, problem=problem)
    return EvidenceSecured(time=now) if what == "capture" else None


LOOK_SECONDS = 0.25
"""Seconds between two looks at the attempt if nothing happens."""
KEEPER_SECONDS = 1.0
"""Seconds between two checks whether the keeper lives."""
WATCH_SECONDS = 2.0
"""Seconds between two queries to the sentinel."""
SCAN_SECONDS = 15.0
"""Seconds between two searches for new checkpoints, which are on shared file systems."""
EXPLAIN_SECONDS = 60.0
"""Seconds after which a log or checkpoint folder that does not answer counts as hanging."""


class Supervisor:
    """Supervises one task. ``run`` blocks; signals are caught in the main thread only."""

    def __init__(
        self,
        task: RunTask,
        policy: Policy,
        parts: Parts,
        *,
        terminal: Terminal | None = None,
    ) -> None:
        self._task, self._policy, self._parts = task, policy, parts
        self._terminal = terminal
        self._clock = SystemClock()
        self._attempt_began = KeptMoment(self._clock)
        self._folder = RunFolder(task.folder)
        self._events: queue.SimpleQueue[tuple[int | None, SupervisorEvent]] = queue.SimpleQueue()
        """The attempt that it is about, if it is about one."""
        self._aside = Aside(self._answer, parts.say, self._clock)
        self._checkpoints = Checkpoints(task.checkpoint_dirs, parts.scan, parts.say, self._clock)
        self._machine = RestartStateMachine(policy)
        self._tail: OutputTail | None = None
        self._movement = AttemptMovement(policy, self._clock.monotonic())
        self._state: State | None = None
        self._started = False
        self._ending_since: float | None = None
        self._due: dict[str, float] = {}
        self._result: RunResult | None = None
        self._explaining_since: float | None = None
        self._stopping = False
        self._drained: set[str] = set()
        self._to_pass_on: deque[int] = deque()
        """Signals for the command, which may not run yet, or not again."""

    def run(self) -> RunResult:
        """Run until it is over. Raises UsageError if the command cannot be started at all."""
        resolved(self._task.argv, self._task.environ)
        self._folder.lock()
        try:
            with caught(self._stop, self._to_pass_on.append):
                self._do(self._machine.resume() if self._adopt_attempt() else self._machine.begin())
                while self._result is None:
                    self._turn()
                return self._result
        finally:
            if self._tail is not None:
                self._tail.close()
            self._folder.unlock()

    def _stop(self, number: int) -> None:
        self._stopping = True
        self._post(events.StopAsked(time=moment(self._clock), signal=number))

    def _pass_on(self, state: State) -> None:
        while state.child and self._to_pass_on:
            signals.send(state.child, state.child_start, self._to_pass_on.popleft())

    def _adopt_attempt(self) -> bool:
        """Follow the attempt that a killed supervisor left behind. Returns whether there is one."""
        told, running = self._folder.recorded(), self._folder.running()
        if told is not None and told.result is None:
            self._machine = RestartStateMachine(self._policy, told.ledger)
        ledger = self._machine.ledger
        if running is not None:
            # A ledger that could not be written, or read, does not know of it.
            ledger.attempt = running
        elif told is None or told.result is not None or told.argv != self._task.argv:
            # What ended was another run's, or its end was recorded.
            self._machine = RestartStateMachine(self._policy)
            self._machine.ledger.attempt = self._folder.next_attempt()
            return False
        state = self._folder.state(ledger.attempt)
        if state is None:
            return False
        if told is not None and told.argv != self._task.argv:
            self._parts.say(f"what runs is: {' '.join(mask_argv(told.argv))}")
        self._parts.say(f"taking back attempt {ledger.attempt}, pid {state.child}")
        self._follow(ledger.attempt, state, from_end=True)
        return True

    def _turn(self) -> None:
        """One look at everything."""
        try:
            about, event = self._events.get(timeout=LOOK_SECONDS)
        except queue.Empty:
            about, event = None, events.TimePassed(time=moment(self._clock))
        # An answer may be late, and its attempt over.
        if about in (None, self._machine.ledger.attempt):
            self._do(self._machine.handle(event))
        if self._machine.under_way:
            self._poll()

    def _run_in_background(self, what: str, work: Callable[[], SupervisorEvent | None]) -> None:
        self._aside.do(what, self._machine.ledger.attempt, work)

    def _answer(self, attempt: int, event: SupervisorEvent) -> None:
        self._events.put((attempt, event))

    def _post(self, event: SupervisorEvent) -> None:
        self._events.put((None, event))

    def _feed(self, event: SupervisorEvent) -> None:
        self._do(self._machine.handle(event))

    def _poll(self) -> None:
        now = self._clock.monotonic()
        if self._tail is not None and self._tail.poll():
            self._movement.spoke(now)
        state = self._folder.state(self._machine.ledger.attempt)
        if state is None:
            return
        self._state = state
        self._pass_on(state)
        if not self._started and (state.child or state.problem):
            self._started = True
            self._feed(events.AttemptStarted(time=self._start_of(state)))
        if self._ended(state):
            self._on_end(state)
            return
        if self._machine.phase in ("running", "capturing"):
            self._poll_running(now)
        self._check_unkillable(state, now)

    def _poll_running(self, now: float) -> None:
        if self._every("steps", 1.0, now):
            own = self._parts.steps(self._machine.ledger.attempt)
            step = own if own is not None else self._tail.step if self._tail else None
            if self._movement.stepped(step, now) and step is not None:
                self._feed(events.Progressed(time=moment(self._clock), step=step))
        if self._task.checkpoint_dirs and self._every("scan", SCAN_SECONDS, now):
            self._run_in_background("scan", self._scan)
        if self._parts.watch is not None and self._every("watch", WATCH_SECONDS, now):
            self._run_in_background("watch", self._watch)
        if self._machine.phase == "running" and (why := self._movement.stagnates(now)):
            self._feed(events.HangSeen(time=moment(self._clock), why=why))

    def _every(self, what: str, seconds: float, now: float) -> bool:
        if now < self._due.get(what, 0.0):
            return False
        self._due[what] = now + seconds
        return True

    def _scan(self) -> SupervisorEvent | None:
        found = self._checkpoints.later(tuple(self._machine.ledger.left_out))
        if found is None:
            return None
        self._movement.saved(self._clock.monotonic())
        return events.Saved(time=moment(self._clock), step=found.step)

    def _sighting(self) -> Sighting:
        if self._parts.watch is None:
            return Sighting()
        since = self._attempt_began.today(self._machine.ledger.attempt_started)
        found = self._parts.watch(since)
        if found.bad_nodes:
            self._post(events.NodesFound(time=moment(self._clock), nodes=found.bad_nodes))
        return found

    def _watch(self) -> SupervisorEvent | None:
        sighting = self._sighting()
        now = moment(self._clock)
        if sighting.bundle and self._machine.phase == "capturing":
            self._parts.say(f"the evidence is in {sighting.bundle}")
            return events.EvidenceSecured(time=now)
        if sighting.hang and self._machine.phase == "running":
            return events.HangSeen(time=now, why=sighting.hang)
        return None

    def _start_of(self, state: State) -> Moment:
        now = moment(self._clock)
        return msgspec.structs.replace(now, wall=state.started_at or now.wall)

    def _ended(self, state: State) -> bool:
        if state.ended_at is not None or self._explaining_since is not None:
            return True
        # It writes how the command ended; that it was killed itself is rare, and seen by looking.
        due = self._every("keeper", KEEPER_SECONDS, self._clock.monotonic())
        return due and pidfd.has_ended(state.keeper, state.keeper_start)

    def _on_end(self, state: State) -> None:
        # Read again: it may have written its end between our two looks at it.
        state = self._folder.state(self._machine.ledger.attempt) or state
        now = self._clock.monotonic()
        if self._explaining_since is None:
            self._explaining_since = now
            self._first_sight_of_end(state)
        elif self._stopping or now - self._explaining_since > EXPLAIN_SECONDS:
            # Its files hang; the exit status alone must do.
            plain = None if state.code == 0 else Failure(kind="exit", text="it ended")
            self._feed(events.Exited(time=moment(self._clock), failure=plain))

    def _first_sight_of_end(self, state: State) -> None:
        if self._tail is not None:
            while self._tail.poll():
                pass
            if self._tail.step is not None:
                self._feed(events.Progressed(time=moment(self._clock), step=self._tail.step))
        if state.stuck:
            self._feed(events.Unkillable(time=moment(self._clock), pid=state.stuck[0]))
            return
        for left in state.left:
            self._parts.say(f"left behind, and ended: {left}")
        folder = self._folder.attempt(self._machine.ledger.attempt)

        def explain() -> SupervisorEvent:
            if state.ended_at is None and (stuck := self._end_orphans(state)):
                return events.Unkillable(time=moment(self._clock), pid=stuck)
            self._sighting()  # what was confirmed since the last look
            failure = self._parts.explain(folder, state)
            saved = self._checkpoints.saved_at(tuple(self._machine.ledger.left_out))
            return events.Exited(time=moment(self._clock), failure=failure, last_saved=saved)

        self._run_in_background("explain", explain)

    def _end_orphans(self, state: State) -> int:
        """What a killed keeper could not end; the pid of one that did not go, else 0."""
        ledger = self._machine.ledger
        told = variables(self._task.job, ledger.attempt, None)
        marks = {name: told[name] for name in ("RAY_SENTINEL_JOB", "RAY_SENTINEL_ATTEMPT")}
        if where := self._task.environ.get("RAY_SENTINEL_LOG_DIR"):
            marks["RAY_SENTINEL_LOG_DIR"] = where
        there, stuck = end_orphans(marks, state.keeper_start)
        for one in there:
            self._parts.say(f"left behind, and ended: {one.pid} {one.command}")
        return stuck[0].pid if stuck else 0

    def _check_unkillable(self, state: State, now: float) -> None:
        most = self._policy.grace + LEFT_GRACE + 2 * KILL_SECONDS
        if self._ending_since is not None and now - self._ending_since > most:
            self._feed(events.Unkillable(time=moment(self._clock), pid=state.child))

    def _do(self, asked: Sequence[SupervisorAction]) -> None:
        for action in asked:
            match action:
                case actions.Announce():
                    self._parts.say(action.text)
                    if action.event:
                        self._parts.notify(action.event, action.text)
                case actions.Choose():
                    self._choose(action)
                case actions.Launch():
                    self._launch(action)
                case actions.SecureEvidence():
                    self._capture(action.why)
                case actions.EndAttempt():
                    self._end(action.signal)
                case actions.Clear():
                    self._run_in_background("clear", self._cleared)
                case actions.Finish():
                    self._finish(action.result)
        if asked:
            self._keep()

    def _choose(self, action: actions.Choose) -> None:
        self._run_in_background(
            "choose", lambda: self._checkpoints.offer(action, self._machine.ledger)
        )

    def _launch(self, action: actions.Launch) -> None:
        try:
            self._start(action)
        except SentinelError as error:
            if not self._machine.ledger.total_retries:
                raise
            # What it needs went away between two attempts, and may come back before the next.
            kind = "not-started" if isinstance(error, UsageError) else "exit"
            failure = Failure(kind=kind, text=str(error))
            self._post(events.Exited(time=moment(self._clock), failure=failure))

    def _start(self, action: actions.Launch) -> None:
        """Raises SentinelError."""
        folder = self._folder.new_attempt(action.attempt)
        task = self._task
        told = variables(task.job, action.attempt, action.checkpoint, action.without)
        argv = filled(task.argv, action.attempt, action.checkpoint, action.without)
        order = Order(
            argv=(resolved(task.argv, task.environ), *argv[1:]),
            environ={**task.environ, **told},
            cwd=task.cwd or str(current_folder()),
            grace=self._policy.grace,
            max_bytes=task.max_output,
        )
        start = f" from {action.checkpoint.path}" if action.checkpoint else ""
        self._parts.say(f"attempt {action.attempt} starts{start}")
        try:
            start_keeper(folder, order)
        except OSError as error:
            raise SentinelError(
                f"{folder}: no attempt can be started: {error.strerror}; free space, or name "
                "another place by RAY_SENTINEL_LOG_DIR"
            ) from None
        self._follow(action.attempt, None)

    def _follow(self, attempt: int, state: State | None, *, from_end: bool = False) -> None:
        if self._tail is not None:
            self._tail.close()
        folder = self._folder.attempt(attempt)
        self._tail = OutputTail(folder, self._terminal, from_end=from_end)
        checkpoint = self._machine.ledger.checkpoint
        start = checkpoint.step if checkpoint else 0
        self._movement = AttemptMovement(self._policy, self._clock.monotonic(), start)
        self._state, self._started = state, False
        self._ending_since = self._explaining_since = None

    def _capture(self, why: str) -> None:
        state, attempt = self._state, self._machine.ledger.attempt
        if state is None:
            self._post(events.EvidenceSecured(time=moment(self._clock)))
            return
        folder = self._folder.attempt(attempt)

        def secure() -> SupervisorEvent | None:
            sighting = self._sighting()
            if sighting.hang and not sighting.bundle:
                return None  # the sentinel is capturing: its answer comes with the next look
            bundle = sighting.bundle or self._parts.capture(state, folder, why)
            if bundle:
                self._parts.say(f"the evidence is in {bundle}")
            return events.EvidenceSecured(time=moment(self._clock))

        self._run_in_background("capture", secure)

    def _end(self, number: int) -> None:
        if self._ending_since is None:
            self._ending_since = self._clock.monotonic()
        if self._state is not None:
            asked = signal.SIGINT if number == signal.SIGINT else signal.SIGTERM
            signals.send(self._state.keeper, self._state.keeper_start, asked)

    def _cleared(self) -> SupervisorEvent:
        # A lost node is confirmed only after some silence: often after its attempt has ended.
        found = self._sighting().bad_nodes
        if self._parts.drain is not None:
            for node in (*self._machine.ledger.bad_nodes, *found):
                if node.host not in self._drained:
                    self._drained.add(node.host)
                    self._parts.say(self._parts.drain(node))
        problem = self._parts.clear(self._state) if self._state is not None else ""
        return events.Cleared(time=moment(self._clock), problem=problem)

    def _finish(self, result: RunResult) -> None:
        self._result = result
        event = "success" if result.success else "stopped" if result.stopped_by else "failed"
        self._parts.notify(event, result.reason)

    def _keep(self) -> None:
        told = Told(
            argv=self._task.argv,
            ledger=self._machine.ledger,
            result=self._result,
            supervisor=os.getpid(),
        )
        if problem := self._folder.record(told):
            self._parts.say(problem)
