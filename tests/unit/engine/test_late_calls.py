"""A job that goes on while one call lasts far longer than usual, and works: what the looks at it
for that reason must not say, and what they must not delay."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from ray_sentinel.model.ray_calls import EndedCalls, RayCall
from tests.support.ray_stories.jobs import WARM
from tests.support.ray_story import (
    COMPUTES,
    GETS,
    JOB,
    RESTS,
    SLEEPS,
    WRITES,
    RayStory,
    StoryProcess,
    actors,
    driver,
)

KEEPS_GIL = msgspec.structs.replace(COMPUTES, keeps_gil=True, holds_gil=True)


class BusyJob:
    """Three actors, of which the first makes one long call; the others go on with short ones."""

    def __init__(self) -> None:
        self.main = driver()
        self.long, *self.others = actors("Rollout", 3, 10)
        self.story = RayStory([self.main, self.long, *self.others])
        self.story.train(WARM)
        self.story.ended = {
            "Rollout.generate": EndedCalls(count=60, longest=3.0),
            "score": EndedCalls(count=50, longest=2.0),
        }
        self.story.drives(self.main)
        self.main.stack = GETS
        self.long.begins("generate", self.story.now, COMPUTES)
        self.long.goes_on = True
        self.story.call(self.main, self.long, "generate")
        self.held = self.story.calls[-1]
        self.began = self.story.now

    def run(self, seconds: int, each: Callable[[], object] = lambda: None) -> None:
        """Let the job go on; ``each`` says what else is true in each second."""

        def go_on() -> None:
            self.story.iterate()
            self.long.title = self.long.kind
            self.work()
            for one in self.others:
                if one.title != one.kind:
                    self.story.call(self.main, one, "generate")
            each()

        self.story.run(seconds, go_on)

    def work(self) -> None:
        """One second more of the long call; no other runs."""
        self.long.works(self.story.now)
        self.story.drives(self.main)
        self.story.calls.append(self.held)

    def queue(self, count: int) -> None:
        """Tasks that the driver submitted at the beginning and that get room in turn."""
        done = int(self.story.now - self.began) // 2
        self.story.calls.extend(
            RayCall(
                id=f"{number:06x}aa", parent=f"d{JOB}", job=JOB, kind="task", name="score",
                state="unplaced", since=self.began, made=self.began, needs={"CPU": 1.0},
            )
            for number in range(done, done + count)
        )  # fmt: skip


@pytest.mark.parametrize("free", [0.0, 4.0])
def test_a_backlog_of_tasks_is_nothing_that_lacks_room(free: float) -> None:
    job = BusyJob()
    job.story.free_on = {"node1": {"CPU": free}}
    job.run(200, lambda: job.queue(200))
    assert job.story.looks > 0
    assert job.story.engine.incidents(everything=True) == ()


@pytest.mark.parametrize("what", ["disk", "gil"])
def test_what_two_short_calls_do_at_one_line_is_no_lasting_state(what: str) -> None:
    job = BusyJob()

    def each() -> None:
        for one in job.others:
            _do(one, what)
            if one.title != one.kind:
                call = job.story.calls.pop()
                new = f"{int(one.since):016x}{one.actor}"
                job.story.calls.append(msgspec.structs.replace(call, since=one.since, id=new))

    job.run(200, each)
    assert job.story.looks > 1
    assert job.story.engine.incidents(everything=True) == ()


def _do(one: StoryProcess, what: str) -> None:
    runs = one.title != one.kind
    one.state = "D" if runs and what == "disk" else "S"
    one.stack = (WRITES if what == "disk" else KEEPS_GIL) if runs else RESTS


def test_a_hang_of_the_driver_is_found_as_soon_after_ten_minutes_of_a_long_call() -> None:
    job = BusyJob()
    job.run(700)
    assert job.story.engine.incidents(everything=True) == ()
    for one in job.others:
        one.rests(job.story.now)
    job.work()
    job.main.stack = SLEEPS
    job.main.since = job.main.moved_at = stuck_at = job.story.now
    job.story.run(60, lambda: job.long.works(job.story.now))
    (incident,) = job.story.engine.incidents(everything=True)
    assert "driver" in incident.summary
    assert incident.confirmed_at is not None
    assert incident.confirmed_at - stuck_at < 30.0
