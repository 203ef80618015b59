"""How often verdicts are right that claim to be sure: stated confidence beside drawn truth.

    python bench/calibration.py [--samples 400] [--only weighed-both ...] [--misses 20]
        [--save FILE | --from FILE] [--plot docs/confidence.svg]

Jobs with a known culprit are drawn, and their evidence is harmed as in real life
(``drawn_evidence``). A verdict that names somebody is right if everybody whom it names is a culprit.
Printed for each source: its verdicts in bins of 5 % of stated confidence, how many of them are
right with a 95 % interval (Wilson), the Brier score, and how many drawn faults nobody was named
for. A monotone map from stated to observed (isotonic regression by pooling adjacent violators) is
fitted on the samples of even numbers and tried on those of odd ones; "others" is the same map
fitted on all other sources, which shows whether it holds for what it has not seen.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import msgspec
from drawn_evidence import SOURCES, Sample, drawn
from reliability_plot import Point, draw

BIN = 5
"""Per cent."""
Z = 1.96
"""Of a 95 % interval."""
COSTLY = {"logs": 20, "engine-ranks": 3, "engine-actors": 3}
"""Of these sources so many times fewer are drawn: they take longest.
"""
LEAST_SHOWN = 8
"""Fewest verdicts in a bin that is drawn."""
GROUPS: dict[str, tuple[str, ...]] = {
    "what one kind of evidence says by itself": (
        "recorder: listed",
        "recorder: drawn",
        "stacks: made",
        "RAS",
        "logs",
    ),
    "verdicts that weigh evidence": (
        "weighed: recorder",
        "weighed: stacks",
        "weighed: both",
        "weighed: RAS",
        "engine: ranks",
        "engine: actors",
    ),
}
"""Sources by the panel of the plot that shows them."""


class Numbered(msgspec.Struct, frozen=True):
    """A sample with its number, which tells its half."""

    number: int
    sample: Sample

    @property
    def is_fitted(self) -> bool:
        """Whether it is of the half that a map is fitted on."""
        return self.number % 2 == 0


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


def brier(samples: Sequence[Sample], told: Callable[[float], float] = lambda x: x) -> float:
    """The mean squared difference of confidence and truth: 0 is perfect, 0.25 says nothing."""
    return sum((told(one.confidence) - one.is_right) ** 2 for one in samples) / len(samples)


def bins(samples: Iterable[Sample]) -> list[Block]:
    """Verdicts in bins of stated confidence."""
    found = []
    ordered = sorted(samples, key=lambda one: one.confidence)
    for _, some in groupby(ordered, key=lambda one: int(one.confidence * 100 + 1e-6) // BIN):
        found.append(_block(list(some)))
    return found


def _block(some: Sequence[Sample]) -> Block:
    stated = sum(one.confidence for one in some) / len(some)
    return Block(len(some), stated, sum(one.is_right for one in some))


def isotonic(samples: Iterable[Sample]) -> list[Block]:
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


def tables(found: Sequence[Numbered]) -> Iterator[str]:
    """Everything that is printed of the samples."""
    sources = list(dict.fromkeys(one.sample.source for one in found))
    for source in sources:
        mine = [one.sample for one in found if one.sample.source == source]
        named = [one for one in mine if one.named]
        faulty = [one for one in mine if one.truth]
        silent = sum(not one.named for one in faulty)
        yield (
            f"\n{source}: {len(mine)} drawn, {len(named)} name somebody, of which "
            f"{sum(one.is_right for one in named)} are right and "
            f"{sum(one.is_exact for one in named)} exact; nobody is named for {silent} of "
            f"{len(faulty)} faults, and somebody without a fault in "
            f"{sum(bool(one.named) and not one.truth for one in mine)} of {len(mine) - len(faulty)}"
        )
        yield f"{'stated':>10}{'verdicts':>10}{'mean':>8}{'right':>8}{'95 % interval':>18}"
        for block in bins(named):
            low, high = wilson(block.right, block.count)
            first = int(block.stated * 100 + 1e-6) // BIN * BIN
            mark = "" if low <= block.stated <= high else "  too sure" if high < block.stated else "  too modest"  # noqa: E501
            yield (
                f"{first:>6}-{first + BIN:<3}{block.count:>10}{block.stated:>8.0%}"
                f"{block.observed:>8.0%}{low:>12.0%} -{high:>4.0%}{mark}"
            )
    yield ""
    yield from _scores(found, sources)


def _scores(found: Sequence[Numbered], sources: Sequence[str]) -> Iterator[str]:
    told = [one for one in found if one.sample.named]
    overall = calibrated(isotonic(one.sample for one in told if one.is_fitted))
    head = ("fitted", "held out", "with map", "others", "gap")
    yield f"{'Brier score':<20}" + "".join(f"{title:>10}" for title in head)
    for source in (*sources, "all"):
        mine = [one for one in told if source in (one.sample.source, "all")]
        halves = [[o.sample for o in mine if o.is_fitted is half] for half in (True, False)]
        if not all(halves):
            continue
        rest = [one.sample for one in told if one.is_fitted and one.sample.source != source]
        unseen = calibrated(isotonic(rest))
        values = (
            brier(halves[0]),
            brier(halves[1]),
            brier(halves[1], overall),
            brier(halves[1], unseen),
            _gap(halves[1]),
        )
        yield f"{source:<20}" + "".join(f"{value:>10.3f}" for value in values)


def _gap(samples: Sequence[Sample]) -> float:
    """By how much stated confidence is off on average (0..1)."""
    return sum(b.count * abs(b.stated - b.observed) for b in bins(samples)) / len(samples)


def misses(found: Sequence[Numbered], most: int) -> Iterator[str]:
    """What is wrong, the most frequent first, each with an example's number."""
    wrong = [one for one in found if one.sample.named and not one.sample.is_right]
    groups: dict[tuple[str, str, str], list[Numbered]] = {}
    for one in wrong:
        sample = one.sample
        groups.setdefault((sample.source, sample.case, sample.kind), []).append(one)
    for (source, case, kind), some in sorted(groups.items(), key=lambda pair: -len(pair[1]))[:most]:
        asked = [o.sample for o in found if o.sample.source == source and o.sample.case == case]
        stated = sum(one.sample.confidence for one in some) / len(some)
        harms = Counter(one.sample.harm for one in some).most_common(3)
        yield (
            f"{source}, {case}: {kind} is wrong in {len(some)} of {len(asked)}, stated "
            f"{stated:.0%}; numbers {[one.number for one in some[:4]]}; "
            + "; ".join(f"{count} x {harm}" for harm, count in harms)
        )


