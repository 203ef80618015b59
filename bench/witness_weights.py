"""Weights of witnesses, fitted: the log-odds with which a name is right, by who gives it.

The live judge adds up what witnesses put on a rank (stacks, recorder, RAS, processes, exits), and
names whoever has enough. Here a factor for each witness, a constant, and one if several are named
are fitted to drawn jobs by logistic regression.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from samples_of_verdicts import Sample

NOT_DRAWN = 0.45
"""The factor of a witness that no drawn job has, and to which the others are held."""
CONSTANT = -0.65
"""With that, what held before anything was fitted: 0.62 for a score of 2.5, 0.9 for 6."""
RIDGE = 0.5
"""How strongly factors are held to that."""
DOUBT = 0.02
"""So many verdicts are taken to be wrong for reasons that nobody thought to draw."""
ROUNDS = 50


def features(sample: Sample, witnesses: Sequence[str]) -> list[float]:
    """What the log-odds are a sum of."""
    return [1.0, float(len(sample.named) > 1), *(sample.witnesses.get(w, 0.0) for w in witnesses)]


def fit(samples: Sequence[Sample]) -> dict[str, float]:
    """The constant, what several culprits add, and the factor of each witness."""
    witnesses = sorted({witness for one in samples for witness in one.witnesses})
    rows = np.array([features(one, witnesses) for one in samples])
    right = np.array([(1.0 - DOUBT) * one.is_right for one in samples])
    prior = np.array([CONSTANT, 0.0, *(NOT_DRAWN for _ in witnesses)])
    hold, weights = RIDGE * np.eye(rows.shape[1]), prior
    for _ in range(ROUNDS):
        told = 1 / (1 + np.exp(-rows @ weights))
        slope = rows.T @ (right - told) - hold @ (weights - prior)
        curve = (rows.T * (told * (1 - told))) @ rows + hold
        step = np.linalg.solve(curve, slope)
        weights = weights + step
        if abs(step).max() < 1e-6:
            break
    rounded = (round(float(weight), 2) for weight in weights)
    return dict(zip(("constant", "several", *witnesses), rounded, strict=True))


def sure(sample: Sample, weights: Mapping[str, float]) -> float:
    """The share of such verdicts that is right."""
    values = zip(features(sample, [*weights][2:]), weights.values(), strict=True)
    return float(1 / (1 + np.exp(-sum(value * weight for value, weight in values))))
