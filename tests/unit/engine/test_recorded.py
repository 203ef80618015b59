"""Event logs of real runs, played through the engine again."""

from __future__ import annotations

from pathlib import Path

from ray_sentinel.actors.coordinator.event_log.log import read_segment
from ray_sentinel.engine.engine import Engine

EVENTS = Path(__file__).parents[2] / "fixtures/events"


def played(name: str) -> Engine:
    engine = Engine()
    for event in read_segment(EVENTS / f"{name}.jsonl.gz")[1]:
        engine.handle(event)
    return engine


def test_one_that_evaluates_on_a_crowded_machine_is_not_accused() -> None:
    """Six ranks on two CPUs beside ten times as many processes. Rank 0 evaluates for 30 s in turns
    of 4 ms and a sleep, and five wait for it at a barrier; nobody attached."""
    engine = played("crowded_evaluation")
    assert engine.incidents() == ()
    (suspicion,) = engine.incidents(everything=True)
    assert suspicion.state == "dismissed"


def test_an_actor_whose_short_calls_on_a_gpu_follow_each_other_is_accused_once_one_hangs() -> None:
    """Each call asks the GPU for 0.4 s until it has finished; the actor never rests and has one
    title. Every fourth look finds no running call, for workers tell of them once a second. After a
    minute a call launches a kernel that never ends."""
    engine = played("back_to_back_gpu_calls")
    (incident,) = engine.incidents(everything=True)
    assert incident.kind == "device-stuck"
    assert incident.verdict is not None
    (culprit,) = incident.verdict.culprits
    assert culprit.actor == "Rollout 0"
    assert culprit.reason == "waiting for the device in synchronize (torch/cuda/__init__.py:1162)"
    assert incident.last_progress is not None
    assert incident.confirmed_at is not None
    assert 15.0 < incident.confirmed_at - incident.last_progress < 20.0
