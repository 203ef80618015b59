"""Whose calls have ended waits, from the times of calls as Ray's control store tells them."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from ray.core.generated import common_pb2, gcs_service_pb2

from ray_sentinel.actors.coordinator.ray.wakers import wakers_of
from ray_sentinel.model.ray_calls import CallWaker, RayCall

JOB = "01000000"
QUEUE, PRODUCER, CONSUMER = (f"{letter * 24}{JOB}" for letter in "abc")
DRIVER = f"{'f' * 40}{JOB}"
START = 1_700_000_000.0
Call = tuple[str, str, float, float]
"""Method, the id of the call that made it, begin and end in seconds."""


def reply(calls: Iterable[Call], actor: str = QUEUE) -> gcs_service_pb2.GetTaskEventsReply:
    found = gcs_service_pb2.GetTaskEventsReply()
    for number, (method, parent, begin, end) in enumerate(calls):
        event = found.events_by_task.add(task_id=bytes.fromhex(f"{number:016x}{actor}"))
        event.task_info.name = f"Queue.{method}"
        event.task_info.actor_id = bytes.fromhex(actor)
        event.task_info.parent_task_id = bytes.fromhex(parent)
        for state, at in ((common_pb2.RUNNING, begin), (common_pb2.FINISHED, end)):
            event.state_updates.state_ts_ns[state] = int((START + at) * 1e9)
    return found


def run_of(actor: str) -> str:
    return f"{7:016x}{actor}"


def waiting(method: str = "get") -> tuple[RayCall, ...]:
    return (
        RayCall(
            id=f"{99:016x}{QUEUE}",
            parent=run_of(CONSUMER),
            job=JOB,
            kind="actor-task",
            name=f"Queue.{method}",
            actor=QUEUE,
        ),
    )


def filled(rounds: int = 20, *, by: str = run_of(PRODUCER)) -> list[Call]:
    """A ``put`` each second ends the ``get`` that has waited for it."""
    return [
        call
        for n in range(rounds)
        for call in (("put", by, n + 0.9, n + 0.901), ("get", run_of(CONSUMER), n, n + 0.902))
    ]


def test_who_has_put_what_was_waited_for() -> None:
    (found,) = wakers_of(reply(filled()), waiting())
    assert found == CallWaker(
        actor=QUEUE, waits="Queue.get", wakes="Queue.put", caller=PRODUCER, owes=False
    )


def test_of_two_that_end_together_either_may_be_told_first() -> None:
    """The times of a real queue on a machine with many more threads than CPUs, in seconds."""
    puts = (0.930, 1.464, 2.106, 2.808, 3.184, 4.058, 4.728, 5.456, 6.049, 6.767, 7.454, 8.0038)
    gets = (
        (0.0, 0.9301),
        (1.115, 1.4639),
        (1.758, 2.1061),
        (2.303, 2.8079),
        (3.058, 3.1837),
        (3.383, 4.0578),
        (4.263, 4.7281),
        (4.943, 5.4559),
        (5.629, 6.0491),
        (6.237, 6.7656),
        (6.913, 7.4539),
        (7.653, 8.0037),
    )
    calls: list[Call] = [("put", run_of(PRODUCER), end - 0.002, end) for end in puts]
    calls += [("get", run_of(CONSUMER), begin, end) for begin, end in gets]
    (found,) = wakers_of(reply(calls), waiting())
    assert (found.wakes, found.caller, found.owes) == ("Queue.put", PRODUCER, False)


def test_a_driver_is_known_by_its_own_call() -> None:
    (found,) = wakers_of(reply(filled(by=DRIVER)), waiting())
    assert found.caller == DRIVER


def test_what_waits_for_room_is_ended_by_who_takes() -> None:
    full = [
        call
        for n in range(9)
        for call in (
            ("get", run_of(CONSUMER), n + 0.7, n + 0.7004),
            ("put", run_of(PRODUCER), n, n + 0.701),
        )
    ]
    (found,) = wakers_of(reply(full), waiting("put"))
    assert (found.waits, found.wakes, found.caller) == ("Queue.put", "Queue.get", CONSUMER)


def test_two_that_wait_in_turn() -> None:
    """Each ``put`` ends the older of two waits."""
    calls = [
        call
        for n in range(30)
        for call in (
            ("put", run_of(PRODUCER), n + 0.5, n + 0.501),
            ("get", run_of(CONSUMER), n - 1.4, n + 0.502),
        )
    ]
    assert [one.caller for one in wakers_of(reply(calls), waiting())] == [PRODUCER]


def test_who_holds_a_lock_owes_its_release() -> None:
    calls: list[Call] = []
    for n in range(12):
        holder, other = (PRODUCER, CONSUMER) if n % 2 else (CONSUMER, PRODUCER)
        calls.append(("release", run_of(holder), n + 0.5, n + 0.5005))
        calls.append(("acquire", run_of(other), n - 0.4, n + 0.501))
    found = {one.caller: one.owes for one in wakers_of(reply(calls), waiting("acquire"))}
    assert found == {PRODUCER: False, CONSUMER: True}


def test_who_only_puts_something_back_now_and_then_owes_nothing() -> None:
    calls = [*filled(), ("put", run_of(CONSUMER), 10.95, 10.951)]
    found = {one.caller: one.owes for one in wakers_of(reply(calls), waiting())}
    assert found == {PRODUCER: False, CONSUMER: False}


@pytest.mark.parametrize("seed", range(40))
def test_calls_that_only_happen_meanwhile_end_nothing(seed: int) -> None:
    """An engine generates by itself, however often it is asked for its health."""
    chance = random.Random(seed)
    calls: list[Call] = []
    at = 0.0
    for _ in range(chance.randrange(3, 40)):
        took = chance.uniform(0.2, 3.0)
        calls.append(("generate", run_of(CONSUMER), at, at + took))
        at += took + chance.uniform(0.0, 0.5)
    every = chance.choice((0.05, 0.3, 1.0, 4.0))
    health = chance.uniform(0.0, every)
    while health < at:
        calls.append(("health", run_of(PRODUCER), health, health + 0.001))
        health += every * chance.uniform(0.8, 1.2)
    assert wakers_of(reply(calls), waiting("generate")) == ()


def test_gets_that_never_waited_tell_nothing() -> None:
    calls = [
        call
        for n in range(20)
        for call in (
            ("put", run_of(PRODUCER), n + 0.1, n + 0.101),
            ("get", run_of(CONSUMER), n + 0.5, n + 0.502),
        )
    ]
    assert wakers_of(reply(calls), waiting()) == ()


def test_only_calls_that_run_are_asked_about() -> None:
    assert wakers_of(reply(filled()), waiting("size")) == ()
    assert wakers_of(reply(filled(), CONSUMER), waiting()) == ()
    assert wakers_of(reply(()), waiting()) == ()
