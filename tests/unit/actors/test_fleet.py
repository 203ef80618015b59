"""The reconciler between threads; Ray itself is in the integration tests."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.exceptions import ActorDiedError, RayError

from ray_sentinel.actors.agent import ray_node
from ray_sentinel.actors.agent.ray_node import CoordinatorLink
from ray_sentinel.actors.coordinator.executor import Executor
from ray_sentinel.actors.coordinator.fleet import NEXT_WAVE, WAVE, WAVE_SECONDS, Fleet, relay_pings
from ray_sentinel.actors.coordinator.roster import Roster
from ray_sentinel.actors.deployment import placement
from ray_sentinel.actors.hosts import RayNode
from ray_sentinel.actors.messages import AgentReport, Receipt, pack
from ray_sentinel.actors.report_deltas import MARK
from ray_sentinel.actors.storage import DeploymentStorage
from ray_sentinel.config import Config
from ray_sentinel.engine.actions import ProbeNode
from ray_sentinel.engine.events import AnyEvent, NodeDraining, NodeJoined, NodeLeft
from ray_sentinel.model.identity import Node
from ray_sentinel.model.progress import Snapshot
from tests.support.waiting import eventually


class FakeAgent:
    """An agent's handle, whose answers nobody waits for."""

    class ping:
        @staticmethod
        def remote() -> None:
            return None


NODE = {"NodeID": "n", "Alive": True, "NodeManagerAddress": "10.0.0.1"}


@pytest.fixture(autouse=True)
def _no_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "agents", set)


def test_a_node_that_is_left_while_its_agent_starts_keeps_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = Fleet(b"{}", lambda node_id: None)
    story: list[str] = []

    def start(*_: object) -> Any:
        story.append("started")
        fleet.release(["n"], "it is idle")
        return object()

    monkeypatch.setattr(ray, "nodes", lambda: [NODE])
    monkeypatch.setattr(placement, "groups", dict)
    monkeypatch.setattr(placement, "start_agent", start)
    monkeypatch.setattr(placement, "drop", lambda *_: story.append("dropped"))
    fleet.step(100.0)
    assert fleet.size == len(fleet.nodes()) == 1
    assert fleet.handle("n") is None
    assert fleet.released() == {"n"}
    assert story[0] == "started"
    assert story[-1] == "dropped"
    assert story.count("dropped") == 2, "once more, for the agent that was made meanwhile"


