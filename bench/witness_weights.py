"""Weights of witnesses, fitted: the log-odds with which a name is right, by who gives it.

The live judge adds up weights of witnesses (stacks, recorder, RAS, processes, exits), names whoever
has enough, and states a confidence of that sum. Here the same weights, each with a factor for its
witness, a constant, and one if several are named, are fitted to drawn jobs by logistic regression.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from samples_of_verdicts import Sample

from ray_sentinel.engine.verdicts.confidence import KNOWN_PLACE, UNKNOWN_PLACE

WITNESSES = ("flight-recorder", KNOWN_PLACE, UNKNOWN_PLACE, "nccl-ras", "process", "exit")
NOT_DRAWN = 0.45
"""The factor of a witness that no drawn job has, and to which the others are held."""
PRIOR = (-0.65, 0.0, *(NOT_DRAWN for _ in WITNESSES))
"""What held before anything was fitted: 0.62 for a score of 2.5, 0.9 for 6."""
RIDGE = 0.5
"""How strongly factors are held to that."""
DOUBT = 0.02
"""So many verdicts are taken to be wrong for reasons that nobody thought to draw."""
ROUNDS = 50


def features(sample: Sample) -> list[float]:
    """What the log-odds are a sum of."""
    return [1.0, float(len(sample.named) > 1), *(sample.witnesses.get(w, 0.0) for w in WITNESSES)]


def fit(samples: Sequence[Sample]) -> dict[str, float]:
    """The constant, what several culprits add, and the factor of each witness."""
    rows = np.array([features(one) for one in samples])
    right = np.array([(1.0 - DOUBT) * one.is_right for one in samples])
    hold, prior = RIDGE * np.eye(rows.shape[1]), np.array(PRIOR)
    weights = prior
    for _ in range(ROUNDS):
        told = 1 / (1 + np.exp(-rows @ weights))
        slope = rows.T @ (right - told) - hold @ (weights - prior)
        curve = (rows.T * (told * (1 - told))) @ rows + hold
        step = np.linalg.solve(curve, slope)
        weights = weights + step
        if abs(step).max() < 1e-6:
            break
    rounded = (round(float(weight), 2) for weight in weights)
    return dict(zip(("constant", "several", *WITNESSES), rounded, strict=True))


def sure(sample: Sample, weights: Mapping[str, float]) -> float:
    """The share of such verdicts that is right."""
    values = zip(features(sample), weights.values(), strict=True)
    return float(1 / (1 + np.exp(-sum(value * weight for value, weight in values))))
