"""Incidents as the page gets them, in a form of its own.

Each second it gets, in brief, the open ones and the last of the closed ones. It asks for the rest
in parts, as rows, so that ten thousand of them are a burden to nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, get_args

import msgspec

from ray_sentinel.model.incident import FaultKind, Incident, IncidentState
from ray_sentinel.report.contract import incident_dict
from ray_sentinel.report.incident_markdown import steps_of
from ray_sentinel.report.wait_picture import wait_picture
from ray_sentinel.web.questions import UnknownQuestion, fields

SHOWN = 20
"""Most open incidents, and most closed ones, that are sent in brief."""
PART = 20
"""Rows of one answer if the question names no number."""
MOST_ROWS = 100
"""Most rows of one answer; a question for more is refused."""
MOST_CHOICES = 200
"""Most jobs, and most kinds, that a filter offers."""
OVER: frozenset[IncidentState] = frozenset({"resolved", "dismissed"})
BRIEF = (
    "id", "job", "attempt", "kind", "state", "summary", "confidence", "suspected_at",
    "confirmed_at", "last_progress", "culprits",
)  # fmt: skip
ROW = (
    "id", "job", "attempt", "kind", "state", "severity", "summary", "suspected_at", "resolved_at",
)  # fmt: skip


def in_brief(incidents: Sequence[Incident]) -> dict[str, Any]:
    """``incidents`` of which the page shows cards and marks, oldest first, and how many there are:
    ``incident_counts`` of ``open`` and ``all``."""
    still_open = [one for one in incidents if one.state not in OVER]
    shown = {one.id for one in still_open[-SHOWN:]}
    shown |= {one.id for one in islice((i for i in reversed(incidents) if i.state in OVER), SHOWN)}
    return {
        "incidents": [_brief(one) for one in incidents if one.id in shown],
        "incident_counts": {"open": len(still_open), "all": len(incidents)},
    }


def _brief(incident: Incident) -> dict[str, Any]:
    whole = incident_dict(incident)
    told = {key: whole[key] for key in BRIEF}
    if incident.state not in OVER:
        steps = incident.verdict.next_steps if incident.verdict is not None else ()
        told |= {"waits": _picture(incident), "to_do": steps[0] if steps else ""}
    return told


def _picture(incident: Incident) -> dict[str, Any] | None:
    picture = wait_picture(incident)
    return None if picture is None else msgspec.to_builtins(picture)


def whole(incident: Incident) -> dict[str, Any]:
    """All of one, with the picture of who waits for whom as ``waits``, and ``steps``: the sentence
    of each step in ``chain``, for itself alone."""
    chain = incident.verdict.chain if incident.verdict is not None else ()
    steps = [
        # One that begins with the end of its step calls the start "it".
        said if said.startswith(step.start) else f"{step.start}: {said}"
        for step, said in zip(chain, steps_of(incident), strict=True)
    ]
    return incident_dict(incident) | {"waits": _picture(incident), "steps": steps}


def rows(incidents: Sequence[Incident], query: str) -> dict[str, Any]:
    """A part of the list, newest first, for ``before=ID&limit=N&job=J&kind=K&state=S``, each of
    which may be left out; ``state`` may be ``open`` and ``over`` too. ``more`` says whether older
    ones match, ``jobs`` and ``kinds`` which exist at all. Raises ``UnknownQuestion``."""
    asked = _asked(query)
    limit = _limit(asked.pop("limit", ""))
    before = asked.pop("before", "")
    fits = _filter(asked)
    older = _older(incidents, before)
    found = list(islice((one for one in older if fits(one)), limit + 1))
    return {
        "incidents": [{key: getattr(one, key) for key in ROW} for one in found[:limit]],
        "more": len(found) > limit,
        "jobs": _choices(one.job for one in reversed(incidents)),
        "kinds": sorted(_choices(one.kind for one in incidents)),
    }


def _asked(query: str) -> dict[str, str]:
    known = ("before", "limit", "job", "kind", "state")
    given = fields(query)
    if unknown := sorted(set(given) - set(known)):
        raise UnknownQuestion(f"{unknown[0][:40]!r} is none of {', '.join(known)}")
    return {name: value for name, value in given.items() if value}


def _limit(text: str) -> int:
    if not text:
        return PART
    if not (text.isascii() and text.isdigit() and len(text) < 4 and 0 < int(text) <= MOST_ROWS):
        raise UnknownQuestion(f"limit is a number from 1 to {MOST_ROWS}")
    return int(text)


def _filter(asked: dict[str, str]) -> Callable[[Incident], bool]:
    job, kind, state = (asked.get(name, "") for name in ("job", "kind", "state"))
    states = {"": None, "over": OVER, "open": frozenset(get_args(IncidentState)) - OVER}
    states |= {one: frozenset((one,)) for one in get_args(IncidentState)}
    if state not in states:
        raise UnknownQuestion(f"state is one of {', '.join(filter(None, states))}")
    if kind and kind not in get_args(FaultKind):
        raise UnknownQuestion("there is no such kind")
    wanted = states[state]
    return lambda one: (
        (wanted is None or one.state in wanted)
        and (not job or one.job == job)
        and (not kind or one.kind == kind)
    )


def _older(incidents: Sequence[Incident], before: str) -> Sequence[Incident]:
    """Newest first. Where the one that is named is forgotten, so are all before it."""
    if not before:
        return incidents[::-1]
    place = next((n for n, one in enumerate(incidents) if one.id == before), 0)
    return incidents[:place][::-1]


def _choices(names: Any) -> list[str]:
    return list(islice(dict.fromkeys(names), MOST_CHOICES))
