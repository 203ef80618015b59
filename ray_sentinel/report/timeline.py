"""The course of an incident, step by step: when the ranks moved last, what was seen, what was
done."""

from __future__ import annotations

import textwrap

from ray_sentinel.model.incident import Incident, Milestone

WIDTH = 200
"""Most characters of a step's reason; the whole of a longer one is in ``incident.json``."""
STATES = {
    "suspected": "case opened",
    "confirmed": "decided",
    "captured": "captured",
    "explained": "bundle written",
    "resolved": "over",
    "dismissed": "dropped",
}


def timeline(incident: Incident) -> tuple[Milestone, ...]:
    """All steps in their order; at the same moment, observations come before actions."""
    steps = list(incident.milestones)
    if incident.last_progress is not None:
        steps.append(
            Milestone(incident.last_progress, "last progress", "of the job: its silence begins")
        )
    steps += [
        Milestone(step.at, STATES.get(step.state, step.state), _once(step.why))
        for step in incident.history
    ]
    return tuple(sorted(steps, key=lambda step: step.at))


def _once(why: str) -> str:
    """Each part once, in one line: several nodes report the same about a tool that none of them
    has."""
    return textwrap.shorten("; ".join(dict.fromkeys(why.split("; "))), WIDTH, placeholder=" ...")
