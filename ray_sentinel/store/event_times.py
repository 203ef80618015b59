"""The times of an event file's values, put right where the rest of the file contradicts them.

Clocks are set while a job runs, and begin in 1970 on machines without a battery. Within a file the
order of writing and the steps are the truth: a value whose step is higher was not written earlier.
"""

from __future__ import annotations

import numpy as np

from ray_sentinel.diagnose.series import Bools, Floats

AWAY_SECONDS = 365 * 86400.0
"""No job rests so long: a value so far from the middle of its file is of another clock."""
JITTER_SECONDS = 1.0
"""Times of threads that write together may be out of order by so much."""
FEW = 3
"""So many values in a row, or this share of all, were stamped by a clock that was wrong for a
moment; of more, the clock was set for good."""
FEW_SHARE = 0.01


def settled(times: Floats, steps: Floats, middle: float) -> Floats:
    """The times (N,) of one tag's values in the order of writing; ``middle`` is the file's.

    Where a clock was set back, what was written before it is moved back with it: the later clock
    is the corrected one. A time that only few values have is put between its neighbours'.
    """
    out = np.where(np.abs(times - middle) < AWAY_SECONDS, times, np.nan)
    for place in np.flatnonzero((np.diff(times) < -JITTER_SECONDS) & (np.diff(steps) > 0)) + 1:
        _turn(out, int(place))
    known = np.flatnonzero(np.isfinite(out))
    if not known.size:
        return np.full(times.size, middle)
    places = np.arange(times.size)
    # Before the first and after the last known one at the usual distance.
    beyond = np.minimum(places - known[0], 0) + np.maximum(places - known[-1], 0)
    return np.asarray(np.interp(places, known, out[known]) + _usual(out[known]) * beyond)


def _turn(times: Floats, place: int) -> None:
    """Put right that the clock goes back from the value before ``place``, in place."""
    before, after = times[:place], times[place:]
    if not (np.isfinite(before[-1]) and np.isfinite(after[0])):
        return
    back = float(before[-1] - after[0])
    if back <= JITTER_SECONDS:
        return
    ahead = _run(before[::-1] > after[0])
    behind = _run(after < before[-1])
    if min(ahead, behind) > max(FEW, FEW_SHARE * times.size):
        before -= back + _usual(times)
    elif ahead <= behind:
        before[place - ahead :] = np.nan
    else:
        after[:behind] = np.nan


def _usual(times: Floats) -> float:
    """The usual distance of two values."""
    gaps = np.diff(times)
    gaps = gaps[gaps >= 0]
    return float(np.median(gaps)) if gaps.size else 0.0


def _run(flags: Bools) -> int:
    """How many hold from the first on."""
    off = np.flatnonzero(~flags)
    return int(off[0]) if off.size else flags.size
