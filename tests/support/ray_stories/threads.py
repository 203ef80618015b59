"""Calls in threads and coroutines, of which the main thread of their actor tells nothing."""

from __future__ import annotations

import msgspec

from ray_sentinel.model.ray_calls import EndedCalls, FailedCall
from tests.support import ray_story
from tests.support.ray_stories.jobs import WARM, rollouts
from tests.support.ray_story import (
    COMPUTES,
    SELECTS,
    SLEEPS,
    WRITES,
    RayStory,
    actors,
    driver,
)


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


def awaits_another() -> RayStory:
    """A coroutine awaits, and another actor, which nobody waits for, is in a call of its own."""
    story, main, (first, second) = rollouts()
    story.call(main, first, "generate")
    story.call(second, second, "bring")
    second.goes_on = True
    second.begins("bring", story.now, COMPUTES)
    story.run(180, lambda: second.works(story.now))
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


def thread_writes(*, wakes: str = "", seconds: int = 60) -> RayStory:
    """A thread of an actor, whose main thread rests, is blocked in the kernel for some ``seconds``.
    It is put on a CPU "between looks", or in each "round" of one too. After the ``seconds`` all go
    on for a minute."""
    story, main, (first, _) = rollouts()
    first.begins("save", story.now, msgspec.structs.replace(WRITES, tid=99, switches=7))
    first.title = first.kind
    story.call(main, first, "save")
    first.wakes = wakes == "round"

    def second() -> None:
        first.works(story.now)
        if wakes == "between looks":
            first.stack = msgspec.structs.replace(first.stack, switches=story.looks)

    story.run(seconds, second)
    first.rests(story.now)
    story.drives(main)
    story.train(60)
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
