"""Factors of witnesses, fitted to jobs with a known culprit; ``confidence`` uses them.

Written by ``bench/calibration.py --write``, never by hand. ``MADE`` says from what, and
how well the numbers do on the half of the jobs on which nothing was fitted, and on real
ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FACTORS: Mapping[str, float] = {
    "constant": -0.65,
    "any other": 0.45,
    "exit": 0.757,
    "flight-recorder: collective-mismatch": 1.118,
    "flight-recorder: device-stuck": 0.852,
    "flight-recorder: no-dump": 0.704,
    "flight-recorder: not-enqueued": 1.07,
    "nccl-ras: collective-mismatch": 1.08,
    "nccl-ras: communicator-error": 0.934,
    "nccl-ras: left-communicator": 1.132,
    "nccl-ras: not-enqueued": 0.874,
    "nccl-ras: rank-dead": 0.802,
    "nccl-ras: rank-unresponsive": 0.719,
    "process": 0.527,
    "ray: broken": 0.698,
    "ray: circle": 0.711,
    "ray: standing": 0.705,
    "ray: works": 0.674,
    "several": -1.162,
    "stacks: another call": 0.836,
    "stacks: another place": 0.248,
    "stacks: crowd": 1.179,
    "stacks: elsewhere": 1.488,
    "stacks: hidden": 0.052,
    "stacks: kernel-blocked": 1.453,
    "stacks: may not wait": 1.051,
    "stacks: may wait": 1.467,
    "stacks: moves": 0.477,
    "stacks: no stack": 0.16,
    "stacks: outnumbered": -0.737,
    "stacks: rank-stopped": 1.443,
    "stacks: seen once": -0.372,
    "stacks: unknown code": 1.001,
    "stacks: waits": 0.174,
}

MADE: Mapping[str, Any] = {
    "command": "python bench/calibration.py [--from FILE ...] --write",
    "drawn": {
        "RAS": 500,
        "weighed: RAS": 500,
        "stacks: made": 500,
        "weighed: stacks": 500,
        "weighed: both": 400,
        "recorder: listed": 500,
        "weighed: recorder": 300,
        "engine: ranks": 200,
        "engine: actors": 125,
        "recorder: drawn": 240,
    },
    "fitted on": {
        "RAS": 113,
        "weighed: RAS": 101,
        "stacks: made": 56,
        "weighed: stacks": 43,
        "weighed: both": 108,
        "recorder: listed": 156,
        "weighed: recorder": 91,
        "engine: ranks": 50,
        "engine: actors": 21,
        "recorder: drawn": 75,
    },
    "held out": {
        "verdicts": 868,
        "right": 0.946,
        "stated": 0.917,
        "brier": 0.0423,
        "gap": 0.0401,
    },
    "held out, stated 85 to 95 %": {
        "verdicts": 164,
        "right": 0.957,
        "stated": 0.906,
        "brier": 0.0422,
        "gap": 0.0512,
    },
    "real incidents": {
        "verdicts": 37,
        "right": 1.0,
        "stated": 0.948,
        "brier": 0.0127,
        "gap": 0.0518,
    },
}
