"""Stories of Ray jobs whose waits are told of, each played to its end."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ray_sentinel.model.progress import RayExit
from ray_sentinel.model.ray_calls import EndedCalls, FailedCall, PendingGroup, RayCall
from ray_sentinel.model.stacks import StackFact
from tests.support import ray_story
from tests.support.ray_story import (
    COMPUTES,
    GETS,
    ITEMS,
    JOB,
    MUTE,
    OTHER_JOB,
    PLACES,
    REDUCES,
    SELECTS,
    SLEEPS,
    STOPPED,
    SYNCHRONIZES,
    WRITES,
    RayStory,
    StoryProcess,
    actors,
    driver,
)

WARM = 60
"""Seconds of healthy training before anything happens: fifteen calls of four seconds."""


def rollouts(count: int = 2) -> tuple[RayStory, StoryProcess, list[StoryProcess]]:
    """A driver and rollouts that have trained for a minute."""
    main, workers = driver(), actors("Rollout", count, 10)
    story = RayStory([main, *workers])
    story.train(WARM)
    for worker in workers:
        worker.rests(story.now)
    story.drives(main)
    return story, main, workers


def with_ranks(
    *, answers: bool = True
) -> tuple[RayStory, StoryProcess, StoryProcess, list[StoryProcess]]:
    """The same with one rollout, and two trainers that make a process group."""
    main, (rollout,) = driver(), actors("Rollout", 1, 10)
    trainers = actors("Trainer", 2, 50, ranks=True)
    story = RayStory([main, rollout, *trainers], answers=answers)
    story.train(WARM)
    for worker in (rollout, *trainers):
        worker.rests(story.now)
    story.drives(main)
    return story, main, rollout, trainers


def asleep() -> RayStory:
    story, main, (first, _) = rollouts()
    first.begins("generate", story.now, SLEEPS)
    story.call(main, first, "generate")
    story.run(60)
    return story


def asleep_below_threads() -> RayStory:
    """The driver's main thread waits for a pool of threads, each of which waits for an actor."""
    story, main, (first, _) = rollouts()
    pool = ("main (train.py:1)", "result (concurrent/futures/_base.py:451)")
    main.stack = msgspec.structs.replace(SLEEPS, signature=pool, activity="lock-wait")
    first.begins("generate", story.now, SLEEPS)
    story.call(main, first, "generate")
    story.run(60)
    return story


def awaits() -> RayStory:
    """A coroutine of an actor awaits what never comes: its main thread rests, and has no title."""
    story, main, (first, _) = rollouts()
    story.call(main, first, "generate")
    story.run(180)
    return story


def event_loop_rests(
    *, runs: bool = False, given: bool = False, beside: bool = False, feeds: bool = False
) -> RayStory:
    """The same, and the event loop of the coroutine is seen to run no more, or with ``runs`` now
    and then. With ``given`` it awaits the object of a call that another actor has not begun;
    ``beside`` it, a thread of another actor, which runs no call, is at work; with ``feeds`` a
    second thread of the driver is."""
    story, main, (first, second) = rollouts()
    story.ended = {"Rollout.generate": EndedCalls(count=60, longest=1.0)}
    if given:
        story.call(main, second, "load", "queued")
    story.call(main, first, "generate")
    first.stack = msgspec.structs.replace(ray_story.RESTS, tid=99, switches=7, rests=True)
    first.wakes = runs
    if beside:
        second.stack = msgspec.structs.replace(SLEEPS, tid=98, switches=3, users_code=True)
    if feeds:
        assert main.stack is not None
        main.stack = msgspec.structs.replace(main.stack, users_code_beside=True)
    story.run(180)
    return story


def awaits_after_a_failure() -> RayStory:
    """A coroutine awaits what a call should have brought that failed; nobody took its result."""
    story, main, (first, _) = rollouts()
    raised = FailedCall(
        name="Producer.run", actor="Producer 0", at=story.now - 2.0, error="ValueError: bad record"
    )
    early = FailedCall(name="load", at=story.now - 50.0, error="KeyError: 7")
    story.failed = (early, raised)
    story.call(main, first, "generate")
    story.run(180)
    return story


def in_thread() -> RayStory:
    """A thread of an actor stands still, while its main thread, which serves Ray, goes on."""
    story, main, (first, _) = rollouts()
    first.begins("generate", story.now, SLEEPS)
    story.call(main, first, "generate")
    story.run(180, lambda: first.works(story.now))
    return story


