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
