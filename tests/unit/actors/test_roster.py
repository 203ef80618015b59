"""Who has reported, and which exits may be forgotten."""

from __future__ import annotations

import msgspec
import pytest

from ray_sentinel.actors.coordinator.roster import Roster
from ray_sentinel.actors.hosts import RayNode
from ray_sentinel.actors.messages import AgentReport
from ray_sentinel.config import Config, CoordinatorConfig
from ray_sentinel.model.identity import Node, ProcessId, Rank, RankId
from ray_sentinel.model.progress import Exit, Snapshot


def report(
    node: str = "n",
    incarnation: str = "one",
    exits: tuple[int, ...] = (),
    boot: str = "b",
    raylet: int = 0,
) -> AgentReport:
    rank = Rank(id=RankId("j", 0, 0), process=ProcessId("h", 1), node=node)
    return AgentReport(
        snapshot=Snapshot(
            node=Node(id=node, host=f"host-{node}", address=f"10.0.0.{node}", boot_id=boot),
            time=0.0,
            sequence=1,
            exits=tuple(Exit(rank=rank, at=0.0, order=order) for order in exits),
            metrics_url=f"http://10.0.0.{node}:9400/metrics",
        ),
        incarnation=incarnation,
        raylet=raylet,
    )


def test_exits_are_acknowledged_once_they_are_in_the_log() -> None:
    roster, logged = Roster(Config()), 0
    said = report(exits=(1, 2))
    roster.store(said, 1.0, number=10)
    assert roster.acknowledged(said, lambda number: number <= logged) == ()
    logged = 10
    assert roster.acknowledged(said, lambda number: number <= logged) == (1, 2)
    # The agent sends them once more before it has the receipt, with a new one.
    again = report(exits=(1, 2, 3))
    roster.store(again, 2.0, number=11)
    assert roster.acknowledged(again, lambda number: number <= logged) == (1, 2)
    logged = 11
    assert roster.acknowledged(again, lambda number: number <= logged) == (1, 2, 3)


def test_a_new_incarnation_counts_its_exits_anew() -> None:
    roster = Roster(Config())
    first = report(exits=(1,))
    roster.store(first, 1.0, number=1)
    assert roster.acknowledged(first, lambda _: True) == (1,)
    second = report(incarnation="two", exits=(1,))
    roster.store(second, 2.0, number=2)
    assert roster.acknowledged(second, lambda number: number < 2) == ()
    assert roster.agents(2.0)[0].restarts == 1
    assert "restarted 1 times" in roster.notes()[0]


def test_raylets_of_one_machine_are_told_to_each_other() -> None:
    roster = Roster(Config())
    here, beside = report("1", raylet=10), report("2", raylet=20)
    elsewhere = report("3", boot="other", raylet=30)
    for number, said in enumerate((here, beside, elsewhere)):
        roster.store(said, 1.0, number)
    assert roster.raylets_beside(here) == (10, 20)
    assert roster.raylets_beside(elsewhere) == (30,)


def test_targets_nodes_and_forgetting() -> None:
    roster = Roster(Config())
    roster.store(report("1"), 1.0, 1)
    roster.store(report("2"), 2.5, 2)
    assert roster.targets() == ("10.0.0.1:9400", "10.0.0.2:9400")
    assert roster.fresh(4.5) == 1
    living = {
        key: RayNode(id=key, hostname="h", address=key, alive=True, is_head=key == "2")
        for key in ("1", "2", "3")
    }
    lines = roster.nodes(living, lambda node: node.id, now=3.0)
    assert [line.host for line in lines] == ["host-2", "host-1"], "the head first"
    assert lines[0].snapshot_age_seconds == 0.5
    assert not roster.all_heard(living)
    roster.forget("1")
    assert roster.targets() == ("10.0.0.2:9400",)


def test_an_agent_is_told_the_targets_once_and_again_when_they_change() -> None:
    roster = Roster(Config())
    roster.store(report("1"), 1.0, 1)
    version, targets = roster.targets_beyond(0)
    assert targets == ("10.0.0.1:9400",)
    roster.store(report("1"), 2.0, 2)
    assert roster.targets_beyond(version) == (version, None)
    roster.store(report("2"), 2.0, 3)
    newer, targets = roster.targets_beyond(version)
    assert targets == ("10.0.0.1:9400", "10.0.0.2:9400")
    moved = report("2")
    snapshot = msgspec.structs.replace(moved.snapshot, metrics_url="http://10.0.0.2:9401/metrics")
    roster.store(msgspec.structs.replace(moved, snapshot=snapshot), 3.0, 4)
    assert roster.targets_beyond(newer)[1] == ("10.0.0.1:9400", "10.0.0.2:9401")
    another = Roster(Config())
    another.store(report("1"), 1.0, 1)
    assert another.targets_beyond(version) == (version, None), "the same of another coordinator"
    roster.keep(())
    assert roster.targets_beyond(0)[1] == ()
    assert roster.targets_beyond(0)[0] != 0


