"""Factors of witnesses, fitted to jobs with a known culprit; ``confidence`` uses them.

Written by ``bench/calibration.py --write``, never by hand. ``MADE`` says from what, and how
well the numbers do on the half of the jobs on which nothing was fitted, and on real ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FACTORS: Mapping[str, float] = {
    "constant": -0.65,
    "any other": 0.45,
    "nccl-ras: not-enqueued": 0.72,
    "nccl-ras: rank-dead": 0.714,
    "several": 0.0,
    "stacks: crowd": 0.976,
    "stacks: elsewhere": 0.942,
    "stacks: outnumbered": 0.0,
    "stacks: seen once": 0.0,
}

MADE: Mapping[str, Any] = {
    "command": "python bench/calibration.py --samples 8 --incidents SUITE.jsonl --write",
    "fitted on": {
        "weighed: stacks": 2,
        "RAS": 3,
    },
    "held out": {
        "verdicts": 6,
        "right": 1.0,
        "stated": 0.817,
        "brier": 0.0435,
        "gap": 0.183,
    },
    "held out, stated 85 to 95 %": {
        "verdicts": 1,
        "right": 1.0,
        "stated": 0.898,
        "brier": 0.0104,
        "gap": 0.102,
    },
    "real incidents": {},
}
