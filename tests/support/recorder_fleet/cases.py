"""Faults drawn into drawn jobs."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.support.recorder_fleet.clock import TRANSFERS, Clockwork, Fault, edited
from tests.support.recorder_fleet.shape import Axes, Shape, build, draw

FAULTS = (
    "host",
    "launch",
    "unseen",
    "device",
    "hosts far",
    "hosts near",
    "host and unseen",
    "unseen both",
    "op",
    "size",
    "dtype",
    "order",
    "left out",
    "too many",
    "outside",
    "healthy",
)


@dataclass(frozen=True)
class Case:
    """A job at its standstill."""

    job: Clockwork
    axes: Axes
    fault: str
    culprits: frozenset[int]


def make(fault: str, seed: int) -> Case:
    """One case, the same for the same arguments."""
    rng = random.Random(f"{fault}:{seed}")
    axes = draw(rng)
    shape = build(axes)
    faults = _faults(fault, shape, axes, rng)
    depth = rng.choice((12, 40, 1 << 30))
    job = Clockwork(shape, faults, rng.randrange(1 << 30), depth)
    culprits = frozenset() if fault in ("outside", "healthy") else frozenset(job.hit)
    return Case(job, axes, fault, culprits)


def _faults(fault: str, shape: Shape, axes: Axes, rng: random.Random) -> list[Fault]:
    rank = rng.randrange(shape.world)
    at = rng.randrange(2, len(shape.todo[rank]) - 1)
    if fault in ("host", "launch", "unseen", "device"):
        return [Fault(rank, fault, at)]
    if fault == "outside":
        turn = rng.randrange(1, axes.steps)
        return [Fault(r, "host", shape.last_sync[r][turn]) for r in range(shape.world)]
    if fault == "healthy":
        return []
    pairs = {
        "hosts far": ("host", "host"),
        "hosts near": ("host", "host"),
        "host and unseen": ("host", "unseen"),
        "unseen both": ("unseen", "unseen"),
    }
    if fault in pairs:
        near = rank ^ 1 if rank ^ 1 < shape.world else rank - 1
        other = near if fault == "hosts near" else (rank + shape.world // 2) % shape.world
        there = min(max(2, at + rng.randrange(-5, 6)), len(shape.todo[other]) - 1)
        return [Fault(rank, pairs[fault][0], at), Fault(other, pairs[fault][1], there)]
    return _wrong(fault, shape, rank, rng)


def _wrong(fault: str, shape: Shape, rank: int, rng: random.Random) -> list[Fault]:
    calls = shape.todo[rank]
    plain = [
        i
        for i, call in enumerate(calls[:-1])
        if i > 1 and call.op not in (*TRANSFERS, "all_to_all", "barrier")
    ]
    at = rng.choice(plain)
    if fault in ("op", "size", "dtype"):
        calls[at] = edited(calls[at], fault)
    elif fault == "left out":
        del calls[at]
    elif fault == "too many":
        calls.insert(at, calls[at])
    else:
        other = next((j for j in plain if j > at and calls[j].group != calls[at].group), at)
        calls[at], calls[other] = calls[other], calls[at]
    return [Fault(rank, "call", at)]
