"""Trainers and engines of a Ray job, which wait for each other: who is named, and when."""

from __future__ import annotations

import msgspec

from tests.support import ray_story
from tests.support.ray_story import (
    GETS,
    REDUCES,
    RESTS,
    SLEEPS,
    RayStory,
    StoryEngine,
    actors,
    driver,
)

RECEIVES = msgspec.structs.replace(
    RESTS,
    signature=(
        "event_loop_normal (sglang/srt/managers/scheduler.py:990)",
        "recv_requests (sglang/srt/managers/scheduler.py:1100)",
    ),
    activity="collective-wait",
    waits_for_others=True,
)
FORWARD = msgspec.structs.replace(
    RESTS,
    signature=("forward (sglang/srt/models/toy.py:5)",),
    activity="sleep",
    label="sleeping",
    waits_for_others=False,
)
AWAITS = msgspec.structs.replace(
    GETS, signature=("generate (server.py:9)", "readline (io.py:1)"), label="reading"
)

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


def served(*, running: int, tokens_a_second: int, seconds: int = 200) -> RayStory:
    """A driver waits for a server's call, and that for the engine below it."""
    main, (server,) = driver(), actors("Server", 1, 10)
    story = RayStory([main, server])
    engine = StoryEngine(server, stack=RECEIVES)
    story.served.append(engine)

    def healthy() -> None:
        story.iterate()
        engine.tokens += 10

    story.run(WARM, healthy)
    server.rests(story.now)
    story.drives(main)
    server.begins("generate", story.now, AWAITS)
    story.call(main, server, "generate")
    engine.running = running

    def generate() -> None:
        engine.tokens += tokens_a_second

    story.run(seconds, generate)
    return story


def test_an_engine_that_works_holds_nobody_up_however_long() -> None:
    story = served(running=3, tokens_a_second=10, seconds=600)
    assert story.engine.incidents(everything=True) == ()
    (root,) = story.engine.view.ray.jobs[ray_story.JOB].roots
    assert root.root.kind == "works"
    assert root.root.sentence.endswith(
        "which goes on, last seen its engine sglang-4711 has 3 running, 0 waiting requests, "
        "which it works on"
    )


def test_the_server_of_an_engine_that_hangs_is_named_with_the_chain() -> None:
    story = served(running=3, tokens_a_second=0)
    incident, (culprit,) = story.incident(), story.culprits()
    assert (incident.kind, incident.rule, incident.job) == (
        "stall",
        "stall.requests",
        "sglang-4711",
    )
    assert (culprit.role, culprit.actor, culprit.method) == (
        "Server",
        "Server 0",
        "Server.generate",
    )
    assert culprit.reason == (
        "its engine sglang-4711 has 3 running, 0 waiting requests, which get no further"
    )
    assert story.chain() == [("driver", "Server.generate at Server 0", "ray.get")]
    assert incident.summary.endswith("; Server 0 on host1 waits for it in Server.generate")


def test_a_server_whose_engine_is_idle_holds_the_request_up_itself() -> None:
    story = served(running=0, tokens_a_second=0)
    incident, (culprit,) = story.incident(), story.culprits()
    assert (incident.kind, culprit.actor) == ("actor-stuck", "Server 0")
    assert culprit.reason == (
        "its engine sglang-4711 has no requests; reading in readline (io.py:1)"
    )


def test_a_rank_of_the_engine_that_stands_still_is_named_with_the_chain_to_it() -> None:
    story = served(running=3, tokens_a_second=0, seconds=0)
    (engine,) = story.served
    engine.stack = FORWARD
    story.run(200)
    assert {link[1] for link in story.chain()} >= {"Server.generate at Server 0"}