def thread_stands(*, runs: bool = False, method: str = "generate") -> RayStory:
    """The same, and the thread is known not to have run, or to run now and then."""
    story, main, (first, _) = rollouts()
    first.begins(method, story.now, msgspec.structs.replace(SLEEPS, tid=99, switches=7))
    first.title = first.kind  # as Ray leaves it where calls run in threads
    story.call(main, first, method)
    first.wakes = runs
    story.run(100, lambda: first.works(story.now))
    return story


def thread_stands_beside_others(*, usual: bool = True, seconds: int = 90) -> RayStory:
    """One actor's thread stands still for some ``seconds``, while the driver, which takes whatever
    comes first, goes on with two others; Ray has told how long such calls take, where that is
    ``usual``. Then all go on for a minute, if it did not stand to the end."""
    main, workers = driver(), actors("Rollout", 3, 10)
    story = RayStory([main, *workers])
    story.train(WARM)
    if usual:
        story.ended = {"Rollout.generate": EndedCalls(count=60, longest=3.0)}
    story.drives(main)
    main.stack, (first, *others) = SELECTS, workers
    first.begins("generate", story.now, msgspec.structs.replace(SLEEPS, tid=99, switches=7))
    first.title = first.kind
    story.call(main, first, "generate")
    held = story.calls[-1]

    def go_on() -> None:
        story.iterate()
        first.title = first.kind
        story.drives(main)
        story.calls.append(held)
        for one in others:
            if one.title != one.kind:
                story.call(main, one, "generate")

    story.run(min(seconds, 90), go_on)
    if seconds < 90:
        first.rests(story.now)
        story.drives(main)
        story.train(60)
    return story


def thread_spins(*, share: float = 1.0, longest: float = 0.5, seconds: int = 100) -> RayStory:
    """A call in a thread keeps the GIL in C; the thread runs or waits for a CPU for a ``share`` of
    the time. Calls have taken up to ``longest`` seconds before."""
    story, main, (first, _) = rollouts()
    story.ended = {"Rollout.generate": EndedCalls(count=20, longest=longest)}
    spins = msgspec.structs.replace(COMPUTES, tid=99, switches=7, holds_gil=True)
    first.begins("generate", story.now, spins)
    first.title = first.kind
    story.call(main, first, "generate")
    first.wakes, first.wants = True, share
    story.run(seconds, lambda: first.works(story.now))
    return story


def asked_meanwhile() -> RayStory:
    """One thread of an actor stands still; another one answers short calls all the time, of which
    some look shows the latest."""
    story, main, (first, _) = rollouts()
    story.ended = {
        "Rollout.run": EndedCalls(count=20, longest=0.9),
        "Rollout.is_done": EndedCalls(count=200, longest=0.1),
    }
    main.stack = msgspec.structs.replace(SLEEPS, signature=("main (train.py:3)",))
    first.begins("run", story.now, msgspec.structs.replace(SLEEPS, tid=99, switches=7))
    first.title = first.kind
    story.call(main, first, "run")
    held = list(story.calls)

    def second() -> None:
        main.works(story.now)
        first.works(story.now)
        story.calls[:] = held
        if story.looks % 3 == 2:
            story.call(main, first, "is_done", ago=0.1)

    story.run(180, second)
    return story


def background_thread_rests() -> RayStory:
    """A thread of an actor sleeps beside its calls, which are short and run elsewhere; every look
    shows one that has just begun."""
    story, main, (first, _) = rollouts()
    story.ended = {"Rollout.run": EndedCalls(count=20, longest=0.9)}
    first.stack = msgspec.structs.replace(SLEEPS, tid=99, switches=7, users_code=True)

    def second() -> None:
        main.works(story.now)
        first.works(story.now)
        story.calls.clear()
        story.call(main, first, "run", ago=0.2)

    story.run(180, second)
    return story


def group_full() -> RayStory:
    """A call sleeps in a concurrency group of one; the next one of that group is queued behind it,
    and the driver waits for that."""
    story, main, (first, _) = rollouts()
    story.ended = {"Rollout.write": EndedCalls(count=20, longest=0.4)}
    first.begins("write", story.now, msgspec.structs.replace(SLEEPS, tid=99, switches=7))
    story.call(main, first, "write")
    story.call(main, first, "fetch", "queued")
    story.run(60, lambda: first.works(story.now))
    return story


