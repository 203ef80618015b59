"""What is measured of a trial of either family of the fault suite."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from ray_sentinel.model.incident import Incident
from ray_sentinel.waitgraph.confidence import put_on_culprit


class PlayedTrial(msgspec.Struct, frozen=True, kw_only=True):
    """How a trial went, and what is wrong with the verdict."""

    job: str = ""
    incidents: tuple[Incident, ...] = ()
    """The confirmed incidents, in their order."""
    began: float | None = None
    """When the trouble began, as Unix time; None if it did not."""
    seconds: float | None = None
    """Seconds from then to the first confirmed incident; None if there is none."""
    wrong: str = ""
    """What is wrong with the verdict; empty if it is right."""
    broken: str = ""
    """Why the trial itself failed; empty if it did not."""

    @property
    def incident(self) -> Incident | None:
        """The first incident; None if there is none."""
        return self.incidents[0] if self.incidents else None

    @property
    def right(self) -> bool:
        """Whether the trial came about, and the verdict is right."""
        return not self.wrong and not self.broken


class FaultResult(msgspec.Struct, frozen=True, kw_only=True):
    """One trial's result, as it is written."""

    fault: str
    layout: str
    attach: str
    seed: int
    job: str
    clock: str
    expected_kinds: list[str]
    kind: str
    """The kind of fault that the first incident states; empty if there is none."""
    seconds: float | None
    """Seconds from the beginning of the trouble to the first confirmed incident."""
    in_time: bool
    exact: bool
    """Whether the culprits, and nobody else, were named."""
    right_kind: bool
    false_alarms: int
    wrong: str
    broken: str
    summary: str = ""
    confidence: float = 0.0
    """The confidence (0..1) that the first incident states."""
    witnesses: dict[str, float] = {}
    """What each witness puts on the culprit of whom it is least sure."""


def measured(
    played: PlayedTrial, clock: str, limit: float | None, kinds: Collection[str]
) -> dict[str, Any]:
    """The fields of a ``FaultResult`` that do not depend on who was named: ``limit`` in seconds,
    ``kinds`` that the fault may be called. Early incidents and those of healthy jobs are false
    alarms."""
    first, healthy = played.incident, clock == "healthy"
    verdict = first.verdict if first else None
    confirmed = [one.confirmed_at or 0.0 for one in played.incidents]
    early = [at for at in confirmed if at < (played.began or 0.0)]
    return {
        "job": played.job,
        "clock": clock,
        "expected_kinds": list(kinds),
        "kind": first.kind if first else "",
        "seconds": played.seconds,
        "in_time": limit is None or (played.seconds is not None and played.seconds <= limit),
        "right_kind": (first is None) if healthy else first is not None and first.kind in kinds,
        "false_alarms": len(confirmed if healthy else early),
        "wrong": played.wrong,
        "broken": played.broken,
        "summary": first.summary if first else "",
        "confidence": verdict.confidence if verdict else 0.0,
        "witnesses": dict(put_on_culprit(verdict)) if verdict else {},
    }


def misjudged(incidents: Sequence[Incident], healthy: bool, kinds: Collection[str]) -> str:
    """What is wrong with the incidents of a trial, whoever they name; empty if nothing is."""
    told = "; ".join(f"{one.kind}: {one.summary}" for one in incidents)
    if healthy:
        return f"a false alarm: {told}" if told else ""
    if len(incidents) != 1:
        return f"{len(incidents)} incidents instead of one{': ' if told else ''}{told}"
    kind = incidents[0].kind
    return f"it says {kind}" if kind not in kinds else ""
