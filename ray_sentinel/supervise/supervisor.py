"""The loop that feeds a ``Course`` and carries out what it asks for."""

from __future__ import annotations

import os
import queue
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO

import msgspec

from ray_sentinel.clock import Clock, SystemClock
from ray_sentinel.errors import SentinelError
from ray_sentinel.progress import pidfd
from ray_sentinel.supervise import course as states
from ray_sentinel.supervise.choose import choose
from ray_sentinel.supervise.command import filled, resolved, variables
from ray_sentinel.supervise.course import Action, Course, Event, Result
from ray_sentinel.supervise.folder import Folder, State, Told
from ray_sentinel.supervise.keeper import KILL_SECONDS, LEFT_GRACE, Order
from ray_sentinel.supervise.launch import signal_process, start_keeper
from ray_sentinel.supervise.movement import Movement
from ray_sentinel.supervise.parts import Parts, Sighting
from ray_sentinel.supervise.policy import Checkpoint, Failure, Policy
from ray_sentinel.supervise.tail import Tail

LOOK_SECONDS = 0.25
WATCH_SECONDS = 2.0
SCAN_SECONDS = 15.0
EXPLAIN_SECONDS = 60.0
"""A log or checkpoint folder that does not answer for so long hangs."""
STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2)


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be run, and where its files are."""

    argv: tuple[str, ...]
    job: str
    folder: Path
    checkpoint_dirs: tuple[Path, ...] = ()
    cwd: str = ""
    environ: dict[str, str] = {}
    max_output: int = 256 << 20
    """Bytes of one output file; there are two for each attempt."""


class Supervisor:
    """Supervises one task. ``run`` blocks; signals are caught in the main thread only."""

    def __init__(
        self,
        task: Task,
        policy: Policy,
        parts: Parts,
        *,
        terminal: BinaryIO | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._task, self._policy, self._parts = task, policy, parts
        self._terminal = terminal
        self._clock = clock or SystemClock()
        self._folder = Folder(task.folder)
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._course = Course(policy)
        self._tail: Tail | None = None
        self._movement = Movement(policy, self._clock.now())
        self._state: State | None = None
        self._started = False
        self._ending_since: float | None = None
        self._busy: set[str] = set()
        self._due: dict[str, float] = {}
        self._saved: Checkpoint | None = None
        self._result: Result | None = None
        self._explaining_since: float | None = None
        self._stopping = False

    def run(self) -> Result:
        """Until it is over. Raises UsageError where the command cannot be started at all."""
        resolved(self._task.argv, self._task.environ)
        self._folder.lock()
        before = self._catch_signals()
        try:
            self._do(self._course.resume() if self._take_back() else self._course.begin())
            while self._result is None:
                self._turn()
            return self._result
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            if self._tail is not None:
                self._tail.close()
            self._folder.unlock()

    def _catch_signals(self) -> dict[int, Any]:
        if threading.current_thread() is not threading.main_thread():
            return {}

        def stop(number: int, frame: FrameType | None) -> None:
            self._stopping = True
            self._events.put(states.StopAsked(time=self._clock.now(), signal=number))

        def pass_on(number: int, frame: FrameType | None) -> None:
            if self._state is not None and self._state.child:
                signal_process(self._state.child, self._state.child_start, number)

        before: dict[int, Any] = {number: signal.signal(number, stop) for number in STOPPING}
        return before | {number: signal.signal(number, pass_on) for number in PASSED_ON}

    def _take_back(self) -> bool:
        """Whether an earlier life of the supervisor was killed over an attempt."""
        told = self._folder.told()
        if told is None:
            return False
        if told.result is not None:
            self._course.ledger.attempt = told.ledger.attempt + 1
            return False
        self._course = Course(self._policy, told.ledger)
        state = self._folder.state(told.ledger.attempt)
        if state is None:
            return False
        if told.argv != self._task.argv and state.ended_at is None:
            self._parts.say(f"what runs is: {' '.join(told.argv)}")
        self._parts.say(f"taking back attempt {told.ledger.attempt}, pid {state.child}")
        self._follow(told.ledger.attempt, state, from_end=True)
        return True

    def _turn(self) -> None:
        """One look at everything."""
        try:
            event = self._events.get(timeout=LOOK_SECONDS)
        except queue.Empty:
            event = states.Tick(time=self._clock.now())
        self._do(self._course.handle(event))
        if self._course.phase in ("starting", "running", "capturing", "ending"):
            self._look()

    def _feed(self, event: Event) -> None:
        self._do(self._course.handle(event))

    def _look(self) -> None:
        now = self._clock.now()
        if self._tail is not None and self._tail.look():
            self._movement.spoke(now)
        state = self._folder.state(self._course.ledger.attempt)
        if state is None:
            return
        self._state = state
        if not self._started and (state.child or state.problem):
            self._started = True
            self._feed(states.Started(time=state.started_at or now))
        if self._ended(state):
            self._on_end(state)
            return
        if self._course.phase in ("running", "capturing"):
            self._look_closer(state, now)
        self._see_whether_it_goes(state, now)

    def _look_closer(self, state: State, now: float) -> None:
        attempt, job = self._course.ledger.attempt, self._task.job
        if self._every("steps", 1.0, now):
            own = self._parts.steps(job, attempt)
            step = own if own is not None else self._tail.step if self._tail else None
            if self._movement.stepped(step, now) and step is not None:
                self._feed(states.Progressed(time=now, step=step))
        if self._task.checkpoint_dirs and self._every("scan", SCAN_SECONDS, now):
            self._aside("scan", self._scan)
        if self._parts.watch is not None and self._every("watch", WATCH_SECONDS, now):
            self._aside("watch", self._watch)
        if self._course.phase == "running" and (why := self._movement.stagnates(now)):
            self._feed(states.HangSeen(time=now, why=why))

    def _every(self, what: str, seconds: float, now: float) -> bool:
        if now < self._due.get(what, 0.0):
            return False
        self._due[what] = now + seconds
        return True

    def _aside(self, what: str, work: Callable[[], Event | None]) -> None:
        """Do it in a thread: it may hang, and then only it is missing."""
        if what in self._busy:
            return
        self._busy.add(what)

        def go() -> None:
            event: Event | None = None
            try:
                event = work()
            except (SentinelError, OSError) as error:
                self._parts.say(f"{what}: {error}")
                event = _fallback(what, self._clock.now(), str(error))
            finally:
                self._busy.discard(what)
                if event is not None:
                    self._events.put(event)

        threading.Thread(target=go, name=f"ray-sentinel-{what}", daemon=True).start()

    def _scan(self) -> Event | None:
        found = self._choice(frozenset()).checkpoint
        if found is None or (self._saved is not None and found.step <= self._saved.step):
            return None
        self._saved = found
        self._movement.saved(self._clock.now())
        return states.Saved(time=self._clock.now(), step=found.step)

    def _choice(self, without: frozenset[str]) -> Any:
        return choose(self._task.checkpoint_dirs, without, self._parts.scan)

    def _sighting(self) -> Sighting:
        if self._parts.watch is None:
            return Sighting()
        return self._parts.watch(self._task.job, self._course.ledger.attempt_started)

    def _watch(self) -> Event | None:
        sighting = self._sighting()
        now = self._clock.now()
        if sighting.bundle and self._course.phase == "capturing":
            self._parts.say(f"the evidence is in {sighting.bundle}")
            return states.Captured(time=now, bundle=sighting.bundle)
        if sighting.hang and self._course.phase == "running":
            return states.HangSeen(time=now, why=sighting.hang)
        return None

    def _ended(self, state: State) -> bool:
        return state.ended_at is not None or pidfd.has_ended(state.keeper, state.keeper_start)

    def _on_end(self, state: State) -> None:
        # Read again: it may have written its end between our two looks at it.
        state = self._folder.state(self._course.ledger.attempt) or state
        now = self._clock.now()
        if self._explaining_since is None:
            self._explaining_since = now
            self._first_sight_of_end(state)
        elif self._stopping or now - self._explaining_since > EXPLAIN_SECONDS:
            # Its files hang; what the exit alone says is enough.
            plain = None if state.code == 0 else Failure(kind="exit", text="it ended")
            self._feed(states.Exited(time=now, failure=plain))

    def _first_sight_of_end(self, state: State) -> None:
        if self._tail is not None:
            while self._tail.look():
                pass
            if self._tail.step is not None:
                self._feed(states.Progressed(time=self._clock.now(), step=self._tail.step))
        if state.stuck:
            self._feed(states.Unkillable(time=self._clock.now(), pid=state.stuck[0]))
            return
        for left in state.left:
            self._parts.say(f"left behind, and ended: {left}")
        folder = self._folder.attempt(self._course.ledger.attempt)

        def explain() -> Event:
            failure = self._parts.explain(folder, state)
            saved = self._last_saved()
            return states.Exited(time=self._clock.now(), failure=failure, last_saved=saved)

        self._aside("explain", explain)

    def _last_saved(self) -> float | None:
        if not self._task.checkpoint_dirs:
            return None
        found = self._choice(frozenset(self._course.ledger.left_out)).checkpoint
        return found.modified if found is not None else None

    def _see_whether_it_goes(self, state: State, now: float) -> None:
        most = self._policy.grace + LEFT_GRACE + 2 * KILL_SECONDS
        if self._ending_since is not None and now - self._ending_since > most:
            self._feed(states.Unkillable(time=now, pid=state.child))

    def _do(self, actions: Sequence[Action]) -> None:
        for action in actions:
            match action:
                case states.Say():
                    self._parts.say(action.text)
                    if action.event:
                        self._parts.notify(action.event, action.text)
                case states.Choose():
                    self._aside("choose", lambda action=action: self._offer(action.without))  # type: ignore[misc]
                case states.Launch():
                    self._launch(action)
                case states.Capture():
                    self._capture(action.why)
                case states.End():
                    self._end(action.signal)
                case states.Clear():
                    self._aside("clear", self._cleared)
                case states.Finish():
                    self._finish(action.result)
        if actions:
            self._keep()

    def _offer(self, without: frozenset[str]) -> Event:
        found = self._choice(without)
        now = self._clock.now()
        for text in found.skipped:
            self._parts.say(f"left out: {text}")
        ledger = self._course.ledger
        if found.checkpoint is None and ledger.attempt > 0:
            if without:
                text = f"none of {len(without)} checkpoints loads: {', '.join(sorted(without))}"
                return states.Offered(time=now, problem=text)
            if found.unreadable and (ledger.checkpoint or self._saved):
                why = "; ".join(found.unreadable)
                text = f"not restarted, because the checkpoints have vanished: {why}"
                return states.Offered(time=now, problem=text)
        return states.Offered(time=now, checkpoint=found.checkpoint)

    def _launch(self, action: states.Launch) -> None:
        folder = self._folder.attempt(action.attempt)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (folder / "state.json").unlink(missing_ok=True)
        task = self._task
        told = variables(task.job, action.attempt, action.checkpoint)
        argv = filled(task.argv, action.attempt, action.checkpoint)
        order = Order(
            argv=(resolved(task.argv, task.environ), *argv[1:]),
            environ={**task.environ, **told},
            cwd=task.cwd or os.getcwd(),
            grace=self._policy.grace,
            max_bytes=task.max_output,
        )
        start = f" from {action.checkpoint.path}" if action.checkpoint else ""
        self._parts.say(f"attempt {action.attempt} starts{start}")
        start_keeper(folder, order)
        self._follow(action.attempt, None)

    def _follow(self, attempt: int, state: State | None, *, from_end: bool = False) -> None:
        if self._tail is not None:
            self._tail.close()
        folder = self._folder.attempt(attempt)
        self._tail = Tail(folder, self._terminal, from_end=from_end)
        checkpoint = self._course.ledger.checkpoint
        start = checkpoint.step if checkpoint else 0
        self._movement = Movement(self._policy, self._clock.now(), start)
        self._state, self._started = state, False
        self._ending_since = self._explaining_since = None

    def _capture(self, why: str) -> None:
        state, attempt = self._state, self._course.ledger.attempt
        if state is None:
            self._events.put(states.Captured(time=self._clock.now()))
            return
        folder = self._folder.attempt(attempt)

        def take() -> Event | None:
            sighting = self._sighting()
            if sighting.hang and not sighting.bundle:
                return None  # the sentinel is capturing: its answer comes with the next look
            bundle = sighting.bundle or self._parts.capture(state, folder, why)
            if bundle:
                self._parts.say(f"the evidence is in {bundle}")
            return states.Captured(time=self._clock.now(), bundle=bundle)

        self._aside("capture", take)

    def _end(self, number: int) -> None:
        if self._ending_since is None:
            self._ending_since = self._clock.now()
        if self._state is not None:
            asked = signal.SIGINT if number == signal.SIGINT else signal.SIGTERM
            signal_process(self._state.keeper, self._state.keeper_start, asked)

    def _cleared(self) -> Event:
        problem = self._parts.clear(self._state) if self._state is not None else ""
        return states.Cleared(time=self._clock.now(), problem=problem)

    def _finish(self, result: Result) -> None:
        self._result = result
        event = "success" if result.success else "stopped" if result.stopped_by else "failed"
        self._parts.notify(event, result.reason)

    def _keep(self) -> None:
        told = Told(
            argv=self._task.argv,
            ledger=self._course.ledger,
            result=self._result,
            supervisor=os.getpid(),
        )
        if problem := self._folder.tell(told):
            self._parts.say(problem)


def _fallback(what: str, now: float, problem: str) -> Event | None:
    """The answer for a course that waits for one."""
    if what == "choose":
        return states.Offered(time=now, problem=problem)
    if what == "clear":
        return states.Cleared(time=now, problem=problem)
    return states.Captured(time=now) if what == "capture" else None
