"""What is missing to what is not placed: never to be had, or held by whom."""

from __future__ import annotations

import msgspec
import pytest

from ray_sentinel.engine.placement import never
from ray_sentinel.model.placement import Placement, ResourceHolder
from ray_sentinel.model.ray_calls import PendingGroup
from tests.support.ray_story import JOB, PLACES, RayStory, driver

NODES = ({"CPU": 8.0, "GPU": 4.0}, {"CPU": 64.0}, {"CPU": 8.0, "GPU": 4.0})


@pytest.mark.parametrize(
    ("strategy", "bundles", "why"),
    [
        ("PACK", [{"GPU": 8.0}], "no node has more than 4 GPU"),
        ("PACK", [{"TPU": 1.0}], "no node has any TPU"),
        ("PACK", [{"CPU": 32.0, "GPU": 1.0}], "no node has 32 CPU, 1 GPU together"),
        ("PACK", [{"GPU": 4.0}] * 3, "all nodes together have 8 GPU of 12"),
        ("PACK", [{"GPU": 4.0}] * 2, ""),
        ("STRICT_PACK", [{"GPU": 2.0}] * 2, ""),
        (
            "STRICT_PACK",
            [{"GPU": 4.0}] * 2,
            "on one node (STRICT_PACK), no node has more than 4 GPU",
        ),
        ("STRICT_SPREAD", [{"GPU": 1.0}] * 2, ""),
        (
            "STRICT_SPREAD",
            [{"GPU": 1.0}] * 3,
            "STRICT_SPREAD wants 3 nodes, and 2 could hold a bundle",
        ),
    ],
)
def test_what_no_cluster_like_this_could_ever_hold(
    strategy: str, bundles: list[dict[str, float]], why: str
) -> None:
    group = PendingGroup(id="a", strategy=strategy, bundles=tuple(bundles))
    assert never(group, NODES) == why
    assert never(group, ()) == "", "nothing is known"


def waits(cpus: float, placement: Placement, *, infeasible: bool = False) -> str:
    main = driver()
    story = RayStory([main])
    story.free_on = {"node1": {"CPU": 1.0}}
    main.stack = PLACES
    story.groups = (
        PendingGroup(
            id="29a1" * 8,
            name="big",
            job=JOB,
            bundles=({"CPU": cpus},),
            infeasible=infeasible,
            since=story.now,
        ),
    )
    story.placement = placement
    story.tell_table()
    story.run(60)
    return story.incident().summary


HELD = Placement(
    total_on={"node1": {"CPU": 8.0, "GPU": 1.0}},
    holders=(
        ResourceHolder(
            kind="actor",
            name="keeper",
            job="old-1",
            holds={"CPU": 4.0, "GPU": 1.0},
            orphan="detached, and its job is over",
        ),
        ResourceHolder(kind="task", name="score", job="eval-3", count=3, holds={"CPU": 3.0}),
        ResourceHolder(kind="actor", name="other", job="eval-3", holds={"GPU": 1.0}),
    ),
    autoscaler="no autoscaler adds nodes",
)


def test_who_holds_it_is_told_and_an_orphan_as_such() -> None:
    assert waits(8.0, HELD) == (
        "nothing in the cluster has placement group big (8 CPU); free are 1 CPU on node1; the "
        "actor keeper of old-1 (an orphan: detached, and its job is over) holds 4 CPU, 3 tasks "
        "score of eval-3 hold 3 CPU; no autoscaler adds nodes; 1 process waits"
    )


def test_what_can_never_be_held_is_no_matter_of_who_holds_it() -> None:
    assert waits(64.0, HELD, infeasible=True) == (
        "the cluster as it is can never hold placement group big (64 CPU): no node has more than "
        "8 CPU; no autoscaler adds nodes; 1 process waits"
    )


def test_without_an_answer_the_verdict_stays() -> None:
    without = msgspec.structs.replace(HELD, total_on={}, holders=(), autoscaler="")
    assert waits(64.0, without) == (
        "nothing in the cluster has placement group big (64 CPU); free are 1 CPU on node1; "
        "1 process waits"
    )


def test_what_no_kind_of_node_of_the_autoscaler_could_hold() -> None:
    beyond = msgspec.structs.replace(
        HELD,
        holders=(),
        autoscaler="the autoscaler waits for 2 new nodes",
        beyond=(({"CPU": 9.0},),),
    )
    assert waits(9.0, beyond).startswith(
        "the cluster as it is can never hold placement group big (9 CPU): no node has more than "
        "8 CPU; the autoscaler has no kind of node for it"
    )
    assert "; the autoscaler waits for 2 new nodes; " in waits(10.0, beyond)
