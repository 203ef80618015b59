"""Robust statistics on arrays with missing values (NaN).

Medians and median absolute deviations (scaled by 1.4826, the consistency factor for a normal
distribution; Rousseeuw & Croux 1993) instead of means and standard deviations, because a training
job's series are full of outliers that are nobody's fault: checkpoints, evaluation, start-up.
NaN is "missing" everywhere and ±inf is "a sample that was not finite"; both are left out here.
"""

from __future__ import annotations

import itertools
import warnings

import numpy as np
from numpy.typing import NDArray

from ray_sentinel.diagnose.series import Bools, Floats

Ints = NDArray[np.intp]

MAD_TO_SIGMA = 1.4826
"""Factor from the median absolute deviation of a normal distribution to its sigma."""


def finite(values: Floats) -> Floats:
    """``values`` with everything that is not finite made NaN."""
    return np.where(np.isfinite(values), values, np.nan)


def median(values: Floats, axis: int | None = None) -> Floats:
    """Median of the finite values; NaN if there are none."""
    ordered, known = _ordered(values, axis)
    last = np.maximum(known - 1, 0)
    return (_pick(ordered, last // 2) + _pick(ordered, (last + 1) // 2)) / 2


def quantile(values: Floats, q: float, axis: int | None = None) -> Floats:
    """Quantile ``q`` (0..1) of the finite values, linear between two; NaN if there are none."""
    ordered, known = _ordered(values, axis)
    place = q * np.maximum(known - 1, 0)
    left = np.floor(place).astype(np.intp)
    low, high = _pick(ordered, left), _pick(ordered, np.ceil(place).astype(np.intp))
    share = place - left
    # From the nearer end, as numpy's: else rounding may leave the two values.
    between = np.where(share < 0.5, low + (high - low) * share, high - (high - low) * (1 - share))
    return np.asarray(between)


def _ordered(values: Floats, axis: int | None) -> tuple[Floats, Ints]:
    """The finite values along ``axis``, which comes first, in their order, then NaN; how many.

    All columns at once: numpy's own quantiles of arrays with holes go through them one by one.
    """
    known = finite(values)
    along = known.reshape(-1) if axis is None else np.moveaxis(known, axis, 0)
    if not along.shape[0]:
        along = np.full((1, *along.shape[1:]), np.nan)
    ordered = np.sort(along, axis=0)
    return ordered, np.count_nonzero(~np.isnan(ordered), axis=0)


def _pick(ordered: Floats, places: Ints) -> Floats:
    """The value of each column at its place."""
    return np.asarray(np.take_along_axis(ordered, np.asarray(places)[None], axis=0)[0])


def mean(values: Floats, axis: int | None = None) -> Floats:
    """Mean of the finite values; NaN if there are none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(np.nanmean(finite(values), axis=axis))


def largest(values: Floats, axis: int | None = None) -> Floats:
    """Greatest finite value; NaN if there are none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(np.nanmax(finite(values), axis=axis))


def smallest(values: Floats) -> Floats:
    """Least finite value; NaN if there are none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(np.nanmin(finite(values)))


def sigma(values: Floats) -> Floats:
    """Robust standard deviation: the scaled median absolute deviation."""
    return MAD_TO_SIGMA * median(np.abs(finite(values) - median(values)))


def middle(values: Floats) -> float:
    """Median of all values as a float."""
    return float(median(values))


def background(values: Floats) -> float:
    """The usual value among peers: the lower median of (N,), 0 for a single one.

    The lower one, so that the quiet one of two peers is the reference.
    """
    known = np.sort(values[np.isfinite(values)])
    return float(known[(known.size - 1) // 2]) if known.size > 1 else 0.0


def runs(flags: Bools) -> list[tuple[int, int]]:
    """Half-open index ranges in which ``flags`` (T,) holds.

    >>> runs(np.array([False, True, True, False, True]))
    [(1, 3), (4, 5)]
    """
    padded = np.concatenate(([False], flags, [False])).astype(np.int8)
    edges = np.diff(padded)
    return [
        (int(a), int(b))
        for a, b in zip(np.flatnonzero(edges == 1), np.flatnonzero(edges == -1), strict=True)
    ]


def joined(flags: Bools, gap: int) -> Bools:
    """``flags`` with holes of at most ``gap`` cells between two runs filled."""
    out: Bools = flags.copy()
    spans = runs(flags)
    for (_, left), (right, _) in itertools.pairwise(spans):
        if right - left <= gap:
            out[left:right] = True
    return out


def last_index(flags: Bools) -> int | None:
    """Index of the last True, or None."""
    found = np.flatnonzero(flags)
    return int(found[-1]) if found.size else None


def first_index(flags: Bools) -> int | None:
    """Index of the first True, or None."""
    found = np.flatnonzero(flags)
    return int(found[0]) if found.size else None


def carried(values: Floats, limit: int | None = None) -> Floats:
    """Each hole filled with the value before it, at most ``limit`` cells far; (T,) or (S, T)."""
    known = ~np.isnan(values)
    cells = np.arange(values.shape[-1])
    at = np.where(known, cells, -1)
    at = np.maximum.accumulate(at, axis=-1)
    filled = np.take_along_axis(values, np.maximum(at, 0), axis=-1)
    near = at >= 0 if limit is None else (at >= 0) & (cells - at <= limit)
    return np.where(near, filled, np.nan)


def counted(values: Floats, limit: int) -> Floats:
    """Holes of a counter (S, T), of at most ``limit`` cells, filled as if it had grown evenly.

    Whole numbers stay whole. One that fell, or was not read again, is taken to have stood still.
    """
    before, after = carried(values), carried(values[..., ::-1])[..., ::-1]
    cells = np.arange(values.shape[-1])
    known = ~np.isnan(values)
    left = np.maximum.accumulate(np.where(known, cells, -1), axis=-1)
    right = values.shape[-1] - 1 - np.maximum.accumulate(
        np.where(known[..., ::-1], cells, -1), axis=-1
    )[..., ::-1]  # fmt: skip
    share = (cells - left) / np.maximum(right - left, 1)
    even = before + (after - before) * share
    even = np.where((before % 1 == 0) & (after % 1 == 0), np.floor(even + 1e-9), even)
    grown = ~known & (right - left <= limit + 1) & (after >= before)
    return np.where(grown, even, carried(values, limit))


def rolling_median(values: Floats, width: int) -> Floats:
    """Median of the ``width`` known values around each cell of (T,); NaN only where none is known.

    Holes do not count as places: the window is over known values.
    """
    out = np.full(values.size, np.nan)
    known = np.flatnonzero(np.isfinite(values))
    if not known.size:
        return out
    series = values[known]
    half = min(width, series.size) // 2
    padded = np.concatenate((series[:half][::-1], series, series[-half:][::-1] if half else []))
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1)
    out[known] = np.median(windows, axis=1)
    return carried_both(out)


def trailing_median(values: Floats, width: int) -> Floats:
    """Median of the ``width`` known values before each cell of (T,), itself left out.

    At the first known cells it is the median of as many as there are; NaN before the second.
    """
    out = np.full(values.size, np.nan)
    known = np.flatnonzero(np.isfinite(values))
    series = values[known]
    if known.size > width:
        windows = np.lib.stride_tricks.sliding_window_view(series[:-1], width)
        out[known[width:]] = np.median(windows, axis=1)
    for index in range(1, min(width, known.size)):
        out[known[index]] = np.median(series[:index])
    return out


def carried_both(values: Floats) -> Floats:
    """Holes of (T,) filled from the value before, those at the start from the first one."""
    forward = carried(values)
    return np.where(np.isnan(forward), carried(values[::-1])[::-1], forward)


def smoothed(values: Floats, width: int) -> Floats:
    """Running mean over ``width`` cells of (T,), holes left out; NaN if all are holes."""
    width = min(width, values.size)
    if width <= 1:
        return values
    known = np.isfinite(values)
    kernel = np.ones(width)
    total = np.convolve(np.where(known, values, 0.0), kernel, mode="same")
    count = np.convolve(known.astype(np.float64), kernel, mode="same")
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(count > 0, total / count, np.nan))


def most_within(values: Floats, cells: int) -> float:
    """The largest sum of ``values`` (T,) over a window of that many cells; NaN counts as 0."""
    sums = np.concatenate(([0.0], np.cumsum(np.nan_to_num(values))))
    return float(np.max(sums[cells:] - sums[:-cells])) if sums.size > cells else float(sums[-1])
