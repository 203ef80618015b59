"""What is missing to what is not placed: never to be had, or held by whom."""

from __future__ import annotations

import msgspec
import pytest

from ray_sentinel.engine.ray.placement import never
from ray_sentinel.model.placement import PlacedGroup, Placement, ResourceHolder
from ray_sentinel.model.ray_calls import PendingGroup, RayCall
from ray_sentinel.waitgraph.unmet import satisfies
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


def unplaced(cpus: float, placement: Placement, *, infeasible: bool = False) -> RayStory:
    """A driver waits for a placement group, for a minute."""
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
    return story


def waits(cpus: float, placement: Placement, *, infeasible: bool = False) -> str:
    """What is told of it."""
    return unplaced(cpus, placement, infeasible=infeasible).incident().summary


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


def test_what_is_known_later_of_who_holds_it_is_told_of_the_same_incident() -> None:
    story = unplaced(8.0, msgspec.structs.replace(HELD, holders=()))
    before = story.incident()
    assert "keeper" not in before.summary
    story.placement = HELD
    story.run(30)
    after = story.incident()
    assert (after.id, after.state) == (before.id, before.state)
    assert "; the actor keeper of old-1 (an orphan: " in after.summary
    assert after.verdict is not None
    assert after.verdict.summary == after.summary


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


GROUP = "da4f" * 8
SMALL = PlacedGroup(id=GROUP, name="small", bundles=({"CPU": 2.0}, {"CPU": 1.0}))


def inside(name: str, cpus: float, bundle: int | None = None) -> ResourceHolder:
    return ResourceHolder(
        kind="actor", name=name, job="train_rl-2", holds={"CPU": cpus}, group=GROUP, bundle=bundle
    )


FULL = Placement(
    total_on={"node1": {"CPU": 64.0}, "node2": {"CPU": 8.0}},
    holders=(ResourceHolder(kind="actor", name="outside", job="old-1", holds={"CPU": 4.0}),),
    in_groups=(
        inside("first", 2.0, 0),
        inside("second", 1.0),
        msgspec.structs.replace(inside("other", 1.0), group="ab" * 16),
    ),
    labels_on={"node1": {"kind": "a100"}, "node2": {"kind": "h100", "zone": "b"}},
    autoscaler="no autoscaler adds nodes",
)


def asks(
    needs: dict[str, float], *selectors: dict[str, str], placement: Placement | None = FULL
) -> str:
    """The summary of a job whose driver waits for a task."""
    story = waits_for(needs, *selectors, placement=placement)
    story.run(60)
    assert story.incident().kind == "pending"
    return story.incident().summary


def waits_for(
    needs: dict[str, float], *selectors: dict[str, str], placement: Placement | None = FULL
) -> RayStory:
    """A job whose driver waits for a task."""
    main = driver()
    story = RayStory([main])
    story.drives(main)
    story.calls.append(
        RayCall(
            id="aa" * 24, parent=story.calls[0].id, job=JOB, kind="task", name="score",
            state="unplaced", since=story.now, made=story.now, needs=needs, selectors=selectors,
        )
    )  # fmt: skip
    story.placed, story.placement = (SMALL,), placement
    return story


@pytest.mark.parametrize(
    ("needs", "summary"),
    [
        (
            {f"CPU_group_{GROUP}": 1.0, f"bundle_group_{GROUP}": 0.001},
            "nothing in the cluster has room for 1 CPU in placement group small (2 CPU + 1 CPU); "
            "the actor first of train_rl-2 holds 2 CPU, the actor second of train_rl-2 holds "
            "1 CPU; 1 process waits",
        ),
        (
            {f"CPU_group_1_{GROUP}": 1.0, f"CPU_group_{GROUP}": 1.0},
            "nothing in the cluster has room for 1 CPU in bundle 1 of placement group small (2 CPU "
            "+ 1 CPU); the actor second of train_rl-2 holds 1 CPU; 1 process waits",
        ),
        (
            {f"CPU_group_{GROUP}": 4.0},
            "there can never be room for 4 CPU in placement group small (2 CPU + 1 CPU): no bundle "
            "of it has more than 2 CPU; 1 process waits",
        ),
        (
            {f"CPU_group_7_{GROUP}": 1.0},
            "nothing in the cluster has room for 1 CPU in bundle 7 of placement group small (2 CPU "
            "+ 1 CPU); the actor second of train_rl-2 holds 1 CPU; 1 process waits",
        ),
        (
            {f"bundle_group_{'cd' * 16}": 0.001},
            "nothing in the cluster has room for an actor or a task in placement group cdcdcdcd; "
            "1 process waits",
        ),
    ],
)
def test_a_group_that_is_full_is_told_with_who_holds_it(
    needs: dict[str, float], summary: str
) -> None:
    assert asks(needs) == summary


