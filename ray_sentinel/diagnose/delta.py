"""How one measure differs between two jobs, and whether that can be chance."""

from __future__ import annotations

import msgspec
import numpy as np

from ray_sentinel.diagnose import stats
from ray_sentinel.diagnose.series import Floats

STRENGTH = 5.0
"""Standard errors from which a difference is significant ..."""
LEAST = 0.01
"""... if it is this share of the first job's level at least."""


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """The usual level of one measure in both jobs."""

    metric: str
    title: str
    unit: str
    first: float
    second: float
    relative: float | None
    """Of the first's level; None where that is zero: there is no share of nothing."""
    significant: bool
    hosts: str = ""
    """Which hosts of the second job stand out in it, for people; empty where none does."""
    cause: str = ""
    """What such a difference points to; empty where it may be chance."""

    @property
    def change(self) -> str:
        """The difference for people: a share, or where there is none, what came on top.

        >>> Delta(metric="", title="", unit="/s", first=0.0, second=5.0, relative=None,
        ...       significant=True).change
        '+5/s from 0'
        """
        if self.relative is not None:
            return f"{self.relative:+.1%}"
        rise = self.second - self.first
        space = "" if self.unit.startswith(("/", "%")) or not self.unit else " "
        return f"{rise:+,.4g}{space}{self.unit} from 0" if rise else "none"


def apart(one: Floats, other: Floats) -> float:
    """The standard error of the difference of two levels."""
    return float(np.hypot(stats.sigma(one) / one.size**0.5, stats.sigma(other) / other.size**0.5))


def paired(one: Floats, other: Floats) -> float:
    """The same where the values are of the same steps: what both go through is no doubt."""
    return float(stats.sigma(other - one) / one.size**0.5)


def delta_of(
    metric: str, title: str, unit: str, one: Floats, other: Floats, error: float | None = None
) -> Delta:
    """The difference of two sets of values; ``error`` is its standard error, by default of levels
    that have nothing to do with each other."""
    a, b = stats.middle(one), stats.middle(other)
    error = apart(one, other) if error is None else error
    size = abs(b - a)
    significant = size > max(STRENGTH * 1.25 * error, LEAST * abs(a)) and size > 0
    return Delta(
        metric=metric, title=title, unit=unit, first=a, second=b,
        relative=(b - a) / abs(a) if a else None, significant=significant,
    )  # fmt: skip
