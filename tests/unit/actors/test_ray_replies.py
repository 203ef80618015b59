"""Replies of Ray's control store with whatever their fields can hold."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from google.protobuf.descriptor import FieldDescriptor
from ray.core.generated import common_pb2, gcs_pb2, gcs_service_pb2

from ray_sentinel.actors.coordinator.ray import deaths as ray_deaths
from ray_sentinel.actors.coordinator.ray import replies as ray_replies
from ray_sentinel.actors.coordinator.ray.replies import MOST_NAME
from ray_sentinel.actors.coordinator.ray.wakers import wakers_of
from ray_sentinel.model.ray_calls import EndedCalls, RayActor, RayCall, RayDriver

ACTOR = RayActor(id="11" * 16, job="01000000", kind="Rollout", pid=77)
DRIVER = RayDriver(job="01000000", pid=10, address="10.0.0.1")
HUGE = "x" * (1 << 20)
TEXTS = ("", "train.py", HUGE, "\n\x1b[2J\u202e", "Owner Id: ", "Worker exit detail: ", "9" * 400)
NUMBERS = {
    FieldDescriptor.CPPTYPE_INT32: (0, 1, -1, 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (0, 1, -(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 1, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 1, 2**64 - 1),
    FieldDescriptor.CPPTYPE_FLOAT: (0.0, 1e30, float("nan")),
    FieldDescriptor.CPPTYPE_DOUBLE: (0.0, -1.0, 1e308, float("inf"), float("nan")),
    FieldDescriptor.CPPTYPE_BOOL: (False, True),
    FieldDescriptor.CPPTYPE_ENUM: (0, 1, 2, 3, 99),
}


def value(field: Any, chance: random.Random) -> Any:
    if field.type == FieldDescriptor.TYPE_BYTES:
        return chance.choice((b"", b"\1\0\0\0", b"\xff" * 16, b"\xfe" * 100_000))
    if field.type == FieldDescriptor.TYPE_STRING:
        return chance.choice(TEXTS)
    return chance.choice(NUMBERS[field.cpp_type])


def fill(message: Any, chance: random.Random, depth: int = 0) -> Any:
    """Some of the fields of ``message``, with anything that their types allow."""
    for field in message.DESCRIPTOR.fields:
        if depth > 4 or (depth and chance.random() < 0.3):
            continue
        place = getattr(message, field.name)
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            for _ in range(chance.randrange(3)):
                key = value(entry.fields_by_name["key"], chance)
                of = entry.fields_by_name["value"]
                if of.message_type is None:
                    place[key] = value(of, chance)
        elif field.is_repeated:
            for _ in range(chance.randrange(4)):
                if entry is None:
                    place.append(value(field, chance))
                else:
                    fill(place.add(), chance, depth + 1)
        elif entry is not None:
            place.SetInParent()
            fill(place, chance, depth + 1)
        else:
            setattr(message, field.name, value(field, chance))
    return message


@pytest.mark.parametrize(
    ("kind", "read"),
    [
        (gcs_service_pb2.GetAllJobInfoReply, ray_replies.drivers_of),
        (
            gcs_service_pb2.GetAllActorInfoReply,
            lambda reply: list(ray_replies.actors_of(reply.actor_table_data, {})),
        ),
        (gcs_service_pb2.GetAllPlacementGroupReply, ray_replies.groups_of),
        (gcs_service_pb2.GetAllAvailableResourcesReply, ray_replies.free_of),
        (
            gcs_service_pb2.GetAllPlacementGroupReply,
            lambda reply: list(ray_replies.placed_of(reply, {"", "01000000", "ff" * 16})),
        ),
        (
            gcs_service_pb2.GetAllNodeInfoReply,
            lambda reply: ray_replies.labels_of(reply, {"", "train.py"}),
        ),
        (gcs_service_pb2.GetTaskEventsReply, ray_replies.calls_of),
        (gcs_service_pb2.GetTaskEventsReply, ray_replies.ended_of),
        (gcs_service_pb2.GetTaskEventsReply, ray_replies.changes_of),
        (gcs_service_pb2.GetTaskEventsReply, lambda reply: list(ray_replies.made_at(reply))),
        (
            gcs_service_pb2.GetTaskEventsReply,
            lambda reply: wakers_of(
                reply,
                [
                    RayCall(id="", parent="", job="", kind="actor-task", name=name, actor=actor)
                    for name in ("train.py", HUGE[:MOST_NAME])
                    for actor in ("", "01000000", "ff" * 16)
                ],
            ),
        ),
        (
            gcs_pb2.ActorTableData,
            lambda entry: ray_deaths.actor_death(entry, ACTOR, "ab" * 28),
        ),
        (
            gcs_pb2.JobTableData,
            lambda job: ray_deaths.driver_death(
                job, fill(gcs_pb2.WorkerTableData(), random.Random(job.end_time)), DRIVER
            ),
        ),
        (
            gcs_service_pb2.GetTaskEventsReply,
            lambda reply: [ray_deaths.failed_call(event, DRIVER) for event in reply.events_by_task],
        ),
    ],
)
def test_nothing_that_a_reply_may_hold_is_an_error_or_large(kind: Any, read: Any) -> None:
    for number in range(60):
        found = read(fill(kind(), random.Random(number)))
        assert len(msgspec.msgpack.encode(found)) < 50_000, f"reply {number}"


def test_one_strange_entry_costs_none_of_the_others() -> None:
    reply = gcs_service_pb2.GetAllActorInfoReply()
    for number, state in enumerate((1, 99)):
        reply.actor_table_data.add(actor_id=bytes([number]), class_name=HUGE, state=state)
    first, second = ray_replies.actors_of(reply.actor_table_data, {})
    assert (first.state, second.state) == ("PENDING_CREATION", "")
    assert {len(actor.kind) for actor in (first, second)} == {MOST_NAME}


def test_of_events_that_contradict_each_other_the_last_counts() -> None:
    reply = gcs_service_pb2.GetTaskEventsReply()
    status = common_pb2.TaskStatus.Value
    for attempt, state in ((1, "RUNNING"), (0, "PENDING_NODE_ASSIGNMENT"), (2, "FAILED")):
        event = reply.events_by_task.add(task_id=b"a", attempt_number=attempt)
        event.task_info.type = "NORMAL_TASK"
        event.state_updates.state_ts_ns[status(state)] = 5
    (call,) = ray_replies.calls_of(reply)
    assert call.state == "running", "what ended is not among them"
    event.task_info.name = "f"
    event.state_updates.state_ts_ns[status("FINISHED")] = 3
    event.state_updates.state_ts_ns[status("RUNNING")] = 7
    assert ray_replies.ended_of(reply) == {"f": EndedCalls(count=1, longest=0.0, last_at=3e-9)}


def test_the_seconds_in_which_calls_began_or_ended() -> None:
    reply = gcs_service_pb2.GetTaskEventsReply()
    status = common_pb2.TaskStatus.Value
    for begun, ended in ((5.2, 5.9), (9.1, 12.0), (2.0, 5.0)):
        times = reply.events_by_task.add(task_id=b"a").state_updates.state_ts_ns
        times[status("RUNNING")] = int(begun * 1e9)
        times[status("FINISHED")] = int(ended * 1e9)
    assert ray_replies.changes_of(reply) == (2, 5, 9, 12)


def test_labels_that_are_asked_for_and_those_that_will_do_as_well() -> None:
    reply = gcs_service_pb2.GetTaskEventsReply()
    event = reply.events_by_task.add(task_id=b"a")
    event.task_info.type = "NORMAL_TASK"
    event.task_info.label_selector["kind"] = "h100"
    option = event.task_info.fallback_strategy.options.add().label_selector
    option.label_constraints.add(
        label_key="kind", operator="LABEL_OPERATOR_NOT_IN", label_values=["a100", "v100"]
    )
    waits = common_pb2.TaskStatus.Value("PENDING_NODE_ASSIGNMENT")
    event.state_updates.state_ts_ns[waits] = 5
    (call,) = ray_replies.calls_of(reply)
    assert call.selectors == ({"kind": "h100"}, {"kind": "!in(a100,v100)"})


def test_labels_of_living_nodes() -> None:
    reply = gcs_service_pb2.GetAllNodeInfoReply()
    for number, state in enumerate(("ALIVE", "DEAD")):
        node = reply.node_info_list.add(node_id=bytes([number]), state=state)
        node.labels.update({"kind": "h100", "zone": "a"})
    assert ray_replies.labels_of(reply, {"kind", "none"}) == {"00": {"kind": "h100"}}