def test_a_label_that_no_node_has() -> None:
    assert asks({"CPU": 1.0}, {"kind": "b200"}) == (
        "there can never be a node with 1 CPU free, labelled kind=b200: no node has the label "
        "kind=b200; no autoscaler adds nodes; 1 process waits"
    )
    assert "no node has the labels kind=a100 and zone=b;" in asks({}, {"kind": "a100", "zone": "b"})


def test_a_node_with_the_label_may_be_too_small_or_full() -> None:
    why = asks({"CPU": 16.0}, {"kind": "h100"})
    assert "no node labelled kind=h100 has more than 8 CPU;" in why
    assert asks({"CPU": 6.0}, {"kind": "h100"}) == (
        "nothing in the cluster has a node with 6 CPU free, labelled kind=h100; the actor outside "
        "of old-1 holds 4 CPU; no autoscaler adds nodes; 1 process waits"
    )
    assert asks({"CPU": 6.0}, {"kind": "b200"}, {"kind": "h100"}).startswith(
        "nothing in the cluster has a node with 6 CPU free, labelled kind=b200 or kind=h100"
    ), "another selector will do"
    assert asks({"CPU": 6.0}, {"kind": "b200"}, placement=None) == (
        "nothing in the cluster has a node with 6 CPU free, labelled kind=b200; 1 process waits"
    ), "the labels of nodes are not known"


@pytest.mark.parametrize(
    ("needs", "selectors"),
    [
        ({f"CPU_group_0_{GROUP}": 1.0}, ()),
        ({f"CPU_group_{GROUP}": 0.5}, ()),
        ({f"bundle_group_{GROUP}": 0.001}, ()),
        ({"CPU": 1.0}, ({"kind": "h100"},)),
        ({}, ({"kind": "b200"}, {"zone": "b"})),
    ],
    ids=["bundle", "group", "nothing-of-a-group", "label", "nothing-of-a-label"],
)
def test_a_worker_may_take_long_to_start_where_there_is_room(
    needs: dict[str, float], selectors: tuple[dict[str, str], ...]
) -> None:
    """Nobody is known to hold what is asked for, of a group or of a node with the labels."""
    roomy = msgspec.structs.replace(FULL, in_groups=(inside("first", 1.0, 0), inside("any", 0.5)))
    if f"CPU_group_0_{GROUP}" in needs:
        roomy = msgspec.structs.replace(FULL, in_groups=(inside("other", 1.0, 1),))
    story = waits_for(needs, *selectors, placement=roomy)
    story.free_on = {"node1": {"CPU": 0.0}, "node2": {"CPU": 4.0}}
    story.run(90)
    assert story.engine.incidents() == ()
    story.run(60)
    assert story.incident().summary.startswith("Ray starts no worker for score, although ")


def test_room_on_nodes_without_the_label_is_of_no_use() -> None:
    story = waits_for({"CPU": 6.0}, {"kind": "h100"})
    story.free_on = {"node1": {"CPU": 64.0}, "node2": {"CPU": 4.0}}
    story.run(40)
    assert story.incident().summary.startswith("nothing in the cluster has a node with 6 CPU free")


def test_a_group_whose_bundles_ask_for_labels() -> None:
    main = driver()
    main.stack = PLACES
    story = RayStory([main])
    story.groups = (
        PendingGroup(
            id="29a1" * 8, name="big", job=JOB, bundles=({"CPU": 1.0},) * 2, since=story.now,
            selectors=({"kind": "h100"}, {"kind": "b200"}),
        ),
    )  # fmt: skip
    story.placement = FULL
    story.tell_table()
    story.run(60)
    assert "no node has the label kind=b200" in story.incident().summary


@pytest.mark.parametrize(
    ("wanted", "meets"),
    [
        ("h100", True), ("a100", False), ("!a100", True), ("!h100", False),
        ("in(a100, h100)", True), ("in(a100)", False), ("!in(a100)", True), ("!in(h100)", False),
    ],
)  # fmt: skip
def test_rays_words_for_labels(wanted: str, meets: bool) -> None:
    assert satisfies({"kind": "h100"}, {"kind": wanted}) == meets
    assert satisfies({}, {"kind": wanted}) == wanted.startswith("!")


def test_a_call_is_pending_only_if_it_was_so_at_the_last_look() -> None:
    """On a busy machine the next look may take long, and meanwhile it may have been placed."""
    story = waits_for({"CPU": 9.0})
    story.run(13)
    assert story.looks
    story.answers = False
    story.run(30)
    assert story.engine.incidents() == ()
    story.answers = True
    story.run(40)
    assert story.incident().kind == "pending"
