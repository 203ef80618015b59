"""Which of several agents on one machine owns a process."""

import pytest

from ray_sentinel.progress.discovery.ownership import Neighbours, is_default_owner, owns


@pytest.mark.parametrize(
    ("ancestors", "own", "peers", "default", "expected"),
    [
        ((9, 5, 1), 5, {5, 6}, False, True),
        ((9, 6, 1), 5, {5, 6}, True, False),
        ((9, 1), 5, {5, 6}, True, True),
        ((9, 1), 5, {5, 6}, False, False),
        # A raylet that has no agent of ours: its ranks are nobody's else.
        ((9, 7, 1), 5, {5, 6}, True, True),
        # Ray inside of a Ray job: the nearest one decides.
        ((9, 6, 5, 1), 5, {5, 6}, True, False),
        ((), None, set(), True, True),
    ],
)
def test_owns(ancestors, own, peers, default, expected):
    assert owns(ancestors, own, peers, default) is expected


def test_exactly_one_agent_takes_the_orphans():
    raylets = {30, 10, 20}
    assert [raylet for raylet in raylets if is_default_owner(raylet, raylets)] == [10]
    assert is_default_owner(30, ())
    assert is_default_owner(None, raylets)


def test_neighbours_are_believed_once_all_that_live_are_told_of() -> None:
    neighbours = Neighbours(10.0, now=0.0)
    assert not neighbours.settle({7, 8}, 1.0)
    assert neighbours.update((7,), 2.0)
    assert not neighbours.settle({7, 8}, 3.0)
    assert neighbours.raylets == ()
    assert neighbours.update((7, 8), 4.0)
    assert not neighbours.update((7, 8), 5.0)
    assert neighbours.settle({7, 8}, 5.0)
    assert neighbours.raylets == (7, 8)


def test_a_new_coordinator_that_knows_few_agents_changes_nothing() -> None:
    neighbours = Neighbours(10.0, now=0.0)
    neighbours.update((7, 8), 1.0)
    neighbours.settle({7, 8}, 1.0)
    neighbours.update((8,), 100.0)
    assert not neighbours.settle({7, 8}, 101.0)
    assert neighbours.raylets == (7, 8)
    neighbours.update((7, 8), 102.0)
    assert neighbours.settle({7, 8}, 102.0)


def test_a_raylet_without_an_agent_is_waited_for_only_so_long() -> None:
    neighbours = Neighbours(10.0, now=0.0)
    neighbours.update((7,), 1.0)
    assert not neighbours.settle({7, 8}, 11.0)
    assert neighbours.settle({7, 8}, 11.1)
    assert neighbours.raylets == (7,)


def test_a_raylet_that_is_gone_is_gone_at_once() -> None:
    neighbours = Neighbours(10.0, now=0.0)
    neighbours.update((7, 8), 1.0)
    neighbours.settle({7, 8}, 1.0)
    neighbours.update((7,), 50.0)
    assert neighbours.settle({7}, 50.0)
    assert neighbours.raylets == (7,)