def library_function(*, runs: bool = False, told: int = 60) -> RayStory:
    """An actor of a library waits with a deadline, again and again, for a thread of its own, which
    runs the user's function and stands at one place; with ``runs`` it works there in small
    steps. ``told``: calls that had ended at the first look."""
    main, trials = driver(), actors("ImplicitFunc", 2, 10)
    main.stack = SELECTS
    story = RayStory([main, *trials])
    story.ended = {"ImplicitFunc.train": EndedCalls(count=told, longest=0.3)}
    if told == 60:
        story.train(WARM, method="train")
    story.drives(main)
    for trial in trials:
        trial.begins("train", story.now, COMPUTES)
        trial.goes_on = True
        story.call(main, trial, "train")
    first = trials[0]
    first.goes_on = False
    first.stack = msgspec.structs.replace(SLEEPS, tid=99, switches=7, users_code=True)
    first.wakes = runs

    def second() -> None:
        for trial in trials:
            trial.works(story.now)
        if story.looks:
            story.ended = {"ImplicitFunc.train": EndedCalls(count=60, longest=0.3)}

    story.run(60, second)
    return story


def served(*, runs: bool = False, longest: float = 0.5, awaited: bool = True) -> RayStory:
    """A replica of Ray Serve stands in a request, of which Ray's control store is told nothing;
    Serve's own metrics say that one runs, and how long those took that were answered. With
    ``runs`` it works in small steps; ``awaited``: by the driver, not by somebody outside."""
    main, replicas = driver(), actors("ServeReplica:app:Model", 2, 10)
    story = RayStory([main, *replicas])
    story.drives(main)
    finished = 'server_requests_finished_total{job="serve-app-Model"}'
    story.gauges = {
        'server_requests{job="serve-app-Model",state="running"}': 1.0,
        'server_request_longest_seconds{job="serve-app-Model"}': longest,
        finished: 0.0,
    }

    def answer() -> None:
        story.gauges[finished] += 2.0
        for one in story.processes:
            one.works(story.now)

    story.run(WARM, answer)
    first = replicas[0]
    first.stack = msgspec.structs.replace(SLEEPS, tid=99, switches=7, users_code=True, rests=True)
    first.wakes = runs
    if not awaited:
        main.stack = ray_story.RESTS
    story.run(60, lambda: [one.works(story.now) for one in story.processes])
    return story


def awaits_another() -> RayStory:
    """The same, but another actor, which nobody waits for, is in a call of its own."""
    story, main, (first, second) = rollouts()
    story.call(main, first, "generate")
    story.call(second, second, "bring")
    second.goes_on = True
    second.begins("bring", story.now, COMPUTES)
    story.run(180, lambda: second.works(story.now))
    return story


def spins(stack: StackFact = COMPUTES, *, goes_round: bool = False) -> RayStory:
    story, main, (first, _) = rollouts()
    first.spins("generate", story.now, stack)
    first.goes_round = goes_round
    story.call(main, first, "generate")
    story.run(60, lambda: first.works(story.now))
    return story


def loops() -> RayStory:
    return spins(goes_round=True)


def driver_spins() -> RayStory:
    story, main, _ = rollouts()
    main.stack = msgspec.structs.replace(COMPUTES, signature=("main (train_rl.py:40)",))
    main.busy_since = story.now
    story.run(90, lambda: main.works(story.now))
    return story


def driver_asleep() -> RayStory:
    story, main, _ = rollouts()
    main.stack = msgspec.structs.replace(SLEEPS, signature=("main (train_rl.py:40)",))
    story.run(120)
    return story


def circle() -> RayStory:
    story, main, workers = rollouts()
    for worker in workers:
        worker.begins("ask", story.now, GETS)
        story.call(main, worker, "ask")
    story.call(workers[0], workers[1], "answer", "queued")
    story.call(workers[1], workers[0], "answer", "queued")
    story.run(60)
    return story


def circle_with_a_rank() -> RayStory:
    """One trainer and the rollout wait for each other, and the other trainer in a collective."""
    story, main, rollout, (first, second) = with_ranks()
    first.begins("update", story.now, GETS)
    second.begins("update", story.now, REDUCES)
    rollout.begins("ask", story.now, GETS)
    for one, method in ((first, "update"), (second, "update"), (rollout, "ask")):
        story.call(main, one, method)
    story.call(first, rollout, "answer", "queued")
    story.call(rollout, first, "answer", "queued")
    story.run(120)
    return story


