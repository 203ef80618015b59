from __future__ import annotations

import pytest

from ray_sentinel.evidence.minority import excepted, half, third, under_half
from ray_sentinel.evidence.movement import compared, last_before, settled, too_young


def test_what_was_seen_once_tells_no_movement() -> None:
    assert compared(()) == compared("a") == "unknown"
    assert compared("aa") == "stuck"
    assert compared("aba") == "moved"


def test_another_mark_may_be_of_the_same_loop() -> None:
    def is_vowel(mark: str, other: str) -> bool:
        return {mark, other} <= set("aeiou")

    assert compared("aea", is_vowel) == "in-place"
    assert compared("aab", is_vowel) == "moved"
    assert settled("in-place", may_loop=True) == "in-place"
    assert settled("in-place", may_loop=False) == "moved"
    assert settled("stuck", may_loop=False) == "stuck"


@pytest.mark.parametrize(
    ("times", "expected"),
    [((), None), ((1.0,), None), ((1.0, 1.5), None), ((1.0, 2.0, 4.0, 4.5), 1)],
)
def test_looks_of_nearly_one_moment_are_one(times: tuple[float, ...], expected: int | None) -> None:
    assert last_before(times, 2.0) == expected


def test_what_was_seen_once_is_too_young_until_it_has_lasted_for_longer_than_usual() -> None:
    assert too_young(1)
    assert too_young(1, age=3.0, usual=5.0)
    assert not too_young(1, age=5.0, usual=5.0)
    assert not too_young(2)
    assert not too_young(None)


def test_parts_of_a_set_are_rounded_down() -> None:
    assert [half(size) for size in range(5)] == [0, 0, 1, 1, 2]
    assert [third(size) for size in range(5)] == [0, 0, 0, 1, 1]
    assert [under_half(size) for size in range(1, 6)] == [0, 0, 1, 1, 2]


def test_one_of_two_can_be_the_exception_and_two_alike_of_four_cannot() -> None:
    assert excepted([1], 2, half(2))
    assert not excepted([1], 1, 1)
    assert excepted([1, 1], 4, half(4))
    assert not excepted([2], 4, half(4))
    assert excepted([], 0, 0)
