"""Calls of actors that last as long as their job: its loop, for which the driver waits, or one that
serves others."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import pytest

from ray_sentinel.model.stacks import StackFact
from tests.support import ray_story
from tests.support.ray_story import (
    COMPUTES,
    GETS,
    SLEEPS,
    RayStory,
    StoryProcess,
    actors,
    driver,
)

BATCHES = StackFact(
    process=SLEEPS.process,
    signature=("step (train.py:9)", "_try_get_data (torch/utils/data/dataloader.py:1291)"),
    activity="input-wait",
    label="waiting for the next batch of data",
    waits_for_others=False,
    users_code=True,
)
WARM = 60
ACCEPTS = msgspec.structs.replace(
    SLEEPS,
    signature=("serve (server.py:7)", "accept (socket.py:295)"),
    activity="network-wait",
    label="waiting for a connection",
)


CHILD = msgspec.structs.replace(
    SLEEPS,
    signature=("run (main.py:3)", "evaluate (main.py:5)"),
    activity="unknown",
    label="waiting for a child process",
)


@dataclass
class Runner:
    """``Runner.run`` has two workers step for three of four seconds, for ``warm`` seconds."""

    warm: int = WARM
    main: StoryProcess = field(default_factory=driver)
    workers: list[StoryProcess] = field(default_factory=lambda: actors("Worker", 2, 10))

    def __post_init__(self) -> None:
        (self.runner,) = actors("Runner", 1, 5)
        self.runner.begins("run", ray_story.START, GETS)
        self.story = RayStory([self.main, self.runner, *self.workers])
        self.go_on(self.warm)

    def go_on(self, seconds: int) -> None:
        """The loop goes on for so long."""
        self.runner.stack = GETS
        self.story.run(seconds, self._second)
        for worker in self.workers:
            worker.rests(self.story.now)
        self._runs()

    def _runs(self) -> None:
        now = self.story.now
        self.story.drives(self.main)
        self.story.call(self.main, self.runner, "run", ago=now - ray_story.START)
        self.runner.works(now)

    def _second(self) -> None:
        self._runs()
        self.story.iterate("step")
        self.runner.title = "Runner.run"
        for worker in self.workers:
            if worker.title == "Worker.step":
                self.story.call(self.runner, worker, "step")

    def sleeps(self, seconds: float) -> None:
        """From now on the runner sleeps between two steps."""
        self.runner.stack = msgspec.structs.replace(
            SLEEPS, signature=("run (main.py:3)",), wakes_at=self.story.now + seconds
        )


def test_the_runner_is_named_as_soon_as_a_driver_would_be() -> None:
    job = Runner()
    job.sleeps(86_400)
    job.story.run(40)
    (culprit,) = job.story.culprits()
    assert job.story.incident().kind == "actor-stuck"
    assert (culprit.actor, culprit.method) == ("Runner 0", "Runner.run")
    assert job.story.chain() == [("driver", "Runner.run at Runner 0", "ray.get")]
    assert 15.0 < _named_after(job) <= 22.0


def test_the_runner_waits_for_a_program_that_works() -> None:
    """An evaluation between two steps, say, that is a script of its own."""
    job = Runner()
    job.runner.stack, job.runner.child_works = CHILD, 0.5
    job.story.run(100)
    assert job.story.engine.incidents() == ()
    job.runner.child_works = None
    job.go_on(60)
    assert job.story.engine.incidents() == ()


def test_the_program_that_the_runner_waits_for_pauses() -> None:
    job = Runner()
    job.runner.stack = CHILD
    for share, seconds in ((0.5, 60), (0.0, 12), (0.5, 10), (0.0, 12), (0.5, 10)):
        job.runner.child_works = share
        job.story.run(seconds)
    assert job.story.engine.incidents() == ()


def waits_in(method: str, stack: StackFact) -> tuple[RayStory, StoryProcess]:
    """A job of two actors, for a call of one of which the driver waits."""
    main, (rollout, waiter) = driver(), actors("Rollout", 2, 10)
    story = RayStory([main, rollout, waiter])
    story.train(WARM)
    rollout.rests(story.now)
    story.drives(main)
    waiter.begins(method, story.now, stack)
    story.call(main, waiter, method)
    return story, waiter


def test_the_program_that_an_actors_call_waits_for_pauses() -> None:
    """Its other calls have taken seconds, and this one has for minutes."""
    story, judge = waits_in("generate", CHILD)
    for share, seconds in ((0.5, 150), (0.0, 12), (0.5, 10)):
        judge.child_works = share
        story.run(seconds)
    assert story.engine.incidents() == ()
    judge.child_works = 0.0
    story.run(90)
    assert [one.actor for one in story.culprits()] == ["Rollout 1"]


def test_the_runner_waits_for_a_program_that_hangs() -> None:
    job = Runner()
    job.runner.stack, job.runner.child_works = CHILD, 0.5
    job.story.run(60)
    job.runner.child_works = 0.002
    job.story.run(60)
    (culprit,) = job.story.culprits()
    assert culprit.reason == "waiting for a child process in evaluate (main.py:5)"
    assert 60 + 15.0 < _named_after(job) <= 60 + 50.0, "looks are seldom by then"


@pytest.mark.parametrize("who", ["driver", "Rollout 1"])
@pytest.mark.parametrize(
    ("waits_for", "woken_every", "share", "wants", "hangs"),
    [
        (5.0, None, 0.0, 0.002, True),
        (0.05, None, 0.0, 0.002, True),
        (5.0, None, 0.5, 0.002, False),
        (5.0, None, None, 0.002, False),
        (5.0, None, 0.0, 0.2, False),
        (5.0, None, 0.0, None, False),
        (5.0, 0.5, 0.0, 0.002, False),
        (60.0, 5.0, 0.0, 0.002, False),
        (None, None, 0.0, 0.002, False),
    ],
    ids=[
        "hangs",
        "hangs-and-looks-often",
        "they-work",
        "nobody-below",
        "it-works",
        "nothing-told",
        "it-gets-answers",
        "it-gets-answers-seldom",
        "without-a-deadline",
    ],
)
def test_who_wakes_to_see_whether_its_processes_have_sent_anything(
    who: str,
    waits_for: float | None,
    woken_every: float | None,
    share: float | None,
    wants: float | None,
    hangs: bool,
) -> None:
    """It is on a CPU every few seconds: that is no movement where it only looks whether the
    processes of a data loader live, and these do not work."""
    story, waiter = waits_in("generate", BATCHES)
    if who == "driver":
        waiter.rests(story.now)
        story.calls.clear()
        waiter, *_ = story.processes
        waiter.stack = BATCHES
    waiter.child_works, waiter.wants = share, wants
    waiter.waits_for, waiter.woken_every = waits_for, woken_every
    story.run(60, lambda: waiter.works(story.now) if story.now % 5 < 1 else None)
    assert bool(story.engine.incidents()) is hangs
    if hangs:
        assert [one.actor or one.role for one in story.culprits()] == [who]


@pytest.mark.parametrize(
    ("waits_for", "wants", "hangs"), [(5.0, 0.002, True), (5.0, 0.2, False), (60.0, 0.002, False)]
)
def test_a_thread_that_waits_for_batches_while_other_calls_go_on(
    waits_for: float, wants: float, hangs: bool
) -> None:
    """As the function does that Ray Tune runs in a thread of a trial, beside other trials."""
    main, (other, loads) = driver(), actors("Trial", 2, 10)
    story = RayStory([main, other, loads])
    story.train(WARM, method="train")
    story.drives(main)
    loads.begins("train", story.now, msgspec.structs.replace(BATCHES, tid=99))
    loads.waits_for, loads.child_works, loads.wants = waits_for, 0.0, wants
    loads.woken_every = 5.0
    story.call(main, loads, "train")

    def second() -> None:
        if story.now % 4 < 1:
            other.begins("train", story.now, COMPUTES)
        other.works(story.now)

    story.run(100, second)
    assert bool(story.engine.incidents()) is hangs
    if hangs:
        assert [one.actor for one in story.culprits()] == ["Trial 1"]


@pytest.mark.parametrize("child_works", [0.0, None])
def test_a_thread_at_a_data_loader_that_works_itself(child_works: float | None) -> None:
    story, loads = waits_in("generate", msgspec.structs.replace(BATCHES, tid=99))
    loads.child_works, loads.wants = child_works, 0.2
    loads.waits_for, loads.woken_every = 5.0, 1.0
    story.run(200)
    assert story.engine.incidents() == ()


@pytest.mark.parametrize("goes_on", [100, 85])
def test_what_came_after_the_last_look_counts_with_the_next_one(goes_on: int) -> None:
    """The first call of its name: nothing tells how long it takes. The batch comes late, and it
    works on, or waits for that of another loader."""
    story, loads = waits_in("validate", BATCHES)
    loads.waits_for, loads.child_works, loads.wants = 5.0, 0.0, 0.002

    def wakes() -> None:
        if story.now % 5 < 1:
            loads.works(story.now)

    story.run(goes_on, wakes)
    assert story.engine.incidents() == ()
    if goes_on == 85:
        loads.stack = msgspec.structs.replace(
            BATCHES, signature=("validate (train.py:30)", BATCHES.signature[-1])
        )
        story.run(60, wakes)
    else:
        loads.goes_on, loads.stack, loads.wants = True, COMPUTES, 1.0
        story.run(100, lambda: loads.works(story.now))
    assert story.engine.incidents() == ()


def test_calls_of_one_name_that_wait_for_batches_one_after_the_other() -> None:
    story, loads = waits_in("generate", BATCHES)
    main, *_ = story.processes
    loads.waits_for, loads.child_works, loads.wants = 5.0, 0.0, 0.002

    def second() -> None:
        if story.now % 10 < 1:
            story.drives(main)
            loads.begins("generate", story.now, BATCHES)
            story.call(main, loads, "generate")

    story.run(120, second)
    assert story.engine.incidents() == ()


@pytest.mark.parametrize("blocks", [False, True], ids=["main-thread", "thread"])
def test_a_runner_that_paused_at_the_same_place_before(blocks: bool) -> None:
    job = Runner()
    stack = BLOCKS if blocks else msgspec.structs.replace(SLEEPS, signature=("run (main.py:3)",))
    job.runner.stack = stack
    job.story.run(9)
    job.go_on(60)
    assert job.story.engine.incidents() == ()
    begun = job.story.now
    job.runner.stack = msgspec.structs.replace(stack, switches=stack.switches and 50)
    job.story.run(40)
    assert [one.actor for one in job.story.culprits()] == ["Runner 0"]
    confirmed = job.story.incident().confirmed_at
    assert confirmed is not None
    assert 15.0 < confirmed - begun <= 26.0


def test_the_runner_pauses_between_two_rounds() -> None:
    job = Runner()
    job.sleeps(60)
    job.story.run(60)
    job.go_on(60)
    assert job.story.engine.incidents() == ()


AWAITS = msgspec.structs.replace(ray_story.RESTS, tid=99, switches=7, rests=True)
"""The event loop of an actor, in which nothing is ready."""


BLOCKS = msgspec.structs.replace(SLEEPS, signature=("run (main.py:3)",), tid=99, switches=7)
"""A coroutine, or a call in a thread, that stands in a function, and its event loop with it."""


class TestACoroutineMayAwait:
    """A runner whose event loop rests, and who has a program or a pool of processes below it."""

    def job(self, started: float | None) -> Runner:
        job = Runner()
        job.runner.stack, job.runner.child_works = AWAITS, 0.5
        job.runner.child_since = None if started is None else job.story.now + started
        return job

    @pytest.mark.parametrize("started", [0.5, -3.0, None], ids=["program", "told-late", "pool"])
    def test_what_works(self, started: float | None) -> None:
        job = self.job(started)
        job.story.run(100)
        assert job.story.engine.incidents() == ()
        job.runner.child_works = 0.0
        job.story.run(60)
        (culprit,) = job.story.culprits()
        assert culprit.reason == "awaits something of its own"

    def test_no_program_that_was_there_while_the_job_went_on(self) -> None:
        job = self.job(-40.0)
        job.story.run(40)
        assert [one.actor for one in job.story.culprits()] == ["Runner 0"]
        assert 15.0 < _named_after(job) <= 25.0


@pytest.mark.parametrize(
    ("stack", "reason"),
    [(AWAITS, "awaits something of its own"), (BLOCKS, "sleeping in run (main.py:3)")],
    ids=["awaits", "blocks"],
)
class TestARunnerThatIsACoroutine:
    def test_is_named_as_soon(self, stack: StackFact, reason: str) -> None:
        job = Runner()
        job.runner.stack = stack
        job.story.run(40)
        (culprit,) = job.story.culprits()
        assert (culprit.actor, culprit.reason) == ("Runner 0", reason)
        assert 15.0 < _named_after(job) <= 25.0

    def test_has_its_time_where_its_loop_has_hardly_begun(
        self, stack: StackFact, reason: str
    ) -> None:
        job = Runner(warm=12)
        job.runner.stack = stack
        job.story.run(140)
        (culprit,) = job.story.culprits()
        assert (culprit.actor, culprit.reason) == ("Runner 0", reason)
        assert 120.0 < _named_after(job) <= 135.0

    def test_runs_now_and_then(self, stack: StackFact, reason: str) -> None:
        job = Runner()
        job.runner.stack, job.runner.wakes = stack, True
        job.story.run(100)
        assert job.story.engine.incidents() == (), reason

    def test_pauses_between_two_rounds(self, stack: StackFact, reason: str) -> None:
        job = Runner()
        job.runner.stack = msgspec.structs.replace(stack, wakes_at=job.story.now + 60)
        job.story.run(60)
        job.go_on(60)
        assert job.story.engine.incidents() == (), reason


def _named_after(job: Runner) -> float:
    """Seconds after the loop has stopped."""
    confirmed = job.story.incident().confirmed_at
    assert confirmed is not None
    return confirmed - (ray_story.START + job.warm)


def test_a_call_that_nobody_knows_and_that_began_after_the_others_has_its_time() -> None:
    """An evaluation of the whole model, say, at the end of an epoch."""
    main, (rollout, judge) = driver(), actors("Rollout", 2, 10)
    story = RayStory([main, rollout, judge])
    story.train(WARM)
    for one in (rollout, judge):
        one.rests(story.now)
    story.drives(main)
    judge.begins("evaluate", story.now, SLEEPS)
    story.call(main, judge, "evaluate")
    story.run(100)
    assert story.engine.incidents() == ()
    story.run(40)
    assert [one.method for one in story.culprits()] == ["Rollout.evaluate"]


def test_a_runner_that_others_do_not_wait_for_has_its_time() -> None:
    job = Runner()
    job.sleeps(86_400)
    (worker, _) = job.workers
    worker.begins("step", job.story.now, COMPUTES)
    worker.goes_on = True
    job.story.call(job.main, worker, "step")
    job.story.run(60, lambda: worker.works(job.story.now))
    assert job.story.engine.incidents() == ()


def serving(seconds: int) -> tuple[RayStory, StoryProcess]:
    """A job that has trained for so long beside an actor that waits for connections in the only
    call that it ever gets."""
    main, (server,), workers = driver(), actors("Server", 1, 5), actors("Worker", 2, 10)
    server.begins("serve", ray_story.START, ACCEPTS)
    story = RayStory([main, server, *workers])

    def second() -> None:
        story.drives(main)
        story.call(main, server, "serve", ago=story.now - ray_story.START)
        story.iterate("step")
        server.title, server.moved_at = "Server.serve", ray_story.START
        for worker in workers:
            if worker.title == "Worker.step":
                story.call(main, worker, "step")

    story.run(seconds, second)
    for worker in workers:
        worker.rests(story.now)
    story.drives(main)
    story.call(main, server, "serve", ago=story.now - ray_story.START)
    return story, server


def test_an_actor_that_waits_to_be_asked_holds_up_no_job_that_goes_on() -> None:
    story, _ = serving(400)
    assert story.engine.incidents() == ()


def test_an_actor_in_its_only_call_is_named_if_nothing_goes_on_any_more() -> None:
    story, server = serving(150)
    silent_at = story.now
    story.run(150)
    assert [one.pid for one in story.culprits()] == [server.pid]
    confirmed = story.incident().confirmed_at
    assert confirmed is not None
    assert confirmed - silent_at <= 130.0


def test_one_of_two_producers_stands_still_while_the_job_goes_on() -> None:
    """Each has worked all the time in the only call that it ever gets."""
    main, producers, (worker,) = driver(), actors("Producer", 2, 5), actors("Worker", 1, 10)
    for one in producers:
        one.begins("run", ray_story.START, COMPUTES)
        one.goes_on = True
    story = RayStory([main, *producers, worker])

    def second() -> None:
        story.drives(main)
        story.iterate("step")
        for one in producers:
            one.title = "Producer.run"
            story.call(main, one, "run", ago=story.now - ray_story.START)
            if one.stack == SLEEPS:
                one.moved_at = stuck_at
        if worker.title == "Worker.step":
            story.call(main, worker, "step")

    stuck_at = ray_story.START
    story.run(200, second)
    assert story.engine.incidents() == ()
    stuck_at, producers[0].stack, producers[0].goes_on = story.now, SLEEPS, False
    story.run(150, second)
    assert [one.pid for one in story.culprits()] == [producers[0].pid]
    confirmed = story.incident().confirmed_at
    assert confirmed is not None
    assert 120.0 < confirmed - stuck_at <= 140.0
