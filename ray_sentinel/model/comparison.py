"""How one job differs from another."""

from __future__ import annotations

import msgspec

from ray_sentinel.model.diagnosis import Plot


def number(value: float, sign: str = "") -> str:
    """A number with four digits, or in full where it is larger.

    >>> number(4.00071), number(90000.0), number(12.5, "+")
    ('4.001', '90,000', '+12.5')
    """
    return f"{value:{sign},.0f}" if abs(value) >= 1e4 else f"{value:{sign},.4g}"


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """The usual level of one measure in both jobs."""

    metric: str
    title: str
    unit: str
    first: float
    second: float
    relative: float | None
    """The difference as a share of the first job's level; None if that is zero."""
    significant: bool
    hosts: str = ""
    """Which hosts of the second job stand out, for people; empty if none does."""
    cause: str = ""
    """What such a difference points to; empty if it may be chance."""

    @property
    def change(self) -> str:
        """The difference for people: a share, or the absolute increase if a share is undefined.

        >>> Delta(metric="", title="", unit="/s", first=0.0, second=5.0, relative=None,
        ...       significant=True).change
        '+5/s from 0'
        """
        if self.relative is not None:
            return f"{self.relative:+.1%}"
        rise = self.second - self.first
        space = "" if self.unit.startswith(("/", "%")) or not self.unit else " "
        return f"{number(rise, '+')}{space}{self.unit} from 0" if rise else "none"


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One job against the first."""

    first: str
    second: str
    config: dict[str, tuple[str, str]]
    steps: tuple[float, float] | None
    deltas: tuple[Delta, ...]
    root_cause: str
    culprits: tuple[str, ...] = ()
    """Hosts and ports of the second job in which the root cause lies."""
    standing: tuple[str, ...] = ()
    """A sentence about each measure that says who stands out."""
    source_trace: tuple[str, ...] = ()
    """The places in the source from which the root cause comes, where they are known."""
    notes: tuple[str, ...] = ()
    plots: tuple[Plot, ...] = ()
    """Plots of measures of both jobs; their ``times`` are steps."""
