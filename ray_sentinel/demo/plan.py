"""What goes wrong in the demo: drawn at random, or told."""

from __future__ import annotations

import random

import msgspec

from ray_sentinel.errors import UsageError
from ray_sentinel.model.incident import FaultKind

WORLD_SIZE = 6

EXPECTED: dict[str, FaultKind] = {
    "sleep": "host-stuck",
    "sigstop": "rank-stopped",
    "sigkill": "rank-dead",
    "gil": "gil-held",
    "fifo": "input-wait",
}
"""Fault → the kind that the verdict must give it."""

FIRST_STEP, LAST_STEP = 40, 60
"""The trouble begins at a step between these: long enough to learn what is usual."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One draw."""

    fault: str
    rank: int
    step: int
    seed: int


def draw(fault: str = "", rank: int | None = None, seed: int | None = None) -> Plan:
    """What was not told is drawn; the same ``seed`` draws the same. Raises UsageError."""
    if seed is None:
        seed = random.SystemRandom().randrange(1 << 31)
    dice = random.Random(seed)
    drawn_fault, drawn_rank = dice.choice(sorted(EXPECTED)), dice.randrange(WORLD_SIZE)
    step = dice.randint(FIRST_STEP, LAST_STEP)
    if fault and fault not in EXPECTED:
        raise UsageError(f"no fault {fault}; there are {', '.join(EXPECTED)}")
    if rank is not None and not 0 <= rank < WORLD_SIZE:
        raise UsageError(f"no rank {rank}: the demo has ranks 0 to {WORLD_SIZE - 1}")
    return Plan(
        fault=fault or drawn_fault, rank=drawn_rank if rank is None else rank, step=step, seed=seed
    )