def test_an_error_without_a_word_is_said_by_its_kind(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def gone(*_: object, **__: object) -> None:
        raise RayError

    monkeypatch.setattr(ray_node.ray, "get_actor", gone)
    snapshot = Snapshot(node=Node(id="n", host="h", address="10.0.0.1"), time=0.0, sequence=1)
    assert CoordinatorLink().send(AgentReport(snapshot=snapshot, incarnation="one")) is None
    assert "RayError" in caplog.text


class FakeCoordinator:
    """A coordinator's handle, which takes reports as it does; ``ray.get`` gives what it gave."""

    def __init__(self) -> None:
        self.roster = Roster(Config())
        self.messages: list[bytes] = []
        self.taken: list[int] = []
        self.report = self

    def remote(self, data: bytes) -> bytes:
        self.messages.append(data)
        report = self.roster.opened(data)
        if report is None:
            return pack(Receipt())
        self.roster.store(report, 0.0, 1)
        self.taken.append(report.snapshot.sequence)
        return pack(Receipt(held=self.roster.held(report), interval=3.0))


def test_an_agent_sends_what_has_changed_and_the_whole_where_that_is_wanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there = FakeCoordinator()
    monkeypatch.setattr(ray_node.ray, "get_actor", lambda *_, **__: there)
    monkeypatch.setattr(ray_node.ray, "get", lambda answer, **_: answer)
    link = CoordinatorLink()
    node = Node(id="n" * 56, host="h" * 99, address="10.0.0.1")
    for sequence in (1, 2, 3):
        if sequence == 3:
            there.roster.forget(node.id)
        snapshot = Snapshot(node=node, time=0.0, sequence=sequence)
        receipt = link.send(AgentReport(snapshot=snapshot, incarnation="one"))
        assert receipt is not None
        assert (receipt.held, receipt.interval) == (sequence, 3.0)
    assert [data.startswith(MARK) for data in there.messages] == [False, True, True, False]
    assert there.taken == [1, 2, 3]


def test_a_node_that_died_while_no_coordinator_was_there_has_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    drained = {**NODE, "NodeID": "d", "Alive": False, "DeathReason": 3}
    crashed = {
        **NODE,
        "NodeID": "c",
        "Alive": False,
        "DeathReason": 2,
        "DeathReasonMessage": "gone",
    }
    monkeypatch.setattr(ray, "nodes", lambda: [NODE, drained, crashed])
    monkeypatch.setattr(placement, "groups", dict)
    monkeypatch.setattr(placement, "start_agent", lambda *_: FakeAgent())
    fleet = Fleet(b"{}", lambda node_id: None)
    assert fleet.departed("d", 100.0) is None, "nothing is known yet"
    fleet.step(100.0)
    assert fleet.departed("n", 100.0) is None
    assert fleet.departed("d", 100.0) == NodeLeft(
        time=100.0, node_id="d", expected=True, reason="because the autoscaler saw it preempted"
    )
    assert fleet.departed("c", 100.0) == NodeLeft(
        time=100.0, node_id="c", reason="unexpectedly: gone"
    )
    assert fleet.departed("x", 100.0) == NodeLeft(time=100.0, node_id="x", reason="Ray forgot it")
    config = Config(log_dir=str(tmp_path))
    executing = Executor(config, fleet, DeploymentStorage(config))
    answers: list[AnyEvent] = []
    executing.feed = lambda event: answers.append(event) or 0  # type: ignore[func-returns-value]
    executing(ProbeNode(node_id="c"))
    (told,) = eventually(lambda: answers, "the node is asked")
    assert isinstance(told, NodeLeft)
    assert told.reason == "unexpectedly: gone"


def test_a_node_that_is_drained_is_told_once_and_given_no_agent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ray, "nodes", lambda: [NODE])
    monkeypatch.setattr(placement, "groups", dict)
    monkeypatch.setattr(placement, "has_agent", lambda node_id: False)
    monkeypatch.setattr(placement, "drop", lambda *_: None)
    told = {"n": 200.0, "gone": 0.0}
    events: list[AnyEvent] = []
    fleet = Fleet(b"{}", lambda node_id: None, lambda: told, events.append)
    fleet.step(100.0)
    assert NodeDraining(time=100.0, node_id="n", deadline=200.0) in events
    assert (fleet.draining(), fleet.released()) == ({"n": 200.0}, {"n"})
    assert fleet.notes() == (
        "10.0.0.1 is being drained: it goes once nothing runs there, or at 00:03:20 UTC",
    )
    events.clear()
    fleet.step(102.0)
    assert events == []
    told["n"] = 300.0
    fleet.step(104.0)
    assert events == [NodeDraining(time=104.0, node_id="n", deadline=300.0)]


def test_the_agent_of_a_drained_node_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "nodes", lambda: [NODE])
    monkeypatch.setattr(placement, "groups", dict)
    monkeypatch.setattr(placement, "has_agent", lambda node_id: True)
    monkeypatch.setattr(placement, "start_agent", lambda *_: FakeAgent())
    fleet = Fleet(b"{}", lambda node_id: None, lambda: {"n": 0.0})
    fleet.step(100.0)
    assert fleet.handle("n") is not None, "as after a restart of the coordinator"


def test_a_control_store_that_lists_no_living_node_is_not_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that has just begun, without what it knew, lists nothing; we run on a living node."""
    events: list[AnyEvent] = []
    fleet = Fleet(b"{}", lambda node_id: 100.0, tell=events.append)
    dropped: list[str] = []
    monkeypatch.setattr(ray, "nodes", lambda: [NODE])
    monkeypatch.setattr(placement, "groups", lambda: {"n": None})
    monkeypatch.setattr(placement, "start_agent", lambda *_: FakeAgent)
    monkeypatch.setattr(placement, "drop", lambda node_id, _: dropped.append(node_id))
    fleet.step(100.0)
    events.clear()
    for listed in ([], [{**NODE, "Alive": False}]):
        monkeypatch.setattr(ray, "nodes", lambda listed=listed: listed)
        fleet.step(101.0)
        assert events == []
    assert fleet.handle("n") is FakeAgent
    assert dropped == []


def test_what_was_seen_before_the_control_store_failed_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A node's end is seen once: Ray lists no more of it then, and its slot has gone."""
    away = False

    def groups() -> dict[str, None]:
        if away:
            raise RayError("the control store is away")
        return {"n": None, "m": None}

    def draining() -> dict[str, float]:
        if away:
            raise RayError("the control store is away")
        return {}

    other = {**NODE, "NodeID": "m", "NodeManagerAddress": "10.0.0.2"}
    dropped: list[str] = []
    monkeypatch.setattr(ray, "nodes", lambda: [NODE, other])
    monkeypatch.setattr(placement, "groups", groups)
    monkeypatch.setattr(placement, "start_agent", lambda *_: FakeAgent())
    monkeypatch.setattr(placement, "drop", lambda node_id, _: dropped.append(node_id))
    events: list[AnyEvent] = []
    fleet = Fleet(b"{}", lambda node_id: 100.0, draining, events.append)
    fleet.step(100.0)
    assert {event.node.id for event in events if isinstance(event, NodeJoined)} == {"n", "m"}
    events.clear()
    away = True
    monkeypatch.setattr(ray, "nodes", lambda: [NODE, {**other, "Alive": False}])
    with pytest.raises(RayError):
        fleet.step(101.0)
    (left,) = events
    assert isinstance(left, NodeLeft)
    assert left.node_id == "m"
    # A node that comes while what is asked for after it fails.
    third = {**NODE, "NodeID": "o", "NodeManagerAddress": "10.0.0.3"}
    monkeypatch.setattr(placement, "groups", lambda: {"n": None, "m": None})
    monkeypatch.setattr(ray, "nodes", lambda: [NODE, third])
    with pytest.raises(RayError):
        fleet.step(102.0)
    assert dropped == ["m"], "the look for groups that nobody needs is made good"
    away = False
    fleet.step(103.0)
    _, come = events
    assert isinstance(come, NodeJoined)
    assert come.node.id == "o"


