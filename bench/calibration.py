"""How often verdicts are right that claim to be sure: stated confidence beside drawn truth.

    python bench/calibration.py [--samples 400] [--only weighed-both ...] [--misses 20]
        [--save FILE | --from FILE] [--plot docs/confidence.svg]

Jobs with a known culprit are drawn, and their evidence is harmed as in real life
(``drawn_evidence``). A verdict that names somebody is right if it accuses no innocent.
Printed for each source: its verdicts in bins of 5 % of stated confidence, how many of them are
right with a 95 % interval (Wilson), the Brier score, and how many drawn faults nobody was named
for. A monotone map from stated to observed (isotonic regression by pooling adjacent violators) is
fitted on the samples of even numbers and tried on those of odd ones; "others" is the same map
fitted on all other sources, which shows whether it holds for what it has not seen. The same is done
with weights of witnesses (``witness_weights``). The plot is of the half that was held out.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import msgspec
from drawn_evidence import SOURCES, drawn
from reliability import BIN, bins, brier, calibrated, gap, isotonic, wilson
from reliability_plot import Point, draw
from samples_of_verdicts import Sample
from witness_weights import fit, sure

COSTLY = {"logs": 25, "engine-ranks": 2, "engine-actors": 4}
"""Of these sources so many times fewer are drawn: they take longest.
"""
LEAST_SHOWN = 8
"""Fewest verdicts in a bin that is drawn."""
WEIGHED = "verdicts that weigh evidence"
GROUPS: dict[str, tuple[str, ...]] = {
    "what one kind of evidence says by itself": (
        "recorder: listed",
        "recorder: drawn",
        "stacks: made",
        "RAS",
        "logs",
    ),
    WEIGHED: (
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
            mark = "  too sure" if high < block.stated else "  too modest"
            mark = "" if low <= block.stated <= high else mark
            yield (
                f"{first:>6}-{first + BIN:<3}{block.count:>10}{block.stated:>8.0%}"
                f"{block.observed:>8.0%}{low:>12.0%} -{high:>4.0%}{mark}"
            )
    yield ""
    yield from _scores(found, sources)
    yield ""
    yield from _witnesses(found)


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
            gap(halves[1]),
        )
        yield f"{source:<20}" + "".join(f"{value:>10.3f}" for value in values)


def _witnesses(found: Sequence[Numbered]) -> Iterator[str]:
    """The weights of witnesses, and how well they do where they were not fitted."""
    told = weighed(found)
    if not told:
        return
    weights = fit([one.sample for one in told if one.is_fitted])
    yield "log-odds: " + ", ".join(f"{name} {value:.2f}" for name, value in weights.items())
    yield f"{'Brier, held out':<20}" + "".join(f"{t:>10}" for t in ("stated", "fitted", "others"))
    for source in dict.fromkeys(one.sample.source for one in told):
        mine = [one.sample for one in told if one.sample.source == source and not one.is_fitted]
        rest = [one.sample for one in told if one.sample.source != source and one.is_fitted]
        if mine and rest:
            values = (
                brier(mine),
                brier(_as_fitted(mine, weights)),
                brier(_as_fitted(mine, fit(rest))),
            )
            yield f"{source:<20}" + "".join(f"{value:>10.3f}" for value in values)
    yield _held_out(found, weights)


def weighed(found: Sequence[Numbered]) -> list[Numbered]:
    """Those verdicts that name somebody because of what was weighed."""
    return [one for one in found if one.sample.named and one.sample.witnesses]


def _as_fitted(samples: Sequence[Sample], weights: Mapping[str, float]) -> list[Sample]:
    return [msgspec.structs.replace(one, confidence=sure(one, weights)) for one in samples]


def _held_out(found: Sequence[Numbered], weights: Mapping[str, float]) -> str:
    """How well weights do on the half that they were not fitted on."""
    held = [one.sample for one in weighed(found) if not one.is_fitted]
    told = _as_fitted(held, weights)
    some = [one for one in told if 0.85 <= one.confidence < 0.95]
    near = sum(one.is_right for one in some)
    return (
        f"{len(held)} verdicts held out: Brier score {brier(told):.3f}, off by {gap(told):.1%} on "
        f"average; of {len(some)} with 85 to 95 %, {near} are right"
    )


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


FITTED = "the same, by fitted weights"


def panels(found: Sequence[Numbered]) -> dict[str, dict[str, list[Point]]]:
    """What the plot shows: the points of each source, of the half on which nothing was fitted."""
    shown: dict[str, dict[str, list[Point]]] = {}
    held = [one.sample for one in found if one.sample.named and not one.is_fitted]
    for title, sources in GROUPS.items():
        shown[title] = _series(held, sources)
    if told := weighed(found):
        weights = fit([one.sample for one in told if one.is_fitted])
        again = _as_fitted([one for one in held if one.witnesses], weights)
        shown[FITTED] = _series(again, GROUPS[WEIGHED])
    return {title: series for title, series in shown.items() if series}


def _series(samples: Sequence[Sample], sources: Sequence[str]) -> dict[str, list[Point]]:
    drawn_ = {}
    for source in sources:
        blocks = bins(one for one in samples if one.source == source)
        drawn_[source] = [
            Point(block.stated, block.observed, *wilson(block.right, block.count), block.count)
            for block in blocks
            if block.count >= LEAST_SHOWN
        ]
    return {source: points for source, points in drawn_.items() if points}


def sampled(sources: Sequence[str], count: int, workers: int) -> list[Numbered]:
    """All samples of some sources, drawn by several processes."""
    found = []
    with ProcessPoolExecutor(workers) as pool:
        for source in sources:
            started = time.monotonic()
            wanted = range(max(2, count // COSTLY.get(source, 1)))
            chunk = max(1, len(wanted) // (8 * workers))
            results = pool.map(drawn, [source] * len(wanted), wanted, chunksize=chunk)
            told = zip(wanted, results, strict=True)
            mine = [Numbered(n, one) for n, some in told for one in some]
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
