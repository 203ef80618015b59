"""Change points: where the level of a series moves, and how sure that is.

Binary segmentation (Scott & Knott 1974) with the CUSUM statistic (Page 1954) on winsorised values:
clipping at three robust standard deviations keeps single spikes (a checkpoint, a lost packet) from
being taken for a new level. A split stands only if the medians on both sides differ by more than
the noise explains and by more than the caller's least effect.
"""

from __future__ import annotations

import itertools

import msgspec
import numpy as np

from ray_sentinel.diagnose import stats
from ray_sentinel.diagnose.series import Floats

CLIP = 3.0
"""Number of standard deviations from the level at which a value is cut off: a spike is no shift."""
MOST_SHIFTS = 12
"""Most shifts that are looked for in one series."""
MIN_SIDE = 4
"""Least number of known cells on either side of a split."""
STRENGTH = 4.5
"""Number of standard errors by which two levels must differ."""


class Shift(msgspec.Struct, frozen=True, kw_only=True):
    """The level of a series moved from ``before`` to ``after`` at cell ``index``."""

    index: int
    at: float
    """The time of the first cell on the new level, in Unix seconds."""
    before: float
    after: float
    uncertainty: float
    """Seconds by which ``at`` may be off."""

    @property
    def size(self) -> float:
        """``after - before``."""
        return self.after - self.before


def find_shifts(
    values: Floats, times: Floats, *, least: float, relative: float = 0.0
) -> list[Shift]:
    """Level shifts of one series (T,) that has holes, in order of time.

    ``least`` is the smallest difference of levels that counts, in the unit of the values;
    ``relative`` the smallest as a share of the level before.
    """
    known = np.flatnonzero(np.isfinite(values))
    if known.size < 2 * MIN_SIDE:
        return []
    series = values[known]
    noise = _noise(series)
    splits = sorted(_segment(series, noise, 0, series.size, least, relative, MOST_SHIFTS))
    edges = [0, *splits, series.size]
    shifts = []
    for left, split, right in zip(edges, edges[1:], edges[2:], strict=False):
        before, after = stats.middle(series[left:split]), stats.middle(series[split:right])
        if abs(after - before) < max(least, relative * abs(before)):
            continue
        at = _onset(series, left, split, before, after, noise)
        cell = known[at]
        gap = times[cell] - times[known[at - 1]] if at else 0.0
        shifts.append(
            Shift(
                index=int(cell),
                at=float(times[cell]),
                before=before,
                after=after,
                uncertainty=float(max(gap, times[1] - times[0] if times.size > 1 else 0.0)),
            )
        )
    return shifts


def _noise(series: Floats) -> float:
    """The noise of a series, from differences of neighbours, so that the shifts themselves do not
    count."""
    return float(stats.sigma(np.diff(series))) / float(np.sqrt(2.0))


def _segment(
    series: Floats, noise: float, left: int, right: int, least: float, relative: float, most: int
) -> list[int]:
    if most <= 0 or right - left < 2 * MIN_SIDE:
        return []
    part = series[left:right]
    cuts = _cuts(part, noise, least, relative)
    if not cuts:
        return []
    edges = [left, *(left + cut for cut in cuts), right]
    found = edges[1:-1]
    for a, b in itertools.pairwise(edges):
        found += _segment(series, noise, a, b, least, relative, most - len(cuts))
    return found


def _cuts(part: Floats, noise: float, least: float, relative: float) -> list[int]:
    """Where to cut: at one place, or at the two ends of an episode in between."""
    curve = _cusum(part)
    if curve is None:
        return []
    split = _best_split(curve, part.size)
    if _differ(part[:split], part[split:], noise, least, relative):
        return [split]
    # A level that comes and goes leaves both halves alike (epidemic alternative; Levin & Kline
    # 1985): it lies between the lowest and the highest point of the curve.
    first, last = sorted((int(np.argmin(curve)) + 1, int(np.argmax(curve)) + 1))
    inside, outside = part[first:last], np.concatenate((part[:first], part[last:]))
    if _differ(inside, outside, noise, least, relative):
        return [cut for cut in (first, last) if MIN_SIDE <= cut <= part.size - MIN_SIDE]
    return []


def _differ(one: Floats, other: Floats, noise: float, least: float, relative: float) -> bool:
    if min(one.size, other.size) < MIN_SIDE:
        return False
    before, after = stats.middle(one), stats.middle(other)
    local = float(np.sqrt((_spread(one) ** 2 + _spread(other) ** 2) / 2.0))
    error = max(noise, local) * float(np.sqrt(1.0 / one.size + 1.0 / other.size))
    needed = max(least, relative * min(abs(before), abs(after)), STRENGTH * error)
    return abs(after - before) >= needed and after != before


def _spread(part: Floats) -> float:
    return float(stats.sigma(part))


def _cusum(part: Floats) -> Floats | None:
    """Running sum of the winsorised deviations (N - 1,); None if the series is flat or short."""
    if part.size < 2 * MIN_SIDE:
        return None
    centre = stats.middle(part)
    width = CLIP * float(stats.sigma(part))
    if width == 0.0:
        # More than half of the values are equal: the others are the news.
        width = float(np.max(np.abs(part - centre)))
        if width == 0.0:
            return None
    clipped = np.clip(part - centre, -width, width)
    return np.asarray(np.cumsum(clipped - clipped.mean())[:-1])


def _best_split(curve: Floats, size: int) -> int:
    sizes = np.arange(1, size)
    score = np.abs(curve) / np.sqrt(sizes * (size - sizes))
    score[: MIN_SIDE - 1] = 0.0
    score[size - MIN_SIDE :] = 0.0
    return int(np.argmax(score)) + 1


def _onset(series: Floats, left: int, split: int, before: float, after: float, noise: float) -> int:
    """Walk from the split to the first value that has left the old level for good."""
    size = abs(after - before)
    limit = max(3.0 * noise, 0.1 * size) if 3.0 * noise < 0.5 * size else 0.5 * size
    sign = 1.0 if after > before else -1.0
    away = sign * (series - before) > limit
    at = split
    while at > left + 1 and away[at - 1]:
        at -= 1
    while at < series.size - 1 and not away[at]:
        at += 1
    return at
