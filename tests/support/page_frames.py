"""Frames of a page, as Chromium's own trace tells of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

CATEGORIES = ("cc", "benchmark", "devtools.timeline", "disabled-by-default-devtools.timeline.frame")


class Frames(NamedTuple):
    """Those of one trace; times in milliseconds."""

    a_second: float
    median_ms: float
    """Between two that were presented, as the following."""
    high_ms: float
    """At the 95th percentile."""
    longest_ms: float
    presented: int
    dropped: int
    tasks: list[tuple[str, float]]
    """What kept the page's main thread, the longest first."""


def frames_of(events: Sequence[dict[str, Any]]) -> Frames:
    """Of at least two frames that were presented."""
    drawn = sorted(one["ts"] for one in events if one["name"] == "DrawFrame")
    dropped = sum(one["name"] == "DroppedFrame" for one in events)
    between = sorted((after - before) / 1000.0 for before, after in pairwise(drawn))
    tasks = [
        (str(one["args"].get("data", {}).get("functionName") or one["name"]), one["dur"] / 1000.0)
        for one in events
        if one["ph"] == "X" and "devtools.timeline" in one["cat"] and one["name"] != "RunTask"
    ]
    return Frames(
        a_second=1e6 * (len(drawn) - 1) / (drawn[-1] - drawn[0]),
        median_ms=between[len(between) // 2],
        high_ms=between[int(0.95 * len(between))],
        longest_ms=between[-1],
        presented=len(drawn),
        dropped=dropped,
        tasks=sorted(tasks, key=lambda one: -one[1]),
    )
