"""Jobs of actors whose processes ask each other over connections that are no calls of Ray's."""

from __future__ import annotations

import msgspec
import pytest

from tests.support import ray_story
from tests.support.ray_story import (
    COMPUTES,
    GETS,
    RESTS,
    SLEEPS,
    RayStory,
    StoryEngine,
    StoryProcess,
    actors,
    driver,
)

ASKS = msgspec.structs.replace(
    GETS, signature=("generate (rollout.py:5)", "recv_into (socket.py:706)"), label="reading"
)
LOOPS = msgspec.structs.replace(
    RESTS, signature=("generate (rollout.py:5)", "select (selectors.py:468)")
)
IN_THREAD = msgspec.structs.replace(SLEEPS, tid=99, switches=7)
WARM = 60


def asked(
    stack: ray_story.StackFact = ASKS, *, engine: bool = False
) -> tuple[RayStory, StoryProcess, StoryProcess]:
    """A rollout has asked a server, which nobody calls by Ray; the driver waits for the rollout.
    The story, rollout and server."""
    main, rollouts, (server,) = driver(), actors("Rollout", 2, 10), actors("Server", 1, 30)
    story = RayStory([main, *rollouts, server])
    if engine:
        story.served = [StoryEngine(server)]

    def healthy() -> None:
        story.iterate()
        server.rests(story.now)
        for one in story.served:
            one.tokens += 10

    story.run(WARM, healthy)
    for one in rollouts:
        one.rests(story.now)
    story.drives(main)
    rollouts[0].begins("generate", story.now, stack)
    story.call(main, rollouts[0], "generate")
    story.asks(rollouts[0], server)
    return story, rollouts[0], server


def test_the_thread_of_a_server_that_stands_in_a_request_is_named() -> None:
    story, _, server = asked()
    server.stack = IN_THREAD
    story.run(60)
    incident, (culprit,) = story.incident(), story.culprits()
    assert (incident.kind, culprit.actor, culprit.reason) == (
        "actor-stuck",
        "Server 0",
        "sleeping in score (reward.py:88)",
    )
    assert story.chain() == [
        ("driver", "Rollout.generate at Rollout 0", "ray.get"),
        ("Rollout.generate at Rollout 0", "Server 0", "an answer of"),
    ]
    assert incident.confirmed_at is not None
    assert incident.confirmed_at - ray_story.START - WARM <= 30.0


def test_a_server_that_works_holds_nobody_up_however_long() -> None:
    for stack in (ASKS, LOOPS):
        story, _, server = asked(stack)
        server.stack, server.goes_on = COMPUTES, True
        story.run(600)
        assert story.engine.incidents(everything=True) == ()
        (root,) = story.engine.view.ray.jobs[ray_story.JOB].roots
        assert root.root.kind == "works"
        assert "for an answer of Server 0 → which goes on" in root.root.sentence


def test_a_process_below_the_actor_is_named_by_its_pid() -> None:
    story, rollout, server = asked()
    story.asked = []
    story.asks(rollout, server, answerer=77)
    story.below = [StoryProcess(77, stack=msgspec.structs.replace(SLEEPS, tid=77, switches=7))]
    story.run(40)
    (culprit,) = story.culprits()
    assert (culprit.actor, culprit.pid, culprit.role) == ("Server 0", 77, "Server")


def test_an_engine_below_the_asked_actor_that_works_holds_nobody_up() -> None:
    story, _, _ = asked(LOOPS, engine=True)
    (engine,) = story.served
    engine.running = 3

    def generate() -> None:
        engine.tokens += 10

    story.run(600, generate)
    assert story.engine.incidents(everything=True) == ()


def test_the_chain_leads_through_the_asked_actor_to_its_engine() -> None:
    story, _, _ = asked(LOOPS, engine=True)
    (engine,) = story.served
    engine.running = 3
    story.run(200)
    incident = story.incident()
    assert (incident.job, incident.rule) == ("sglang-4711", "stall.requests")
    assert story.chain()[-1] == ("Rollout.generate at Rollout 0", "Server 0", "an answer of")


def test_a_driver_that_asks_itself_is_no_culprit() -> None:
    story, rollout, server = asked()
    main = story.processes[0]
    rollout.rests(story.now)
    story.drives(main)
    main.stack, story.asked = ASKS, []
    story.asks(main, server)
    server.stack = IN_THREAD
    story.run(200)
    assert [one.actor for one in story.culprits()] == ["Server 0"]
    assert story.chain()[-1] == ("driver", "Server 0", "an answer of")


def test_who_waits_for_a_lock_waits_for_no_answer() -> None:
    locked = msgspec.structs.replace(SLEEPS, activity="lock-wait", label="waiting for a lock")
    story, _, _ = asked(locked)
    story.run(60)
    assert [one.actor for one in story.culprits()] == ["Rollout 0"]


def test_two_that_only_send_to_each_other_are_no_circle_as_long_as_the_job_goes_on() -> None:
    main, (first, second), (third,) = driver(), actors("Peer", 2, 30), actors("Rollout", 1, 10)
    story = RayStory([main, first, second, third])
    story.train(WARM)
    story.drives(main)
    for one, other in ((first, second), (second, first)):
        one.begins("serve", story.now, LOOPS)
        story.call(main, one, "serve")
        story.asks(one, other)
    calls = list(story.calls)

    def goes_on() -> None:
        phase = int(story.now) % 4
        if phase == 0:
            third.begins("generate", story.now, COMPUTES)
            story.calls = calls
            story.call(main, third, "generate")
        elif phase == 3:
            third.rests(story.now)
            story.calls = calls

    story.run(120, goes_on)
    assert story.engine.incidents() == ()
    story.run(300)
    assert story.incident().kind == "call-deadlock", "and nothing has gone on for far too long"


def test_a_process_that_the_driver_has_started_is_named() -> None:
    story, rollout, _ = asked()
    story.asked = []
    story.asks(rollout, story.processes[0], answerer=77)
    story.below = [StoryProcess(77, stack=msgspec.structs.replace(SLEEPS, tid=77, switches=7))]
    story.run(40)
    (culprit,) = story.culprits()
    assert (culprit.actor, culprit.pid) == ("process 77 of the driver", 77)


def test_answers_of_processes_that_were_not_seen_in_the_end_change_nothing() -> None:
    story, rollout, server = asked(SLEEPS)
    server.stack = IN_THREAD
    gone = StoryProcess(99, "Server", 1)
    story.asks(rollout, gone)
    story.asks(gone, server)
    story.run(60)
    assert [one.actor for one in story.culprits()] == ["Rollout 0"]


@pytest.mark.parametrize("serves", [True, False])
def test_a_driver_that_serves_requests_waits_for_whoever_asks(serves: bool) -> None:
    main = driver()
    story = RayStory([main, *actors("Rollout", 2, 10)])
    story.train(WARM)
    for one in story.processes[1:]:
        one.rests(story.now)
    story.drives(main)
    main.stack = msgspec.structs.replace(LOOPS, users_code=True)
    if serves:
        story.serving = [main]
    story.run(300)
    told = [one.verdict.kind for one in story.engine.incidents() if one.verdict is not None]
    assert told == ([] if serves else ["driver-stuck"])


def test_what_was_sent_before_the_call_began_is_awaited_by_nobody() -> None:
    story, rollout, _ = asked(SLEEPS)
    story.asked = [msgspec.structs.replace(one, since=one.since - 5.0) for one in story.asked]
    rollout.stack = ASKS
    story.run(60)
    assert [one.actor for one in story.culprits()] == ["Rollout 0"]
