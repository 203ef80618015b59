"""One process holds a job up, and its main thread or its end tells: an actor or the driver."""

from __future__ import annotations

import msgspec

from ray_sentinel.model.progress import RayExit
from ray_sentinel.model.ray_calls import EndedCalls
from ray_sentinel.model.stacks import StackFact
from tests.support import ray_story
from tests.support.ray_stories.jobs import WARM, rollouts
from tests.support.ray_story import (
    COMPUTES,
    GETS,
    OTHER_JOB,
    SLEEPS,
    STOPPED,
    WRITES,
    RayStory,
    actors,
    driver,
)


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


def ends_unnoticed(*, noticed_after: int = 60) -> RayStory:
    """The process of a rollout is killed, and Ray does not notice it for so many seconds: what the
    process had forked keeps its connections open."""
    story, main, (first, _) = rollouts()
    story.call(main, first, "generate", "queued")
    story.exits = [RayExit(process=first.id, at=story.now, signal=9)]
    story.run(noticed_after)
    return story


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
