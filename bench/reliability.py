"""Stated confidence beside what came true: bins, scores, and the monotone map that fits best."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import NamedTuple, Protocol

BIN = 5
"""Per cent."""
Z = 1.96
"""Of a 95 % interval."""


class Claim(Protocol):
    """Something that was claimed with a confidence, and turned out right or wrong."""

    @property
    def confidence(self) -> float:
        """From 0 to 1."""

    @property
    def is_right(self) -> bool:
        """Whether it came true."""


class Block(NamedTuple):
    """Verdicts of like confidence: their number, their mean confidence, and how many are right."""

    count: int
    stated: float
    right: float

    @property
    def observed(self) -> float:
        """The share that is right."""
        return self.right / self.count


def wilson(right: float, count: int) -> tuple[float, float]:
    """The interval (0..1) in which the true share lies with 95 %."""
    if not count:
        return 0.0, 1.0
    share, extra = right / count, Z * Z / count
    middle = (share + extra / 2) / (1 + extra)
    half = Z / (1 + extra) * math.sqrt(share * (1 - share) / count + extra / (4 * count))
    return max(0.0, middle - half), min(1.0, middle + half)


def brier(samples: Sequence[Claim], told: Callable[[float], float] = lambda x: x) -> float:
    """The mean squared difference of confidence and truth: 0 is perfect, 0.25 says nothing."""
    return sum((told(one.confidence) - one.is_right) ** 2 for one in samples) / len(samples)


def bins(samples: Iterable[Claim]) -> list[Block]:
    """Verdicts in bins of stated confidence."""
    found = []
    ordered = sorted(samples, key=lambda one: one.confidence)
    for _, some in groupby(ordered, key=lambda one: int(one.confidence * 100 + 1e-6) // BIN):
        found.append(_block(list(some)))
    return found


def _block(some: Sequence[Claim]) -> Block:
    stated = sum(one.confidence for one in some) / len(some)
    return Block(len(some), stated, sum(one.is_right for one in some))


def isotonic(samples: Iterable[Claim]) -> list[Block]:
    """The monotone steps that fit best, by pooling adjacent violators."""
    ordered = sorted(samples, key=lambda one: one.confidence)
    pooled: list[Block] = []
    for _, some in groupby(ordered, key=lambda one: one.confidence):
        block = _block(list(some))
        while pooled and pooled[-1].observed >= block.observed:
            last = pooled.pop()
            count = last.count + block.count
            stated = (last.stated * last.count + block.stated * block.count) / count
            block = Block(count, stated, last.right + block.right)
        pooled.append(block)
    return pooled


def calibrated(steps: Sequence[Block]) -> Callable[[float], float]:
    """The map that the steps make: straight between their middles, and no share is quite 0 or 1."""
    places = [block.stated for block in steps]
    values = [(block.right + 1) / (block.count + 2) for block in steps]

    def told(confidence: float) -> float:
        at = bisect_left(places, confidence)
        if at == 0:
            return values[0]
        if at == len(places):
            return values[-1]
        share = (confidence - places[at - 1]) / (places[at] - places[at - 1])
        return values[at - 1] + share * (values[at] - values[at - 1])

    return told


def gap(samples: Sequence[Claim]) -> float:
    """By how much stated confidence is off on average (0..1)."""
    return sum(b.count * abs(b.stated - b.observed) for b in bins(samples)) / len(samples)