def test_a_raylet_that_is_started_anew_is_told_and_one_that_has_left_is_not() -> None:
    roster = Roster(Config())
    here, beside = report("1", raylet=10), report("2", raylet=20)
    roster.store(here, 1.0, 1)
    roster.store(beside, 1.0, 2)
    assert roster.raylets_beside(here) == (10, 20)
    roster.store(report("2", raylet=21), 2.0, 3)
    assert roster.raylets_beside(here) == (10, 21)
    roster.store(report("2", raylet=21, boot="other"), 3.0, 4)
    assert roster.raylets_beside(here) == (10,)
    roster.store(report("2", raylet=21), 4.0, 5)
    roster.forget("2")
    assert roster.raylets_beside(here) == (10,)


def test_idle_is_counted_from_the_last_rank() -> None:
    roster = Roster(Config())
    roster.store(report("1"), 1.0, 1)
    roster.store(report("1"), 50.0, 2)
    assert roster.idle_seconds(60.0) == {"1": 59.0}


def test_the_last_word_of_a_node_that_has_left_is_forgotten_too() -> None:
    roster = Roster(Config())
    roster.store(report("1"), 1.0, number=1)
    roster.forget("1")
    roster.store(report("1"), 1.1, number=2)  # it was on its way
    roster.store(report("2"), 1.1, number=3)
    roster.keep({"2", "3"})
    assert roster.targets() == ("10.0.0.2:9400",)


def test_agents_report_less_often_the_more_there_are() -> None:
    roster = Roster(Config(coordinator=CoordinatorConfig(reports_per_second=4)))
    seen = []
    for number in range(12):
        roster.store(report(str(number)), 1.0, number=number)
        seen.append(roster.interval)
    assert seen == [1.0] * 4 + [1.25, 1.5, 1.75] + [2.0] * 5


def test_an_agent_that_may_report_late_is_heard_of_lately() -> None:
    roster = Roster(Config())
    soon, late = report("1"), report("2")
    late = msgspec.structs.replace(
        late, snapshot=msgspec.structs.replace(late.snapshot, interval=2.0)
    )
    for said in (soon, late):
        roster.store(said, 1.0, number=1)
    assert [roster.fresh(now) for now in (4.0, 6.0, 8.0)] == [2, 1, 0]


def test_reports_a_second_are_those_of_the_last_seconds() -> None:
    roster = Roster(Config())
    assert roster.per_second(0.0) == 0.0
    for second in range(60):
        for number in range(3):
            roster.store(report(str(number)), 1.0 + second + number / 10, number=1)
    assert roster.per_second(61.0) == pytest.approx(3.0, abs=0.4)
    assert roster.per_second(64.0) == pytest.approx(2.1, abs=0.4)
    assert roster.per_second(80.0) == 0.0


def test_reports_are_due_as_often_as_each_agent_says() -> None:
    roster = Roster(Config())
    for number, interval in enumerate((0.0, 1.0, 2.0, 2.0)):
        said = report(str(number))
        paced = msgspec.structs.replace(said.snapshot, interval=interval)
        roster.store(msgspec.structs.replace(said, snapshot=paced), 1.0, number=1)
    assert roster.due_per_second == 3.0


def test_the_memory_of_an_agent_is_in_its_line() -> None:
    roster = Roster(Config())
    told = {"1": 70 << 20, "2": None}
    for number, taken in told.items():
        said = msgspec.structs.replace(report(number), memory_bytes=taken)
        roster.store(said, 1.0, number=1)
    living = {
        node: RayNode(id=node, hostname="h", address=node, alive=True, is_head=False)
        for node in told
    }
    lines = roster.nodes(living, lambda node: "", 1.0)
    assert {line.id: line.memory_bytes for line in lines} == told


def test_a_report_that_was_taken_or_overtaken_is_late() -> None:
    roster = Roster(Config())
    second = msgspec.structs.replace(
        report(), snapshot=msgspec.structs.replace(report().snapshot, sequence=2)
    )
    assert not roster.is_late(second)
    roster.store(second, 1.0, number=1)
    assert roster.is_late(second)
    assert roster.is_late(report())
    assert not roster.is_late(report(incarnation="two")), "another agent counts anew"
    assert not roster.is_late(report(node="m"))


def test_a_report_of_the_agent_before_is_late() -> None:
    roster = Roster(Config())
    for number, incarnation in enumerate(("one", "two"), start=1):
        roster.store(report(incarnation=incarnation), float(number), number=number)
    assert roster.is_late(report(incarnation="one"))
    assert not roster.is_late(report(incarnation="three"))


def test_of_a_node_that_has_gone_nothing_is_acknowledged() -> None:
    assert Roster(Config()).acknowledged(report(exits=(1,)), lambda _: True) == ()


def test_an_agent_that_reports_after_the_next_one_does_not_take_its_place() -> None:
    roster = Roster(Config())
    first, second = (
        msgspec.structs.replace(report(incarnation=name), began=began)
        for name, began in (("first", 10.0), ("second", 20.0))
    )
    roster.store(second, 1.0, number=1)
    assert roster.is_late(first), "a relay had it"
    third = msgspec.structs.replace(report(incarnation="third"), began=30.0)
    assert not roster.is_late(third)
    assert not roster.is_late(report(incarnation="of an older version"))
