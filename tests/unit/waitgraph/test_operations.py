"""Collectives that actors of several classes stand in: who is waited for there."""

from __future__ import annotations

from collections.abc import Mapping

from ray_sentinel.evidence.movement import Movement
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.waitgraph.facts import WaitNode, process_node
from ray_sentinel.waitgraph.job_processes import JobMember
from ray_sentinel.waitgraph.operations import ActorOperation, JobOperations

JOB = "01000000"


class Actors:
    """The actors of one job, and where they stand."""

    def __init__(self) -> None:
        self.members: dict[WaitNode, JobMember] = {}
        self.stacks: dict[WaitNode, StackFact] = {}
        self.moved: dict[WaitNode, Movement] = {}
        self.groups: dict[ProcessId, str] = {}
        self.called: dict[WaitNode, list[WaitNode]] = {}
        self.beside: list[WaitNode] = []

    def add(self, role: str, operation: str = "", group: str = "") -> WaitNode:
        """One that stands in an operation, or in none."""
        process = ProcessId("node1", 100 + len(self.members), 1)
        node, number = process_node(process), sum(m.role == role for m in self.members.values())
        label = f"{role} {number}"
        self.members[node] = JobMember(process=process, job=JOB, role=role, label=label, actor="a")
        self.stacks[node] = StackFact(
            process=process, operation=operation, waits_for_others=bool(operation)
        )
        if group:
            self.groups[process] = group
        return node

    def some(self, role: str, *operations: str, group: str = "") -> list[WaitNode]:
        return [self.add(role, operation, group) for operation in operations]

    def find(self) -> list[ActorOperation]:
        called: Mapping[WaitNode, list[WaitNode]] = self.called
        found = JobOperations(
            self.members,
            self.stacks,
            self.moved,
            self.groups,
            lambda node: called.get(node, []),
            lambda _: self.beside,
        )
        return list(found.find())

    def told(self) -> dict[str, tuple[list[str], list[str]]]:
        """By its text: who stands in an operation, and who is missing."""
        return {
            one.text: (
                [self.members[node].label for node in one.inside],
                [self.members[node].label for node in one.missing],
            )
            for one in self.find()
        }


def test_a_trainer_and_half_of_the_engines_wait_for_the_other_half() -> None:
    actors = Actors()
    actors.some("Trainer", "broadcast")
    actors.some("Engine", "broadcast", "", "broadcast", "")
    assert actors.told() == {
        "broadcast of Engine and Trainer": (
            ["Engine 0", "Engine 2", "Trainer 0"],
            ["Engine 1", "Engine 3"],
        )
    }


def test_trainers_at_a_barrier_wait_for_the_one_that_sends_weights_to_engines() -> None:
    actors = Actors()
    actors.some("Trainer", "broadcast", "barrier", "barrier")
    actors.some("Engine", "broadcast", "")
    assert actors.told() == {
        "broadcast of Engine and Trainer": (["Engine 0", "Trainer 0"], ["Engine 1"]),
        "barrier of Trainer": (["Trainer 1", "Trainer 2"], ["Trainer 0"]),
    }


def test_classes_that_are_complete_in_operations_of_their_own_wait_for_nobody_else() -> None:
    actors = Actors()
    actors.some("Policy", "all_reduce", "all_reduce")
    actors.some("Critic", "all_gather", "all_gather")
    assert all(not one.missing for one in actors.find())
    assert set(actors.told()) == {"all_reduce of Policy", "all_gather of Critic"}


def test_who_gets_further_meets_nobody() -> None:
    actors = Actors()
    policy = actors.some("Policy", "all_reduce", "all_reduce")
    actors.some("Critic", "all_reduce", "")
    actors.moved[policy[0]] = "moved"
    assert actors.told() == {
        "all_reduce of Critic": (["Critic 0"], ["Critic 1"]),
        "all_reduce of Policy": (["Policy 0", "Policy 1"], []),
    }


def test_a_class_that_lacks_one_of_its_own_meets_nobody() -> None:
    actors = Actors()
    actors.some("Policy", "all_reduce", "")
    actors.some("Critic", "all_reduce", "")
    assert actors.told() == {
        "all_reduce of Critic": (["Critic 0"], ["Critic 1"]),
        "all_reduce of Policy": (["Policy 0"], ["Policy 1"]),
    }


def test_of_a_group_that_spans_classes_those_that_are_in_no_operation_are_missing() -> None:
    actors = Actors()
    actors.some("Trainer", "broadcast", "broadcast", group="host:1")
    actors.some("Engine", "", "", group="host:1")
    actors.some("Judge", "", group="host:2")
    assert actors.told() == {
        "broadcast of Trainer and Engine": (["Trainer 0", "Trainer 1"], ["Engine 0", "Engine 1"])
    }


def test_who_was_called_on_the_way_to_an_operation_is_missing_there() -> None:
    actors = Actors()
    (trainer,) = actors.some("Trainer", "broadcast")
    engines = actors.some("Engine", "", "")
    actors.called[trainer] = engines[1:]
    assert actors.told() == {"broadcast of Trainer and Engine": (["Trainer 0"], ["Engine 1"])}


def test_two_groups_of_one_class_do_not_wait_for_each_other() -> None:
    actors = Actors()
    actors.some("Worker", "all_reduce", "", group="host:1")
    actors.some("Worker", "all_gather", "all_gather", group="host:2")
    found = {one.name: one.missing for one in actors.find()}
    assert len(found["all_reduce"]) == 1
    assert found["all_gather"] == ()


def test_who_is_known_to_be_in_no_group_yet_is_missing_in_that_of_its_class() -> None:
    actors = Actors()
    actors.some("Worker", "all_reduce", "all_reduce", group="host:1")
    actors.some("Worker", "")
    assert actors.told() == {"all_reduce of Worker": (["Worker 0", "Worker 1"], ["Worker 2"])}


def test_parts_of_a_class_that_meet_nobody_are_one_operation() -> None:
    actors = Actors()
    actors.some("Worker", "all_reduce", "broadcast")
    assert actors.told() == {"all_reduce of Worker": (["Worker 0", "Worker 1"], [])}


def test_ranks_of_another_class_that_were_called_beside_who_stands_there_are_missing() -> None:
    actors = Actors()
    trainer = actors.some("Trainer", "broadcast")
    engines = actors.some("Engine", "", "", group="host:1")
    judge = actors.some("Judge", "")
    actors.beside = [*trainer, engines[1], *judge]
    assert actors.told() == {"broadcast of Trainer and Engine": (["Trainer 0"], ["Engine 1"])}
