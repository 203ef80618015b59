"""Slow steps: the symptom that many causes share."""

from __future__ import annotations

from ray_sentinel.diagnose.case import JobCase
from ray_sentinel.diagnose.detect import pace
from ray_sentinel.diagnose.detect.attribution import Attribution
from ray_sentinel.model.diagnosis import Link


def slow_link(case: JobCase, fit: Attribution | None = None) -> Link:
    """The slow steps as the end of a causal chain."""
    tempo = case.once(pace.find)
    factor = 1.0 + fit.effect if fit is not None else tempo.worst
    spell = tempo.spells[0] if tempo.spells else None
    return Link(
        role="symptom",
        text=f"steps take {factor:.2f} times as long; throughput falls by {1 - 1 / factor:.0%}",
        at=spell.start if spell else None,
        uncertainty=spell.uncertainty if spell else None,
        metric=tempo.metric,
        promql=tempo.promql,
    )
