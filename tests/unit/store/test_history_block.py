from __future__ import annotations

import random

import numpy as np
import pytest

from ray_sentinel.diagnose.series import Samples, axis, bucketed
from ray_sentinel.store.history_block import (
    CELLS,
    HistoryBlock,
    decode,
    encode,
    gathered,
    merged,
    plain,
)

NAN, INF = float("nan"), float("inf")


def some(step: float = 10.0) -> HistoryBlock:
    dice = np.random.default_rng(1)
    values = dice.normal(300.0, 5.0, (3, 4, CELLS))
    values[0, 1, 5:9], values[2, 0, 7] = NAN, INF
    return HistoryBlock(600.0, step, np.array([1, 4, 9]), values)


def test_a_block_goes_there_and_back_and_means_keep_a_millionth() -> None:
    block = some()
    rule = ("last", "avg", "max", "min")
    again = decode(600.0, 10.0, *encode(block, rule))  # type: ignore[arg-type]
    assert again.hosts.tolist() == [1, 4, 9]
    np.testing.assert_array_equal(again.values[:, 0], block.values[:, 0])
    np.testing.assert_allclose(again.values, block.values, rtol=1e-6)
    assert again.times[0] == 610.0
    assert again.times[-1] == 600.0 + 10.0 * CELLS


@pytest.mark.parametrize("reduce", ["last", "avg", "max", "min"])
def test_rows_become_cells_as_everywhere(reduce: str) -> None:
    dice = random.Random(2)
    times = np.array(sorted(dice.uniform(-50.0, 700.0) for _ in range(300)))
    values = np.array([dice.choice([NAN, INF, dice.random()]) for _ in times])
    block = gathered(0.0, 10.0, np.zeros(300, int), times, values[:, None], (reduce,))  # type: ignore[arg-type]
    known = ~np.isnan(values)
    samples = Samples({}, times[known], values[known])
    wanted = bucketed(samples, axis(10.0, 600.0, 10.0), 10.0, reduce)  # type: ignore[arg-type]
    np.testing.assert_allclose(block.values[0, 0], wanted)


def test_blocks_merge_into_a_coarser_one_whose_hosts_are_all_of_them() -> None:
    rule = ("last", "avg", "max", "min")
    one = some()
    two = HistoryBlock(1200.0, 10.0, np.array([4]), np.full((1, 4, CELLS), 7.0))
    both = merged([two, one], 0.0, 30.0, rule)  # type: ignore[arg-type]
    assert both.hosts.tolist() == [1, 4, 9]
    assert both.values.shape == (3, 4, CELLS)
    assert np.isnan(both.values[:, :, :20]).all()
    assert both.values[0, 0, 20] == one.values[0, 0, 2]
    assert both.values[0, 2, 20] == one.values[0, 2, :3].max()
    assert both.values[1, 3, 59] == 7.0
    assert np.isnan(both.values[0, :, 40:]).all()
    assert np.isinf(both.values[2, 0, 22]) is np.False_, "the last of the three was finite"


def test_what_is_not_there_and_what_is_not_finite_stay_apart() -> None:
    row = np.array([0x7FF0000000000002], dtype=np.uint64).view(np.float64)
    assert np.isnan(plain(row)[0])
    assert plain(np.array([NAN, INF, -INF, 1.0])).tolist() == [INF, INF, -INF, 1.0]


def test_bytes_that_are_no_block_are_an_error() -> None:
    hosts, values = encode(some(), ("last",) * 4)
    for bad in (b"", values[: len(values) // 2], b"x" * 50):
        with pytest.raises(ValueError):
            decode(0.0, 10.0, hosts, bad)
    with pytest.raises(ValueError):
        decode(0.0, 10.0, hosts[:8] * 7, values)
