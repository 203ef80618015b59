"""What of a node's series an agent sends, and when."""

from __future__ import annotations

import random

from ray_sentinel.actors.agent.reporting import SAMPLE_SECONDS, NodeSampling
from ray_sentinel.actors.messages import AgentReport, HistoryRequest, Receipt, pack_masked, unpack
from ray_sentinel.engine.telemetry.series import Telemetry
from ray_sentinel.model.identity import Node
from ray_sentinel.model.metrics import Family, Metric
from ray_sentinel.model.progress import Snapshot

LOAD = Metric("hw_load1", "gauge", "")
LOSS = Metric("tb_loss", "gauge", "", ("run",))


class Pair:
    """An agent's sampling and the engine's telemetry, with real messages between them."""

    def __init__(self, history: HistoryRequest) -> None:
        self.sampling, self.telemetry = NodeSampling("life"), Telemetry()
        self.history = history
        self.sent: list[int] = []

    def second(self, now: int, value: float, late: float = 0.0) -> None:
        collected = (Family(LOAD, (LOAD(value),)),)
        measured = (*collected, Family(LOSS, (LOSS(-value, "r"),)))
        snapshot = Snapshot(
            node=Node(id="n", host="h", address=""),
            time=now,
            sequence=now,
            samples=self.sampling.due(collected, measured, now),
        )
        data = pack_masked(AgentReport(snapshot=snapshot, incarnation="life"))
        self.sent.append(len(snapshot.samples))
        self.telemetry.add(unpack(data, AgentReport).snapshot, now + late, 0.0)
        self.sampling.accept(Receipt(history=self.history, tables=self.telemetry.held("n")))

    def values(self) -> dict[str, list[float]]:
        node = self.telemetry.of("n")
        names = {key.name for stream in node.streams.values() for key in stream.columns.keys}
        return {name: [v for s in node.of_name(name).values() for v in s.values] for name in names}


def test_a_series_is_sent_once_and_when_it_is_due() -> None:
    pair = Pair(HistoryRequest(series=10, seconds=5.0))
    for now in range(60):
        pair.second(now, float(now))
    assert pair.values() == {
        "hw_load1": [float(now) for now in range(0, 60, 5)],
        "tb_loss": [-float(now) for now in range(5, 60, 5)],
    }
    assert sum(map(bool, pair.sent)) == 12
    assert SAMPLE_SECONDS < 5.0


def test_what_is_sampled_is_kept_with_its_moment_however_late_it_comes() -> None:
    pair, dice = Pair(HistoryRequest(series=10, seconds=5.0)), random.Random(7)
    for now in range(300):
        pair.second(now, float(now), late=dice.uniform(0.0, 1.5))
    streams = pair.telemetry.of("n").streams
    assert list(streams["rules"].times) == [float(now) for now in range(0, 300, 5)]
    assert list(streams["history"].times) == [float(now) for now in range(5, 300, 5)]
    assert pair.values()["hw_load1"] == list(streams["rules"].times)


def test_the_clock_of_another_agent_may_be_behind() -> None:
    pair = Pair(HistoryRequest())
    for now in range(20):
        pair.second(now, 1.0)
    pair.sampling = NodeSampling("another life")
    for now in range(10, 25):
        pair.second(now, 2.0)
    assert list(pair.telemetry.of("n").streams["rules"].times) == [0, 5, 10, 15, 15, 15, 20]
    assert pair.values()["hw_load1"] == [1.0] * 4 + [2.0] * 3


def test_the_history_s_series_come_as_often_as_was_asked_for_and_not_unasked() -> None:
    pair = Pair(HistoryRequest(series=10, seconds=20.0))
    for now in range(90):
        pair.second(now, float(now))
    assert pair.values()["tb_loss"] == [-5.0, -25.0, -45.0, -65.0, -85.0]
    assert len(pair.values()["hw_load1"]) == 18
    without = Pair(HistoryRequest())
    for now in range(30):
        without.second(now, 1.0)
    assert without.values().keys() == {"hw_load1"}


def test_a_coordinator_that_knows_nothing_any_more_gets_the_keys_again() -> None:
    pair = Pair(HistoryRequest(series=10, seconds=5.0))
    for now in range(20):
        pair.second(now, 1.0)
    pair.telemetry = Telemetry()
    for now in range(20, 31):
        pair.second(now, 2.0)
    assert set(pair.values()["hw_load1"]) == {2.0}
    assert pair.values().keys() == {"hw_load1", "tb_loss"}