def panels(found: Sequence[Numbered]) -> dict[str, dict[str, list[Point]]]:
    """What the plot shows: the points of each source."""
    drawn_: dict[str, dict[str, list[Point]]] = {}
    for title, sources in GROUPS.items():
        for source in sources:
            named = [o.sample for o in found if o.sample.source == source and o.sample.named]
            points = [
                Point(block.stated, block.observed, *wilson(block.right, block.count), block.count)
                for block in bins(named)
                if block.count >= LEAST_SHOWN
            ]
            if points:
                drawn_.setdefault(title, {})[source] = points
    return drawn_


def sampled(sources: Sequence[str], count: int, workers: int) -> list[Numbered]:
    """All samples of some sources, drawn by several processes."""
    found = []
    with ProcessPoolExecutor(workers) as pool:
        for source in sources:
            started = time.monotonic()
            wanted = range(max(2, count // COSTLY.get(source, 1)))
            chunk = max(1, len(wanted) // (8 * workers))
            results = pool.map(drawn, [source] * len(wanted), wanted, chunksize=chunk)
            mine = [Numbered(n, one) for n, some in zip(wanted, results, strict=True) for one in some]
            found += mine
            took = time.monotonic() - started
            print(f"{source}: {len(mine)} samples in {took:.1f} s", file=sys.stderr)
    return found


def main() -> None:
    """Draw, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--samples", type=int, default=400, help="numbers drawn of each source")
    parser.add_argument("--only", nargs="+", choices=SOURCES, default=list(SOURCES))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--misses", type=int, default=0, help="groups of wrong verdicts to print")
    parser.add_argument("--save", type=Path, metavar="FILE")
    parser.add_argument("--from", dest="given", type=Path, metavar="FILE", help="saved samples")
    parser.add_argument("--plot", type=Path, metavar="FILE")
    args = parser.parse_args()
    if args.given:
        found = msgspec.json.decode(args.given.read_bytes(), type=list[Numbered])
    else:
        found = sampled(args.only, args.samples, args.workers)
    print("\n".join(tables(found)))
    if args.misses:
        print("\nwrong:", *misses(found, args.misses), sep="\n")
    if args.save:
        args.save.write_bytes(msgspec.json.encode(found))
    if args.plot:
        draw(args.plot, panels(found))


if __name__ == "__main__":
    main()
