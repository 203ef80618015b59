"""What an agent serves on its metrics port, as a real one does."""

from __future__ import annotations

import re
import urllib.request

from tests.support.waiting import eventually


def served(url: str) -> str:
    """All of it, as text."""
    with urllib.request.urlopen(url, timeout=5) as answer:
        return str(answer.read().decode())


def served_steps(url: str) -> dict[str, float]:
    """``train_step`` by rank, as it is now."""
    found = re.findall(r'^train_step\{[^}]*rank="(\d+)"[^}]*\} (\S+)$', served(url), re.MULTILINE)
    return {rank: float(value) for rank, value in found}


def goes_on(url: str, rank: str, times: int = 3) -> None:
    """The rank's step that is served, as once a second, grows so often."""
    for _ in range(times):
        before = served_steps(url)[rank]
        eventually(lambda before=before: served_steps(url)[rank] > before, "it grows", 6.0)


def last_collected(url: str) -> float:
    """When the collector of the host last succeeded (Unix seconds)."""
    name = "ray_sentinel_collector_last_success_timestamp_seconds"
    found = re.findall(
        rf'^{name}\{{[^}}]*collector="host"[^}}]*\}} (\S+)$', served(url), re.MULTILINE
    )
    return max(map(float, found), default=0.0)