def test_nodes_come_also_while_groups_cannot_be_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What dead nodes had is looked for with each step until that works; nothing waits for it."""

    def groups() -> dict[str, None]:
        raise RayError("no list of groups")

    monkeypatch.setattr(ray, "nodes", lambda: [NODE])
    monkeypatch.setattr(placement, "groups", groups)
    events: list[AnyEvent] = []
    fleet = Fleet(b"{}", lambda node_id: 100.0, tell=events.append)
    for now in (100.0, 101.0):
        with pytest.raises(RayError):
            fleet.step(now)
    assert [type(event) for event in events] == [NodeJoined]


def test_agents_are_started_in_waves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a large cluster the control store gets some at a time, and the next as they report."""
    nodes = [{**NODE, "NodeID": f"n{number}"} for number in range(3 * WAVE)]
    heard: dict[str, float] = {}
    started: list[str] = []
    looks: list[int] = []

    def start(node: RayNode, *_: object) -> FakeAgent:
        started.append(node.id)
        return FakeAgent()

    def groups() -> dict[str, object]:
        looks.append(len(started))
        return {}

    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    monkeypatch.setattr(ray, "wait", lambda refs, timeout: ([], refs))
    monkeypatch.setattr(placement, "groups", groups)
    monkeypatch.setattr(placement, "start_agent", start)
    fleet = Fleet(b"{}", heard.get)
    fleet.step(100.0)
    assert len(started) == WAVE
    assert len(looks) == 2, "at what dead nodes left, and once for all that are started"
    fleet.step(102.0)
    assert len(started) == WAVE, "none has reported"
    waiting = {node.id: node.reason for node in fleet.unwatched(102.0)}
    assert waiting["n0"] == "the agent is starting"
    assert waiting[f"n{3 * WAVE - 1}"] == NEXT_WAVE
    heard.update(dict.fromkeys(started[:40], 103.0))
    fleet.step(104.0)
    assert len(started) == WAVE + 40
    # Those that never report keep nobody waiting for long.
    fleet.step(104.0 + WAVE_SECONDS + 1.0)
    assert len(started) == 2 * WAVE + 40
    heard.update(dict.fromkeys(started, 130.0))
    fleet.step(131.0)
    assert started == [f"n{number}" for number in range(3 * WAVE)]
    heard.update(dict.fromkeys(started, 132.0))
    fleet.step(133.0)
    assert fleet.unwatched(133.0) == ()


