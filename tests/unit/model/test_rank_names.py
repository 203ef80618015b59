"""Ranks in words: ranges instead of long lists."""

from __future__ import annotations

import pytest

from ray_sentinel.model.rank_names import MOST_RUNS, name_ranks, ranges, runs


@pytest.mark.parametrize(
    ("numbers", "text"), [([], ""), ([3], "3"), ([0, 1, 2, 5, 7, 8], "0-2, 5, 7-8")]
)
def test_ranges(numbers: list[int], text: str) -> None:
    assert ranges(numbers) == text


def test_ranks_are_named_once_and_in_order() -> None:
    assert runs([0, 1, 4]) == ["0-1", "4"]
    assert name_ranks([3]) == "rank 3"
    assert name_ranks([5, 1, 0, 2, 1]) == "ranks 0-2, 5"
    every_other = name_ranks(range(0, 4 * MOST_RUNS, 2))
    assert every_other.startswith("ranks 0, 2, 4, ")
    assert every_other.endswith(f", {2 * MOST_RUNS - 2}, ... {2 * MOST_RUNS} in all")