def stopped() -> RayStory:
    story, main, (first, _) = rollouts()
    first.begins("generate", story.now, STOPPED)
    first.state = "T"
    story.call(main, first, "generate")
    story.run(20)
    return story


def blocked() -> RayStory:
    story, main, (first, _) = rollouts()
    first.begins("save", story.now, WRITES)
    first.state = "D"
    story.call(main, first, "save")
    story.run(60)
    return story


def pending(**free_on: dict[str, float]) -> RayStory:
    story, main, _ = rollouts()
    story.free_on = free_on or story.free_on
    main.stack = PLACES
    group = PendingGroup(
        id="29a1" * 8, name="big", job=JOB, bundles=({"CPU": 64.0},), since=story.now
    )
    story.groups = (group,)
    story.tell_table()
    story.run(60)
    return story


def no_worker(seconds: int = 90, free: float = 4.0) -> RayStory:
    """A driver waits for a task that asks for a CPU, and to which no worker has been given; on one
    node so many CPUs are ``free``."""
    story, main, _ = rollouts()
    story.free_on = {"node1": {"CPU": free}}
    task = RayCall(
        id="7a5c", parent=f"d{JOB}", job=JOB, kind="task", name="score", state="unplaced",
        since=story.now, made=story.now, needs={"CPU": 1.0},
    )  # fmt: skip
    story.calls.append(task)
    main.stack = GETS
    story.run(seconds)
    return story


def first_constructor() -> RayStory:
    main, (only,) = driver(), actors("Rollout", 1, 10)
    only.begins("__init__", ray_story.START, SLEEPS)
    only.actor_state = "PENDING_CREATION"
    story = RayStory([main, only])
    story.drives(main)
    story.call(main, only, "__init__", kind="actor-creation")
    story.call(main, only, "generate", "queued")
    story.run(310)
    return story


def mute() -> RayStory:
    return ranks_wait(MUTE)


def ranks_wait(stack: StackFact = SLEEPS) -> RayStory:
    """Both trainers wait for a rollout, of which ``stack`` is seen."""
    story, main, rollout, trainers = with_ranks()
    for trainer in trainers:
        trainer.begins("update", story.now, GETS)
        story.call(main, trainer, "update")
    rollout.begins("generate", story.now, stack)
    story.call(trainers[0], rollout, "generate")
    story.call(trainers[1], rollout, "generate", "queued")
    story.run(200)
    return story


def rank_stuck() -> RayStory:
    story, main, _, trainers = with_ranks()
    for trainer, stack in zip(trainers, (REDUCES, SLEEPS), strict=True):
        trainer.begins("update", story.now, stack)
        story.call(main, trainer, "update")
    story.run(200)
    return story


def all_reduce() -> RayStory:
    story, main, _, trainers = with_ranks()
    for trainer in trainers:
        trainer.begins("update", story.now, REDUCES)
        story.call(main, trainer, "update")
    story.run(200)
    return story


def asynchronous() -> RayStory:
    """Calls follow one another without a pause, so that no title ever changes."""
    story, main, workers = rollouts(4)
    main.stack = SELECTS
    for worker in workers:
        worker.begins("generate", story.now, COMPUTES)
        worker.goes_on = True

    def next_calls() -> None:
        story.drives(main)
        for one in story.processes:
            one.works(story.now)
        for worker in workers:
            story.call(main, worker, "generate")

    story.run(200, next_calls)
    return story


def one_of_many(stack: StackFact = SLEEPS) -> RayStory:
    story = asynchronous()
    first = story.processes[1]
    first.stack, first.goes_on = stack, False
    moving = list(story.processes)
    if stack is COMPUTES:
        first.busy_since = story.now
        story.ended = {"Rollout.generate": EndedCalls(count=200, longest=1.0)}
    else:
        moving.remove(first)

    def go_on() -> None:
        for one in moving:
            one.works(story.now)

    story.run(60, go_on)
    return story