def test_agents_that_an_earlier_coordinator_made_wait_for_no_wave(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor do they keep those waiting that are to be made."""
    names = [f"n{number}" for number in range(3 * WAVE)]
    started: list[str] = []

    def start(node: RayNode, *_: object) -> FakeAgent:
        started.append(node.id)
        return FakeAgent()

    monkeypatch.setattr(ray, "nodes", lambda: [{**NODE, "NodeID": name} for name in names])
    monkeypatch.setattr(ray, "wait", lambda refs, timeout: ([], refs))
    monkeypatch.setattr(placement, "groups", dict)
    monkeypatch.setattr(placement, "agents", lambda: set(names[: 2 * WAVE - 1]))
    monkeypatch.setattr(placement, "start_agent", start)
    fleet = Fleet(b"{}", lambda node_id: None)
    fleet.step(100.0)
    assert started == names[:-1]
    assert [n.id for n in fleet.unwatched(100.0) if n.reason == NEXT_WAVE] == names[-1:]
    fleet.step(101.0)
    assert names[-1] not in started, "a whole wave is being made"
    fleet.step(100.0 + WAVE_SECONDS + 1.0)
    assert started == names


class Table:
    """The placement groups of some nodes, whose agents are gone already."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, names: Iterable[str]) -> None:
        self.groups: dict[str, Any] = {name: name for name in names}
        self.looks = 0
        self.away = False
        monkeypatch.setattr(placement, "groups", self.look)
        monkeypatch.setattr(placement, "remove_placement_group", self.groups.pop)
        monkeypatch.setattr(ray, "get_actor", self.no_actor)

    def look(self) -> dict[str, Any]:
        self.looks += 1
        if self.away:
            raise RayError("the control store is away")
        return dict(self.groups)

    @staticmethod
    def no_actor(name: str, namespace: str) -> None:
        raise ValueError(name)


NAMES = [f"n{number}" for number in range(100)]


def watching(monkeypatch: pytest.MonkeyPatch, now: float) -> Fleet:
    """A fleet of a hundred nodes whose agents are there."""
    monkeypatch.setattr(ray, "nodes", lambda: [{**NODE, "NodeID": name} for name in NAMES])
    monkeypatch.setattr(ray, "wait", lambda refs, timeout: ([], refs))
    monkeypatch.setattr(placement, "agents", lambda: set(NAMES))
    monkeypatch.setattr(placement, "start_agent", lambda *_: FakeAgent())
    fleet = Fleet(b"{}", lambda node_id: None)
    fleet.step(now)
    assert fleet.handles().keys() == set(NAMES)
    return fleet


def test_what_dead_nodes_left_is_dropped_with_one_look_at_the_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = Table(monkeypatch, [*NAMES, *(f"dead{number}" for number in range(50))])
    watching(monkeypatch, 100.0)
    assert table.groups.keys() == set(NAMES)
    assert table.looks == 2, "at what dead nodes left, and once for all that are started"


def test_many_nodes_are_left_with_one_look_at_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(monkeypatch, NAMES)
    fleet = watching(monkeypatch, 100.0)
    table.looks, table.away = 0, True
    with pytest.raises(RayError):
        fleet.release(NAMES[:40], "it is idle")
    assert fleet.released() == frozenset(), "they are left when the control store is back"
    table.looks, table.away = 0, False
    fleet.release(NAMES[:40], "it is idle")
    assert fleet.released() == set(NAMES[:40])
    assert fleet.handles().keys() == table.groups.keys() == set(NAMES[40:])
    fleet.release(NAMES[:40], "it is idle")
    assert table.looks == 1, "and none for those that are left already"


def test_a_node_that_is_recalled_while_others_are_left_keeps_its_agent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = Table(monkeypatch, NAMES)
    fleet = watching(monkeypatch, 100.0)
    recalled, dropped = NAMES[0], list[str]()

    def drop(node_id: str, groups: object = None) -> None:
        dropped.append(node_id)
        fleet.recall(recalled, 101.0)

    monkeypatch.setattr(placement, "drop", drop)
    fleet.release(NAMES[:3], "it is idle")
    assert dropped == [NAMES[2], NAMES[1]]
    assert fleet.released() == set(NAMES[1:3])
    assert recalled in table.groups


def test_agents_that_died_for_good_are_dropped_with_one_look_at_the_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def dead(ref: object) -> None:
        raise ActorDiedError

    table = Table(monkeypatch, NAMES)
    fleet = watching(monkeypatch, 100.0)
    monkeypatch.setattr(FakeAgent.ping, "remote", object)
    fleet.step(101.0)
    monkeypatch.setattr(ray, "wait", lambda refs, timeout: (refs, []))
    monkeypatch.setattr(ray, "get", dead)
    table.looks = 0
    fleet.step(102.0)
    assert (fleet.handles(), table.groups, table.looks) == ({}, {}, 1)


def test_relays_are_made_with_one_look_at_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(node: RayNode, known: dict[str, object]) -> FakeAgent:
        if node.id not in known:
            raise ValueError("its agent has no placement group")
        return FakeAgent()

    table = Table(monkeypatch, NAMES)
    nodes = [
        RayNode(id=name, address="10.0.0.1", hostname="", alive=True, is_head=False)
        for name in (*NAMES[:20], "another")
    ]
    monkeypatch.setattr(placement, "start_relay", start)
    monkeypatch.setattr(ray, "wait", lambda refs, timeout: ([], refs))
    pings = relay_pings(nodes)
    assert {name for name, answers in pings.items() if answers() is None} == set(NAMES[:20])
    assert pings["another"]() is False
    assert table.looks == 1
    relay_pings([])
    assert table.looks == 1
    table.away = True
    assert [answers() for answers in relay_pings(nodes[:2]).values()] == [False, False]
