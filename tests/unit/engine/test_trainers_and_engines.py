"""Trainers and engines of a Ray job, which wait for each other: who is named, and when."""

from __future__ import annotations

import msgspec

from tests.support import ray_story
from tests.support.ray_story import GETS, REDUCES, SLEEPS, RayStory, actors, driver

WARM = 60


def polling_ranks() -> RayStory:
    """An engine of a group stands still in a thread; the others are idle, and their main threads
    poll for Ray, which looks like work of their job of ranks."""
    main, (trainer,) = driver(), actors("Trainer", 1, 10)
    engines = actors("Engine", 4, 50, ranks=True)
    story = RayStory([main, trainer, *engines])

    def poll() -> None:
        for one in engines:
            one.works(story.now)

    def healthy() -> None:
        story.iterate()
        poll()

    story.run(WARM, healthy)
    for one in (trainer, *engines):
        one.rests(story.now)
    story.drives(main)
    trainer.begins("generate", story.now, GETS)
    story.call(main, trainer, "generate")
    stuck = engines[2]
    stuck.begins("update", story.now, msgspec.structs.replace(SLEEPS, tid=99, switches=7))
    story.call(trainer, stuck, "update")
    story.run(60, poll)
    return story


def weights(*, method: str) -> RayStory:
    """A trainer sends weights to three engines by a broadcast, and one does not come to it."""
    main, (trainer,) = driver(), actors("Trainer", 1, 10)
    engines = actors("Engine", 3, 50)
    story = RayStory([main, trainer, *engines])
    story.run(WARM, lambda: story.iterate(method))
    story.drives(main)
    sends = msgspec.structs.replace(
        REDUCES,
        signature=("send (train.py:1)", "broadcast (torch/distributed/distributed_c10d.py:2800)"),
        label="in broadcast",
        operation="broadcast",
    )
    for one in (trainer, *engines):
        one.begins(method, story.now, SLEEPS if one is engines[2] else sends)
        story.call(main, one, method)
    story.run(60)
    return story


def test_the_engine_that_does_not_come_to_the_broadcast_of_weights() -> None:
    story = weights(method="update_weights")
    incident, (culprit,) = story.incident(), story.culprits()
    assert (incident.kind, culprit.actor) == ("actor-stuck", "Engine 2")
    assert incident.summary.endswith(
        "4 processes wait in the weight synchronisation of Engine and Trainer (broadcast)"
    )


def test_without_a_word_of_weights_it_is_the_operation_of_both() -> None:
    summary = weights(method="meet").incident().summary
    assert summary.endswith("4 processes wait in broadcast of Engine and Trainer")


def test_weights_that_are_fetched_through_ray() -> None:
    main, (trainer,) = driver(), actors("Trainer", 1, 10)
    engines = actors("Engine", 2, 50)
    story = RayStory([main, trainer, *engines])
    story.run(WARM, lambda: story.iterate("gather_weights"))
    story.drives(main)
    trainer.begins("gather_weights", story.now, SLEEPS)
    story.call(main, trainer, "gather_weights")
    for one in engines:
        one.begins("load", story.now, GETS)
        story.call(main, one, "load")
    story.run(60)
    (culprit,) = story.culprits()
    assert culprit.actor == "Trainer 0"
    assert "3 processes wait in the weight synchronisation of Engine and Trainer (by Ray)" in (
        story.incident().summary
    )


def test_one_whose_fellows_poll_is_named_soon() -> None:
    story = polling_ranks()
    incident, (culprit,) = story.incident(), story.culprits()
    assert (incident.kind, culprit.actor, culprit.rank) == ("actor-stuck", "Engine 2", 2)
    assert incident.confirmed_at is not None
    assert incident.confirmed_at - ray_story.START - WARM < 20.0
