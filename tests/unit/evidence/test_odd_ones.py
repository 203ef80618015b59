"""Who has made another call than its equals, by how many calls of each kind they have made."""

from __future__ import annotations

from ray_sentinel.evidence.alignment import MOST_STANDS, Stand, in_order, odd_ones


def stand(reduces: int, gathers: int, role: str = "") -> Stand[str]:
    return role, frozenset({("reduce", reduces), ("gather", gathers)})


def test_equals_at_different_points_of_one_sequence_are_in_order() -> None:
    stands = {stand(5, 4): [0], stand(5, 5): [1, 2], stand(7, 6): [3]}
    assert in_order(stands)
    assert odd_ones(stands) == []


def test_the_one_with_more_of_one_kind_and_fewer_of_another_is_odd() -> None:
    stands = {stand(5, 5): [0, 1, 2], stand(4, 6): [3], stand(3, 4): [4]}
    assert not in_order(stands)
    assert odd_ones(stands) == [3]


def test_of_two_that_contradict_each_other_neither_is_odd() -> None:
    assert odd_ones({stand(5, 4): [0], stand(4, 5): [1]}) == []


def test_others_than_equals_are_not_compared() -> None:
    assert odd_ones({stand(5, 4, "first stage"): [0, 1, 2], stand(4, 5, "last stage"): [3]}) == []


def test_where_nearly_all_contradict_each_other_nobody_is_odd() -> None:
    stands = {stand(n, 2 * MOST_STANDS - n): [n] for n in range(2 * MOST_STANDS)}
    assert odd_ones(stands) == []
