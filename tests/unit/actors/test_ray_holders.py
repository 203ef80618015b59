"""Who holds the resources of nodes, by replies as Ray builds them."""

from __future__ import annotations

from typing import Any

import msgspec
from ray.core.generated import common_pb2, gcs_pb2, gcs_service_pb2

from ray_sentinel.actors.coordinator.ray.holders import (
    MOST_HOLDERS,
    Held,
    placement_of,
)
from ray_sentinel.model.placement import PlacedGroup, ResourceHolder

NODE = b"n" * 4
FREE = {NODE.hex(): {"CPU": 1.0}}


def actor(name: str, job: bytes, *, detached: bool = False, **needs: float) -> Any:
    one = gcs_pb2.ActorTableData(
        name=name, job_id=job, is_detached=detached, state="ALIVE", class_name="Rollout"
    )
    one.address.node_id = NODE
    one.required_resources.update(needs)
    return one


def held(*actors: object, cpus: float = 8.0, tasks: int = 0) -> Held:
    jobs = gcs_service_pb2.GetAllJobInfoReply()
    for number in (1, 2):
        jobs.job_info_list.add(
            job_id=bytes([number]), is_dead=number == 1, entrypoint="python train.py"
        )
    totals = gcs_service_pb2.GetAllTotalResourcesReply()
    node = totals.resources_list.add(node_id=NODE)
    node.resources_total.update({"CPU": cpus, "CPU_group_0_ab": 2.0})
    running = gcs_service_pb2.GetTaskEventsReply()
    for number in range(tasks):
        event = running.events_by_task.add(task_id=bytes([number]), job_id=b"\x02")
        event.task_info.type = common_pb2.NORMAL_TASK
        event.task_info.name = "score"
        event.task_info.required_resources["CPU"] = 1.0
        event.state_updates.node_id = NODE
    groups = gcs_service_pb2.GetAllPlacementGroupReply()
    group = groups.placement_group_table_data.add(
        name="kept", state="CREATED", creator_job_id=b"\x01", creator_job_dead=True
    )
    bundle = group.bundles.add(node_id=NODE)
    bundle.unit_resources["CPU"] = 2.0
    return Held(jobs=jobs, actors=actors, groups=groups, running=running, totals=totals)


def test_orphans_come_first_and_those_alike_are_told_together() -> None:
    alike = [actor("", b"\x02", CPU=1.0) for _ in range(2)]
    inside = actor("inside", b"\x02", CPU_group_0_ab=1.0)
    found = placement_of(
        held(*alike, inside, actor("keeper", b"\x01", detached=True, CPU=1.0)), FREE
    )
    assert found.total_on == {NODE.hex(): {"CPU": 8.0}}
    gone, job = "detached, and its job is over", "train"
    assert found.holders == (
        ResourceHolder(
            kind="placement group", name="kept", job=f"{job}-1", holds={"CPU": 2.0},
            orphan="its job is over",
        ),
        ResourceHolder(
            kind="actor", name="keeper", job=f"{job}-1", holds={"CPU": 1.0}, orphan=gone,
        ),
        ResourceHolder(kind="actor", name="Rollout", job=f"{job}-2", count=2, holds={"CPU": 2.0}),
    )  # fmt: skip


def test_what_a_living_actor_of_an_ended_job_has_made_is_no_orphan() -> None:
    controller = actor("controller", b"\x01", detached=True, CPU=1.0)
    controller.address.worker_id = b"w"
    replica = actor("replica", b"\x01", detached=True, CPU=1.0)
    replica.owner_address.worker_id = b"w"
    left = actor("left", b"\x01", CPU=1.0)
    left.owner_address.worker_id = b"gone"
    found = placement_of(held(controller, replica, left), FREE)
    assert {one.name: one.orphan for one in found.holders if one.kind == "actor"} == {
        "controller": "detached, and its job is over",
        "replica": "",
        "left": "its driver is gone",
    }


def test_tasks_that_may_have_given_their_cpus_back_are_not_named() -> None:
    names = [one.name for one in placement_of(held(cpus=8.0, tasks=5), FREE).holders]
    assert names == ["kept", "score"]
    names = [one.name for one in placement_of(held(cpus=8.0, tasks=6), FREE).holders]
    assert names == ["kept"]


def test_what_is_not_told_costs_that_alone_and_ten_thousand_are_few() -> None:
    assert placement_of(Held(), FREE).holders == ()
    many = [actor(f"a{number}", b"\x02", CPU=1.0) for number in range(10_000)]
    assert len(placement_of(held(*many, cpus=20_000.0), FREE).holders) == MOST_HOLDERS


def test_who_holds_the_parts_of_a_placed_group() -> None:
    group = PlacedGroup(id="ab" * 8, name="small", bundles=({"CPU": 2.0}, {"CPU": 1.0}))
    whole, first = f"CPU_group_{group.id}", f"CPU_group_0_{group.id}"
    actors = [
        actor("first", b"\x02", **{whole: 2.0, first: 2.0, f"bundle_group_{group.id}": 0.001}),
        actor("any", b"\x02", **{whole: 1.0}),
        actor("elsewhere", b"\x02", **{f"CPU_group_{'cd' * 8}": 1.0}),
        actor("outside", b"\x02", CPU=1.0),
    ]
    found = placement_of(held(*actors), FREE, [group]).in_groups
    assert {one.group for one in found} == {group.id}
    assert [(one.name, one.bundle, one.holds) for one in found] == [
        ("first", 0, {"CPU": 2.0}),
        ("any", None, {"CPU": 1.0}),
    ]
    assert placement_of(held(*actors), FREE).in_groups == ()
    waits = actor("waits", b"\x02", **{whole: 1.0})
    waits.state = gcs_pb2.ActorTableData.PENDING_CREATION
    assert len(placement_of(held(*actors, waits), FREE, [group]).in_groups) == 2
    waits.address.worker_id = b"w"
    found = placement_of(held(*actors, waits), FREE, [group]).in_groups
    assert found == (), "one that waits in ray.get has given some back"
    waits.actor_id = b"\x05" * 16
    waiting = frozenset({(b"\xff" * 8 + waits.actor_id).hex()})
    told = msgspec.structs.replace(held(*actors, waits), waiting=waiting)
    found = placement_of(told, FREE, [group]).in_groups
    assert {one.name for one in found} == {"first", "any"}, "its own place holds nobody up"