class BackToBack:
    """A driver makes one call after the other, each of 0.4 s, to actors that ask their devices over
    and over in them: no title ever changes, and nobody rests. Ray's store knows what the workers
    reported a second ago."""

    def __init__(self, stack: StackFact, count: int = 1) -> None:
        self.main, self.workers = driver(), actors("Rollout", count, 10)
        self.story = RayStory([self.main, *self.workers])
        self.ended = 0
        for worker in self.workers:
            worker.spins("generate", self.story.now, stack)

    def goes_on(self, seconds: int) -> None:
        """Calls follow each other."""
        self.story.run(seconds, self._second)

    def hangs(self, seconds: int, *, listed: bool = True, each: Callable[[], object]) -> None:
        """The calls that begin now do not end; ``listed``: Ray's store knows of them."""
        self.story.drives(self.main)
        for worker in self.workers if listed else ():
            self.story.call(self.main, worker, "generate")

        def second() -> None:
            self._work()
            each()

        self.story.run(seconds, second)

    def _second(self) -> None:
        self._work()
        story, self.ended = self.story, self.ended + 2
        story.ended = {
            "Rollout.generate": EndedCalls(count=self.ended, longest=0.8, last_at=story.now - 0.9)
        }
        story.drives(self.main)
        # The store is asked between two calls, before one has begun, or while one runs.
        state = (None, "queued", "running")[int(story.now) // 7 % 3]
        for worker in self.workers if state else ():
            story.call(self.main, worker, "generate", "queued" if state == "queued" else "running")
            began = story.now - 0.9
            story.calls[-1] = msgspec.structs.replace(story.calls[-1], since=began, made=began)

    def _work(self) -> None:
        for one in self.story.processes:
            one.works(self.story.now)


def back_to_back(stack: StackFact = ITEMS) -> RayStory:
    play = BackToBack(stack)
    play.goes_on(600)
    return play.story


def now_and_then_a_long_one(stack: StackFact = ITEMS) -> RayStory:
    """Of the calls that follow each other, some take as long as two looks."""
    play = BackToBack(stack)
    for _ in range(6):
        play.goes_on(80)
        play.hangs(13, each=lambda: None)
    play.goes_on(80)
    return play.story


def after_calls(
    stack: StackFact,
    seconds: int = 60,
    *,
    count: int = 1,
    listed: bool = True,
    each: Callable[[BackToBack], object] = lambda _: None,
) -> RayStory:
    """After a minute of such calls, one stands at ``stack`` and does not end."""
    play = BackToBack(ITEMS, count)
    play.goes_on(WARM)
    for worker in play.workers:
        worker.stack = stack
    play.hangs(seconds, listed=listed, each=lambda: each(play))
    return play.story


def device_hangs() -> RayStory:
    """What it has launched on its device does not end."""
    return after_calls(SYNCHRONIZES)


def two_jobs() -> RayStory:
    drivers = driver(), driver(OTHER_JOB, 2)
    mine, theirs = actors("Rollout", 2, 10), actors("Rollout", 2, 20, OTHER_JOB)
    story = RayStory([*drivers, *mine, *theirs])

    def both() -> None:
        story.iterate()
        story.iterate(job=OTHER_JOB)

    story.run(WARM, both)
    mine[1].rests(story.now)
    story.drives(*drivers)
    mine[0].begins("generate", story.now, SLEEPS)
    story.call(drivers[0], mine[0], "generate")
    story.run(60, lambda: story.iterate(job=OTHER_JOB))
    return story


def detached(*, own: bool = True) -> RayStory:
    """A scorer made by a driver that has ended stands still in a call of a rollout of this job, or
    of the driver, if that has no actors of its ``own``."""
    main, workers = driver(), actors("Rollout", 2 if own else 0, 10)
    (scorer,) = actors("Scorer", 1, 30, OTHER_JOB)
    story = RayStory([main, *workers, scorer])

    def round_() -> None:
        story.iterate()
        count = int(story.now - ray_story.START) // 4
        story.ended = {
            "Scorer.score": EndedCalls(count=count, longest=1.0, last_at=story.now - 0.5)
        }

    story.run(WARM, round_)
    story.drives(main)
    scorer.begins("score", story.now, SLEEPS)
    if own:
        workers[1].rests(story.now)
        workers[0].begins("generate", story.now, GETS)
        story.call(main, workers[0], "generate")
    story.call(workers[0] if own else main, scorer, "score")
    story.run(60)
    return story


def compiled_graph(
    *, stands_for: int = 8, seconds: int = 240, driver_stands: bool = False
) -> RayStory:
    """A stage of a compiled graph stands still for so many of each ten seconds, in the one call in
    which it runs the graph; or the driver does between two runs of the graph. Ray has told how long
    the calls took that have compiled it."""
    main, (first, second) = driver(), actors("Stage", 2, 10)
    story = RayStory([main, first, second])
    story.train(WARM, method="__ray_call__")
    story.ended = {"Stage.__ray_call__": EndedCalls(count=30, longest=1.0)}
    story.drives(main)
    for one in (first, second):
        one.begins("__ray_call__", story.now, ray_story.RESTS)
        story.call(main, one, "__ray_call__")
        story.run(1)
    at = 0

    def each() -> None:
        nonlocal at
        goes_on = int(story.now) % 10 >= stands_for
        at += int(goes_on)
        first.stack = msgspec.structs.replace(SLEEPS, tid=99, switches=at)
        if driver_stands:
            first.stack = msgspec.structs.replace(GETS, tid=99)
            main.stack = SLEEPS
        if goes_on:
            main.works(story.now)
        second.stack = msgspec.structs.replace(GETS, tid=98)

    story.run(seconds, each)
    return story


def ends_unnoticed(*, noticed_after: int = 60) -> RayStory:
    """The process of a rollout is killed, and Ray does not notice it for so many seconds: what the
    process had forked keeps its connections open."""
    story, main, (first, _) = rollouts()
    story.call(main, first, "generate", "queued")
    story.exits = [RayExit(process=first.id, at=story.now, signal=9)]
    story.run(noticed_after)
    return story


class InFlight:
    """Rollouts are always in flight, and the driver takes the samples of whoever has some; what the
    first one was called for never ends. ``hold`` begins its trouble."""

    def __init__(self, *, ranks: int = 0) -> None:
        """So many ``ranks`` of trainers, which make a process group, learn meanwhile."""
        self.main, self.workers = driver(), actors("Rollout", 3, 10)
        self.first = self.workers[0]
        self.trainers = actors("Trainer", ranks, 50, ranks=True)
        self.story = RayStory([self.main, *self.workers, *self.trainers])
        self.stopped_at: float | None = None
        self.main.stack = SELECTS
        self.run(WARM)

    def hold(self, stack: StackFact = STOPPED, state: str = "T") -> None:
        """The first one cannot go on from now on."""
        self.first.begins(_method_of(self.first), self.story.now, stack)
        self.first.state, self.first.goes_on, self.stopped_at = state, False, self.story.now

    def hold_rank(self, stack: StackFact = STOPPED, state: str = "T") -> None:
        """The same of the first trainer, instead of a rollout."""
        self.first = self.trainers[0]
        self.hold(stack, state)

    def go_on(self) -> None:
        """It runs again."""
        self.first.state, self.stopped_at = "S", None
        self.first.stack, self.first.goes_on = COMPUTES, True

    def run(self, seconds: int, each: Callable[[], object] = lambda: None) -> None:
        """Let time pass; ``each`` happens at the end of every second."""

        def second() -> None:
            self._live()
            each()

        self.story.run(seconds, second)

    def _live(self) -> None:
        """One second: rollouts generate for three of four, each in its turn. The driver waits for
        the trainers for a while, which looks as if it waited for all that it has called."""
        story = self.story
        now, story.calls = int(story.now), self._calls_of_before()
        self.main.stack = GETS if now // 10 % 2 else SELECTS
        self.main.works(story.now)
        for one in (*self.workers, *self.trainers):
            if one is self.first and self.stopped_at is not None:
                continue
            rests = (now + one.number) % 4 == 3
            if rests != (one.title == one.kind):
                if rests:
                    one.rests(story.now)
                else:
                    one.begins(_method_of(one), story.now, COMPUTES)
                    one.goes_on = True
            if not rests:
                story.call(self.main, one, one.title.partition(".")[2])
                one.works(story.now)

    def _calls_of_before(self) -> list[RayCall]:
        """The driver's own, and what does not go on."""
        begun = self.stopped_at
        held = [c for c in self.story.calls if c.pid == self.first.pid] if begun is not None else []
        self.story.drives(self.main)
        if begun is not None and not held:
            self.story.call(self.main, self.first, _method_of(self.first))
            held = self.story.calls[1:]
        return [self.story.calls[0], *held]


def _method_of(one: StoryProcess) -> str:
    return "generate" if one.rank is None else "update"


def held_in_flight(stack: StackFact = STOPPED, state: str = "T") -> RayStory:
    """One of many in flight cannot go on, and the others do."""
    flight = InFlight()
    flight.hold(stack, state)
    flight.run(120)
    return flight.story
