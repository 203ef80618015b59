"""What ranks, actors and drivers wrote last, in the words of every report."""

from __future__ import annotations

from ray_sentinel import regex as re
from ray_sentinel.model.incident import Incident, RankLog

LINKED = re.compile(r"(?:look_[0-9]{1,4}/)?logs/[A-Za-z0-9._-]+")
"""The names of files to which a report links: only names that we gave."""


def who_wrote(log: RankLog) -> str:
    """``rank 3 on host-a (pid 77, ended)``."""
    return f"{log.who} on {log.host} (pid {log.pid}{', ended' if log.ended else ''})"


def sources_of(log: RankLog) -> str:
    """Where its lines come from, and what is missing."""
    return "; ".join([*log.sources, *([log.missing] if log.missing else [])])


def others_title(incident: Incident) -> str:
    """The heading over the ranks whose lines are not quoted."""
    quoted = any(log.lines for log in incident.logs)
    what = "ranks" if all(log.rank is not None for log in incident.logs) else "processes"
    return f"What the {'other ' if quoted else ''}{what} wrote last"
