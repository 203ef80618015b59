"""Small phrases that all reports share."""

from __future__ import annotations

from datetime import datetime, timezone

from ray_sentinel.model.straggler import StragglerStatus

MOST_HEAT = 10
"""Number of the last looks at a straggler whose costs are told."""


def moment(at: float | None) -> str:
    """A time for people, in UTC to the tenth of a second: ``2026-01-02 03:04:05.6 UTC``."""
    if at is None:
        return "unknown"
    when = datetime.fromtimestamp(at, tz=timezone.utc)
    return f"{when:%Y-%m-%d %H:%M:%S}.{when.microsecond // 100_000} UTC"


def second(at: float) -> str:
    """A time in UTC to the second, for a column whose title says so: ``2026-01-02 03:04:05``."""
    return f"{datetime.fromtimestamp(at, tz=timezone.utc):%Y-%m-%d %H:%M:%S}"


def clock(at: float | None) -> str:
    """The time of the day alone: ``03:04:05.6``."""
    return "unknown" if at is None else moment(at).split(" ")[1]


def day(at: float | None) -> str:
    """The day alone: ``2026-01-02``."""
    return "" if at is None else moment(at).split(" ")[0]


def since(start: float | None, at: float | None) -> str:
    """A signed distance: ``+3.2 s``; empty if either is unknown."""
    return "" if start is None or at is None else f"{at - start:+.1f} s"


def duration(seconds: float) -> str:
    """A length of time for people, in at most two units: ``14 s``, ``3 min 20 s``, ``2 h 5 min``,
    ``3 d 4 h``."""
    whole = max(0, round(seconds))
    for unit, size, smaller, part in _UNITS:
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{whole} s"


_UNITS = (("d", 86_400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1))


PROGRESS = {
    "suspected": "suspected",
    "confirmed": "going on",
    "captured": "going on, evidence saved",
    "explained": "going on, evidence saved",
    "resolved": "over",
    "dismissed": "dismissed",
}


def progress_of(state: str) -> str:
    """The state of an incident for people, as the page says it, too."""
    return PROGRESS.get(state, state)


def brief_progress(state: str) -> str:
    """The same for a narrow column."""
    return progress_of(state).partition(",")[0]


def watts(power: float) -> str:
    """A power for people: ``640 W``, ``39.0 kW``."""
    return f"{power:.0f} W" if power < 1e4 else f"{power / 1e3:,.1f} kW"


def percent(confidence: float) -> str:
    """A confidence of 0..1 for people."""
    return f"{100 * confidence:.0f} %"


def cost_of(found: StragglerStatus) -> str:
    """Who slows a job down and what that costs, now and in the last looks."""
    heat = " ".join(f"{cost:.0f}" for _, cost in found.heat[-MOST_HEAT:])
    return f"{found.whom} costs {found.cost_percent:.0f} % of the time (lately, in %: {heat})"
