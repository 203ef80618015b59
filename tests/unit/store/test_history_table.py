"""Blocks of the history's file: packed, merged and read."""

from __future__ import annotations

import random
import zlib

import numpy as np
import pytest

from ray_sentinel.diagnose.series import Samples, axis, bucketed
from ray_sentinel.store.history.table import (
    ABSENT,
    CELLS,
    HistoryTable,
    decode,
    encode,
    reduced,
    stacked,
)

NAN, INF = float("nan"), float("inf")
START = 600.0
NOTHING = np.array([ABSENT], dtype=np.uint64).view(np.float64)[0]


def some(step: float = 10.0) -> HistoryTable:
    """All cells of a block of three hosts and four columns, two of them with holes."""
    dice = np.random.default_rng(1)
    values = dice.normal(300.0, 5.0, (3 * CELLS, 4))
    values[5:9, 1], values[2 * CELLS + 7, 0] = NOTHING, INF
    times = START + step * np.arange(1, CELLS + 1)
    return HistoryTable(np.repeat([1, 4, 9], CELLS), np.tile(times, 3), values)


def test_a_block_goes_there_and_back_and_means_keep_a_millionth() -> None:
    table = some()
    again = decode((START, 10.0, *encode(table, START, 10.0, ("last", "avg", "max", "min"))), 4)
    assert again.hosts.tolist() == table.hosts.tolist()
    assert again.times.tolist() == table.times.tolist()
    np.testing.assert_array_equal(again.is_there(), table.is_there())
    np.testing.assert_array_equal(again.values[:, 0], table.values[:, 0])
    there = table.is_there()
    np.testing.assert_allclose(again.values[there], table.values[there], rtol=1e-6)


@pytest.mark.parametrize("reduce", ["last", "avg", "max", "min"])
def test_rows_become_cells_as_everywhere(reduce: str) -> None:
    dice = random.Random(2)
    times = np.array(sorted(dice.uniform(1.0, 600.0) for _ in range(300)))
    values = np.array([dice.choice([NOTHING, NAN, INF, dice.random()]) for _ in times])
    table = HistoryTable(np.ones(300, int), times, values[:, None])
    there = table.is_there()[:, 0]
    cells = reduced(table, 10.0, (reduce,))  # type: ignore[arg-type]
    samples = Samples({}, times[there], values[there])
    wanted = bucketed(samples, axis(10.0, 600.0, 10.0), 10.0, reduce)  # type: ignore[arg-type]
    known = np.isin(axis(10.0, 600.0, 10.0), cells.times[cells.is_there()[:, 0]])
    np.testing.assert_array_equal(known, ~np.isnan(wanted))
    np.testing.assert_allclose(cells.values[cells.is_there()[:, 0], 0], wanted[known])


def test_blocks_merge_into_a_coarser_one_whose_hosts_are_all_of_them() -> None:
    one = some()
    later = START + 600.0 + 10.0 * np.arange(1, CELLS + 1)
    two = HistoryTable(np.full(CELLS, 4), later, np.full((CELLS, 4), 7.0))
    both = reduced(stacked([two, one]), 30.0, ("last", "avg", "max", "min"))
    assert np.unique(both.hosts).tolist() == [1, 4, 9]
    assert both.times[both.hosts == 1].tolist() == [START + 30.0 * n for n in range(1, 21)]
    assert both.times[both.hosts == 4].tolist() == [START + 30.0 * n for n in range(1, 41)]
    assert both.values[0, 0] == one.values[2, 0]
    assert both.values[0, 2] == one.values[:3, 2].max()
    assert both.values[both.hosts == 4][39].tolist() == [7.0] * 4
    assert np.argwhere(~both.is_there()).tolist() == [[2, 1]], "three cells without a value"
    assert not np.isinf(both.values[both.hosts == 9][2, 0]), "the last of the three was finite"


def test_what_is_not_there_and_what_is_not_finite_stay_apart() -> None:
    row = np.array([NOTHING, NAN, INF, -INF, 1.0])
    table = HistoryTable(np.array([1]), np.array([10.0]), row[None])
    assert table.is_there().tolist() == [[False, True, True, True, True]]
    cells = reduced(table, 10.0, ("last",) * 5)
    again = decode((0.0, 10.0, *encode(cells, 0.0, 10.0, ("last",) * 5)), 5)
    for kept in (cells, again):
        assert kept.is_there().tolist() == [[False, True, True, True, True]]
        assert kept.values[0, 1:].tolist() == [INF, INF, -INF, 1.0]


def test_bytes_that_are_no_block_are_an_error() -> None:
    hosts, values = encode(some(), START, 10.0, ("last",) * 4)
    for bad in (b"", values[: len(values) // 2], b"x" * 50, zlib.compress(b"1" * 50)):
        with pytest.raises(ValueError):
            decode((0.0, 10.0, hosts, bad), 4)
    with pytest.raises(ValueError):
        decode((0.0, 10.0, hosts[:8] * 7, values), 4)
    with pytest.raises(ValueError):
        decode((0.0, 10.0, hosts, values), 5)
