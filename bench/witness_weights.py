"""Weights of witnesses, fitted: the log-odds with which a name is right, by who gives it.

Judges add up what witnesses put on a rank, and name whoever has enough. Here the factor of each
witness in the log-odds of being right is fitted to verdicts on jobs with a known culprit by
logistic regression (``ray_sentinel/waitgraph/confidence.py``, which states it).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np
from reliability import brier, gap
from samples_of_verdicts import Sample

from ray_sentinel.waitgraph.confidence import (
    CONSTANT,
    NOT_DRAWN,
    OUTNUMBERED,
    SEEN_ONCE,
    SEVERAL,
    STACKS,
    stated,
)

PRIOR = 0.45
"""The factor of a witness that no job has, and to which the others are held."""
ODDS = -0.65
"""The constant. With that factor, a score of 2.5 is 0.62, and one of 6 is 0.9."""
WEAKENING = {SEVERAL: 0.0, f"{STACKS}: {SEEN_ONCE}": -0.2, f"{STACKS}: {OUTNUMBERED}": -0.3}
"""What never makes a name surer, with the factor to which it is held: what the strengths of the
judge take off. All others never make it less sure."""
RIDGE = 1.0
"""How strongly factors are held to that."""
DOUBT = 0.02
"""So many verdicts are taken to be wrong for reasons that nobody thought to draw."""
ROUNDS = 50


def fit(samples: Sequence[Sample]) -> dict[str, float]:
    """The factors of all witnesses, the constant, and that of a witness that was never seen."""
    free = sorted({*WEAKENING, *(witness for one in samples for witness in one.witnesses)})
    held: dict[str, float] = {}
    while True:
        found = _fit(samples, [witness for witness in free if witness not in held])
        signs = {who: -factor if who in WEAKENING else factor for who, factor in found.items()}
        wrong = {who: 0.0 for who, sign in signs.items() if sign < 0.0}
        if not wrong:
            break
        held |= wrong
    factors = {who: round(factor, 3) for who, factor in sorted((found | held).items())}
    return {CONSTANT: ODDS, NOT_DRAWN: PRIOR, **factors}


def _fit(samples: Sequence[Sample], witnesses: Sequence[str]) -> dict[str, float]:
    rows = np.array([[one.witnesses.get(who, 0.0) for who in witnesses] for one in samples])
    right = np.array([(1.0 - DOUBT) * one.is_right for one in samples])
    prior = np.array([WEAKENING.get(who, PRIOR) for who in witnesses])
    hold, factors = RIDGE * np.eye(len(witnesses)), prior
    for _ in range(ROUNDS):
        told = 1 / (1 + np.exp(-ODDS - rows @ factors))
        slope = rows.T @ (right - told) - hold @ (factors - prior)
        curve = (rows.T * (told * (1 - told))) @ rows + hold
        step = np.linalg.solve(curve, slope)
        factors = factors + step
        if abs(step).max() < 1e-6:
            break
    return dict(zip(witnesses, map(float, factors), strict=True))


def restated(samples: Sequence[Sample], factors: Mapping[str, float]) -> list[Sample]:
    """The verdicts with the confidence that these factors give."""
    return [
        msgspec.structs.replace(one, confidence=stated(one.witnesses, factors)) for one in samples
    ]


def by_score(samples: Sequence[Sample]) -> list[Sample]:
    """The verdicts with the confidence that held before anything was fitted: of the score alone."""
    alone = {CONSTANT: ODDS, NOT_DRAWN: PRIOR, **dict.fromkeys(WEAKENING, 0.0)}
    return restated(samples, alone)


def quality(samples: Sequence[Sample]) -> dict[str, float]:
    """How well the confidence of some verdicts fits: their number, the share that is right, the
    mean confidence, the Brier score, and by how much the confidence is off on average."""
    count = len(samples)
    return {
        "verdicts": count,
        "right": round(sum(one.is_right for one in samples) / count, 3),
        "stated": round(sum(one.confidence for one in samples) / count, 3),
        "brier": round(brier(samples), 4),
        "gap": round(gap(samples), 4),
    }


def module(factors: Mapping[str, float], made: Mapping[str, object]) -> str:
    """The file of weights."""
    return "\n".join((
        '"""Factors of witnesses, fitted to jobs with a known culprit; ``confidence`` uses them.',
        "",
        "Written by ``bench/calibration.py --write``, never by hand. ``MADE`` says from what, and",
        "how well the numbers do on the half of the jobs on which nothing was fitted, and on real",
        "ones.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from collections.abc import Mapping",
        "from typing import Any",
        "",
        "FACTORS: Mapping[str, float] = {",
        *_lines(factors),
        "}",
        "",
        "MADE: Mapping[str, Any] = {",
        *_lines(made),
        "}",
        "",
    ))  # fmt: skip


def _lines(given: Mapping[str, object], depth: int = 1) -> Iterator[str]:
    indent = "    " * depth
    for name, value in given.items():
        if isinstance(value, Mapping) and value:
            yield f"{indent}{_quoted(name)}: {{"
            yield from _lines(value, depth + 1)
            yield f"{indent}}},"
        else:
            yield f"{indent}{_quoted(name)}: {_quoted(value)},"


def _quoted(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)
