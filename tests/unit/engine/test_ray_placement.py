"""Work of Ray jobs for which there is no room, or no worker."""

from __future__ import annotations

import msgspec

from ray_sentinel.model.ray_calls import PendingGroup
from tests.support.ray_stories.jobs import WARM, rollouts
from tests.support.ray_stories.placement import no_worker, pending
from tests.support.ray_story import (
    JOB,
    PLACES,
    START,
)


def test_a_group_that_cannot_be_placed() -> None:
    story = pending()
    incident = story.incident()
    assert incident.kind == "pending"
    assert story.culprits() == ()
    assert incident.summary == (
        "nothing in the cluster has placement group big (64 CPU); free are 1 CPU on node1; "
        "1 process waits"
    )
    assert story.engine.status(story.now).state == "stalled"


def test_what_is_free_is_told_by_node_and_only_of_what_is_asked_for() -> None:
    story = pending(node1={"CPU": 48.0, "GPU": 8.0}, node2={"CPU": 56.0}, node3={"GPU": 8.0})
    assert story.incident().summary == (
        "nothing in the cluster has placement group big (64 CPU); free are 56 CPU on node2, "
        "48 CPU on node1; 1 process waits"
    )


def test_of_many_nodes_those_with_most_are_told() -> None:
    story = pending(**{f"node{n}": {"CPU": float(n)} for n in range(1, 8)})
    told = "7 CPU on node7, 6 CPU on node6, 5 CPU on node5, 4 CPU on node4 and no more on 3 others"
    assert f"free are {told};" in story.incident().summary


def test_a_task_in_the_group_does_not_add_the_parts_of_the_group() -> None:
    story, main, others = rollouts()
    group = PendingGroup(id="29a1" * 8, name="big", job=JOB, bundles=({"CPU": 64.0},), since=0.0)
    needs = {f"CPU_group_0_{group.id}": 1.0}
    story.call(main, others[0], "generate", "unplaced")
    story.calls[-1] = msgspec.structs.replace(story.calls[-1], needs=needs)
    main.stack, story.groups = PLACES, (group,)
    story.tell_table()
    story.run(60)
    assert "free are 1 CPU on node1;" in story.incident().summary


def test_nothing_is_free_of_what_is_asked_for() -> None:
    assert "; nothing of it is free on any node;" in pending(node1={"GPU": 8.0}).incident().summary


def test_a_task_without_room_soon_and_one_without_a_worker_later() -> None:
    story = no_worker(60, 0.5)
    assert story.incident().kind == "pending"
    assert "nothing in the cluster has a node with 1 CPU free" in story.incident().summary
    story = no_worker(180)
    assert story.incident().kind == "pending"
    assert story.incident().summary == (
        "Ray starts no worker for score, although a node has room for it; 1 process waits"
    )


def test_a_task_for_whose_arguments_a_node_has_no_room() -> None:
    story = no_worker(60, full="node1")
    incident = story.incident()
    assert incident.kind == "object-store"
    assert "no room for the arguments of score" in incident.summary
    assert incident.confirmed_at is not None
    assert incident.confirmed_at - START - WARM < 30.0
    assert no_worker(full="another").engine.incidents(everything=True) == ()


def test_a_task_that_has_room_and_waits_for_its_worker_to_start() -> None:
    assert no_worker().engine.incidents(everything=True) == ()
