"""The course of a supervised command: what follows from what."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
import pytest

from ray_sentinel.clock import FakeClock, Moment, moment
from ray_sentinel.supervise import actions, events
from ray_sentinel.supervise.actions import RunResult, SupervisorAction
from ray_sentinel.supervise.bad_nodes import BadNode
from ray_sentinel.supervise.policy import Failure, Policy, ResumePoint
from ray_sentinel.supervise.restart_state_machine import RestartStateMachine, SupervisionState

A = TypeVar("A", bound=SupervisorAction)


class Play:
    """A course, its clock, and checkpoints by step."""

    def __init__(
        self,
        *steps: int,
        ledger: SupervisionState | None = None,
        draw: float = 0.5,
        **policy: Any,
    ) -> None:
        self.clock = FakeClock()
        self.course = RestartStateMachine(
            Policy(**{"jitter": 0.0, **policy}), ledger, draw=lambda: draw
        )
        self.checkpoints = {f"/c/step_{step}": step for step in steps}
        self.launched: list[tuple[int, int | None]] = []
        """(attempt, step of its checkpoint)."""
        self.cleared = ""
        self.starts = True
        self.log: list[SupervisorAction] = []

    def begin(self) -> None:
        self._do(self.course.begin())

    def feed(self, kind: type[events.SupervisorEvent], **fields: Any) -> list[SupervisorAction]:
        asked = self.course.handle(kind(time=moment(self.clock), **fields))
        self._do(asked)
        return asked

    def _do(self, asked: list[SupervisorAction]) -> None:
        self.log += asked
        for action in asked:
            match action:
                case actions.Choose():
                    without = {one.path for one in action.without}
                    good = {p: s for p, s in self.checkpoints.items() if p not in without}
                    best = max(good, key=good.__getitem__, default=None)
                    found = ResumePoint(path=best, step=good[best]) if best else None
                    problem = "" if found or not action.without else "none loads"
                    self.feed(events.Offered, checkpoint=found, problem=problem)
                case actions.Launch():
                    start = action.checkpoint.step if action.checkpoint else None
                    self.launched.append((action.attempt, start))
                    if self.starts:
                        self.feed(events.AttemptStarted)
                case actions.Clear():
                    self.feed(events.Cleared, problem=self.cleared)

    def fail(self, kind: str = "python-exception", **fields: Any) -> None:
        text = fields.pop("text", "it failed")
        self.feed(events.Exited, failure=Failure(kind=kind, text=text, **fields))

    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.feed(events.TimePassed)

    def until_done(self) -> RunResult:
        return self.last(actions.Finish).result

    def last(self, kind: type[A]) -> A:
        return [action for action in self.log if isinstance(action, kind)][-1]


def test_a_command_that_ends_well() -> None:
    play = Play()
    play.begin()
    play.feed(events.Progressed, step=30)
    play.feed(events.Exited, failure=None)
    result = play.until_done()
    assert (result.success, result.final_step, result.total_retries) == (True, 30, 0)


def test_a_crash_is_followed_by_a_restart_from_the_latest_checkpoint() -> None:
    play = Play(5, 10, retry_delay=10)
    play.begin()
    play.fail(exception="RuntimeError: x", step=12)
    assert play.course.phase == "waiting"
    play.wait(9)
    assert play.launched == [(0, 10)]
    play.wait(1.1)
    assert play.launched == [(0, 10), (1, 10)]


def test_the_delay_doubles_up_to_its_cap_and_is_drawn_within_the_jitter() -> None:
    play = Play(retry_delay=10, max_delay=60)
    play.begin()
    delays = []
    for attempt in range(5):
        play.fail(kind="node-fail")
        begun = play.clock.now()
        while len(play.launched) == attempt + 1:
            play.wait(1.0)
        delays.append(play.clock.now() - begun)
    assert delays == [10, 20, 40, 60, 60]
    for draw, expected in ((0.0, 8.0), (0.999999, 12.0)):
        play = Play(retry_delay=10, jitter=0.2, draw=draw)
        play.begin()
        play.fail(kind="node-fail")
        play.wait(expected - 0.01)
        assert len(play.launched) == 1
        play.wait(0.02)
        assert len(play.launched) == 2


def test_a_crash_loop_is_given_up_and_progress_refills_the_budget() -> None:
    play = Play(max_retries=3, retry_delay=1)
    play.begin()
    for number in range(3):
        play.fail(kind="node-fail")
        play.wait(100)
        assert len(play.launched) == number + 2
    play.feed(events.Progressed, step=11)
    assert play.course.ledger.retries_left == 0, "a step that is not saved may be lost again"
    play.feed(events.Saved, step=11)
    assert play.course.ledger.retries_left == 3
    for _ in range(3):
        play.fail(kind="node-fail")
        play.wait(100)
    play.fail(kind="node-fail")
    result = play.until_done()
    assert not result.success
    assert "given up after 3 restarts" in result.reason
    assert result.total_retries == 6


def test_the_same_exception_at_the_same_step_twice_is_not_tried_again() -> None:
    play = Play(retry_delay=1)
    play.begin()
    play.fail(exception="ValueError: bad batch N", step=7)
    play.wait(10)
    play.fail(exception="ValueError: bad batch N", step=8)
    play.wait(100)
    play.fail(exception="ValueError: bad batch N", step=7)
    assert "same exception at step 7" in play.until_done().reason


def test_what_a_restart_cannot_cure_and_that_one_may_want_it_all_the_same() -> None:
    missing = {"exception": "ModuleNotFoundError: No module named 'verl'", "code": 1}
    play = Play()
    play.begin()
    play.fail(**missing)
    assert "what it needs is missing" in play.until_done().reason
    stubborn = Play(always_restart=True, retry_delay=1)
    stubborn.begin()
    stubborn.fail(**missing)
    stubborn.wait(10)
    assert len(stubborn.launched) == 2


def test_a_hang_is_captured_first_then_ended_then_restarted() -> None:
    play = Play(4, retry_delay=1)
    play.begin()
    assert [type(a) for a in play.feed(events.HangSeen, why="rank 3 sleeps")] == [
        actions.Announce,
        actions.SecureEvidence,
    ]
    assert play.feed(events.HangSeen, why="again") == []
    assert [type(a) for a in play.feed(events.EvidenceSecured)] == [actions.EndAttempt]
    play.fail(kind="signal", signal=15, exception="KeyboardInterrupt: ")
    assert play.course.ledger.failures[-1].kind == "hang"
    play.wait(10)
    assert play.launched == [(0, 4), (1, 4)]


def test_a_hang_whose_capture_hangs_is_ended_all_the_same() -> None:
    play = Play(capture_seconds=60)
    play.begin()
    play.feed(events.HangSeen, why="silence")
    play.wait(59)
    assert play.course.phase == "capturing"
    play.wait(2)
    assert play.course.phase == "ending"


def test_a_hanging_command_that_ends_with_status_0_when_told_is_restarted() -> None:
    play = Play(retry_delay=1)
    play.begin()
    play.feed(events.HangSeen, why="silence")
    play.feed(events.EvidenceSecured)
    play.feed(events.Exited, failure=None)
    assert play.course.phase == "waiting"


def test_a_checkpoint_that_does_not_load_is_left_out() -> None:
    play = Play(5, 10, 15, retry_delay=1)
    play.begin()
    for expected in (10, 5):
        play.fail(kind="checkpoint-load", exception="RuntimeError: cut off")
        play.wait(100)
        assert play.launched[-1][1] == expected
    play.fail(kind="checkpoint-load")
    play.wait(100)
    assert play.until_done().reason == "none loads"


def test_a_clock_that_is_set_moves_nothing() -> None:
    play = Play(retry_delay=10, clear_seconds=30)
    play.begin()
    play.fail(kind="node-fail")
    later, earlier = play.clock.now() + 7200, play.clock.now() - 7200
    for wall in (later, earlier):
        time = Moment(wall=wall, steady=play.clock.monotonic() + 9)
        assert play.course.handle(events.TimePassed(time=time)) == []
    ten = Moment(wall=earlier, steady=play.clock.monotonic() + 10)
    assert play.course.handle(events.TimePassed(time=ten)) == [actions.Clear()]


def test_what_ends_while_its_evidence_is_taken_speaks_for_itself() -> None:
    well = Play()
    well.begin()
    well.feed(events.HangSeen, why="silence")
    well.feed(events.Exited, failure=None)
    assert well.until_done().success
    badly = Play(retry_delay=1)
    badly.begin()
    badly.feed(events.HangSeen, why="silence")
    badly.fail(text="it crashed")
    (failure,) = badly.course.ledger.failures
    assert (failure.kind, failure.text) == ("hang", "silence; then it crashed")


@pytest.mark.parametrize(("hours", "last_saved"), [(7.0, None), (0.1, 300.0)])
def test_an_exception_comes_at_no_known_step_where_none_is_known(
    hours: float, last_saved: float | None
) -> None:
    """Neither twice at one place, nor before the first step: it ran for long, or it saved."""
    play = Play(retry_delay=1)
    play.begin()
    for attempt in (0, 1):
        begun = play.clock.now()
        play.clock.advance(hours * 3600)
        failure = Failure(kind="nccl", text="lost", exception="DistBackendError: NCCL error")
        saved = begun + last_saved if last_saved else None
        play.feed(events.Exited, failure=failure, last_saved=saved)
        assert play.course.phase == "waiting", attempt
        play.wait(10)
    play.fail(code=127)
    assert "was not found" in play.until_done().reason


def test_time_is_lost_since_the_last_checkpoint() -> None:
    play = Play(5, retry_delay=10)
    play.begin()
    play.clock.advance(100)
    saved = play.clock.now()
    play.clock.advance(50)
    play.feed(events.Exited, failure=Failure(kind="node-fail", text="gone"), last_saved=saved)
    play.wait(10)
    play.feed(events.Exited, failure=None)
    assert play.until_done().time_lost_seconds == 60


def test_an_attempt_that_never_started_lost_no_time_before_it() -> None:
    play = Play(retry_delay=10, always_restart=True)
    play.starts = False
    play.clock.advance(1e9)
    play.begin()
    play.feed(events.Exited, failure=Failure(kind="not-started", text="the disk is full"))
    while len(play.launched) == 1:
        play.wait(1.0)
    assert play.course.ledger.time_lost <= 11.0


def test_stopping_while_it_runs_ends_it_and_does_not_restart() -> None:
    play = Play()
    play.begin()
    assert play.feed(events.StopAsked, signal=2) == [actions.EndAttempt(signal=2)]
    assert play.feed(events.StopAsked, signal=2) == [actions.EndAttempt(signal=9)]
    play.fail(kind="signal", signal=9)
    result = play.until_done()
    assert (result.success, result.stopped_by) == (False, 2)


def test_stopping_while_it_waits() -> None:
    play = Play()
    play.begin()
    play.fail(kind="node-fail")
    play.feed(events.StopAsked, signal=15)
    assert play.until_done().stopped_by == 15
    assert play.feed(events.TimePassed) == []


def test_what_the_old_attempt_holds_is_waited_for_and_not_for_ever() -> None:
    play = Play(retry_delay=1, clear_seconds=30)
    play.begin()
    play.cleared = "GPU 0 is in use by pid 7"
    play.fail(kind="node-fail")
    play.wait(1.1)
    for _ in range(5):
        play.wait(2.1)
    assert len(play.launched) == 1
    play.cleared = ""
    play.wait(2.1)
    assert len(play.launched) == 2
    play.cleared = "GPU 0 is in use by pid 7"
    play.fail(kind="node-fail")
    for _ in range(30):
        play.wait(2.1)
    assert "GPU 0 is in use" in play.until_done().reason


def test_training_that_is_complete_but_for_its_teardown_is_a_success() -> None:
    play = Play()
    play.begin()
    play.fail(kind="soft-success", text="teardown failed")
    assert play.until_done().success


def test_what_cannot_be_killed_is_said() -> None:
    play = Play()
    play.begin()
    play.feed(events.Unkillable, pid=77)
    assert "pid 77 hangs in the kernel" in play.until_done().reason


def test_a_later_life_goes_on_with_the_ledger() -> None:
    ledger = SupervisionState(attempt=4, retries_left=1, total_retries=4, best_step=9)
    play = Play(ledger=ledger, max_retries=10, retry_delay=1)
    play.feed(events.AttemptStarted)
    play.fail(kind="node-fail")
    play.wait(10)
    assert play.launched == [(5, None)]
    play.fail(kind="node-fail")
    assert "given up" in play.until_done().reason


SEVEN = BadNode(host="n7", why="GPU 2 has fallen off the bus")


def test_a_bad_node_is_told_once_and_left_out_of_every_later_attempt() -> None:
    play = Play(retry_delay=1)
    play.begin()
    assert play.last(actions.Launch).without == ()
    (told,) = play.feed(events.NodesFound, nodes=(SEVEN,))
    assert told == actions.Announce(
        text="bad node n7: GPU 2 has fallen off the bus", event="bad-node"
    )
    assert play.feed(events.NodesFound, nodes=(SEVEN,)) == []
    play.fail(kind="node-fail")
    assert play.last(actions.Announce).text.endswith("restart in 1 s, without n7")
    play.wait(10)
    assert play.last(actions.Launch).without == ("n7",)
    play.fail(kind="gpu-lost", nodes=(BadNode(host="n9", why="Xid 79"),))
    assert play.last(actions.Announce).text.endswith(", without n7, n9")
    play.wait(10)
    assert play.last(actions.Launch).without == ("n7", "n9")
    play.feed(events.Exited, failure=None)
    assert [node.host for node in play.until_done().bad_nodes] == ["n7", "n9"]


def test_a_node_that_is_found_bad_while_the_restart_waits_is_left_out_too() -> None:
    play = Play(retry_delay=10)
    play.begin()
    play.fail(kind="signal", signal=15)
    play.feed(events.NodesFound, nodes=(SEVEN,))
    play.wait(20)
    assert play.last(actions.Launch).without == ("n7",)


def test_the_bad_node_of_the_last_failure_is_in_the_result() -> None:
    play = Play(max_retries=0)
    play.begin()
    play.fail(kind="gpu-lost", nodes=(SEVEN,))
    (node,) = play.until_done().bad_nodes
    assert (node.host, node.why, node.at) == ("n7", SEVEN.why, play.clock.now())


def test_what_was_bad_before_the_run_is_forgotten_and_what_came_in_any_attempt_is_not() -> None:
    play = Play(retry_delay=1)
    begun = play.clock.now()
    play.begin()
    play.fail(kind="node-fail")
    play.wait(10)
    before = BadNode(host="n1", why="", at=begun - 1)
    since = BadNode(host="n2", why="", at=begun + 1)
    assert play.clock.now() > begun + 1
    play.feed(events.NodesFound, nodes=(before, since))
    assert [node.host for node in play.course.ledger.bad_nodes] == ["n2"]


def test_a_later_life_still_knows_the_bad_nodes() -> None:
    kept = msgspec.json.encode(SupervisionState(attempt=1, retries_left=3, bad_nodes=[SEVEN]))
    play = Play(ledger=msgspec.json.decode(kept, type=SupervisionState), retry_delay=1)
    play.feed(events.AttemptStarted)
    play.fail(kind="node-fail")
    play.wait(10)
    assert play.last(actions.Launch).without == ("n7",)
    older = msgspec.json.decode(b'{"attempt": 1, "retries_left": 3}', type=SupervisionState)
    assert older.bad_nodes == []
