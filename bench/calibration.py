"""How often verdicts are right that claim to be sure: stated confidence beside drawn truth.

    python bench/calibration.py [--samples 400] [--only weighed-both ...] [--misses 20]
        [--save FILE | --from FILE ...] [--write] [--plot docs/confidence.svg]

Jobs with a known culprit are drawn, and their evidence is harmed as in real life
(``drawn_evidence``). A verdict that names somebody is right if it accuses no innocent.
Printed for each source: its verdicts in bins of 5 % of stated confidence, how many of them are
right with a 95 % interval (Wilson), and how many drawn faults nobody was named for; then the table
of docs/verdict.md.

The factors of the witnesses (``witness_weights``) are fitted on the jobs of even numbers.
``--write`` writes them to ``ray_sentinel/waitgraph/fitted_weights.py``, with how well they do on
the jobs of odd numbers and on real incidents (``real_incidents``). Tables and plot are of what was
held out. "others" is what the factors that are fitted without a source say of it; "with map" is
what a monotone map of the confidence, fitted on even numbers, would make of it (isotonic
regression).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import msgspec
from drawn_evidence import SOURCES, drawn
from real_incidents import REAL_ACTORS, REAL_RANKS
from reliability import BIN, bins, brier, calibrated, isotonic, wilson
from reliability_plot import Point, draw
from samples_of_verdicts import Sample
from witness_weights import by_score, fit, module, quality, restated

from ray_sentinel.waitgraph.confidence import FACTORS

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "ray_sentinel/waitgraph/fitted_weights.py"
"""What ``--write`` writes."""
INCIDENTS = ROOT / "bench/real_incidents.json"
"""What ``real_incidents`` printed."""

COSTLY = {"logs": 25, "engine-ranks": 2, "engine-actors": 4}
"""Of these sources so many times fewer are drawn: they take longest.
"""
LEAST_SHOWN = 8
"""Fewest verdicts in a bin that is drawn."""
WEIGHED = "verdicts that weigh evidence"
REAL = "real incidents of the fault suite"
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
    REAL: (REAL_RANKS, REAL_ACTORS),
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


def scores(found: Sequence[Numbered], factors: Mapping[str, float]) -> Iterator[str]:
    """How well the factors do for each source where they were not fitted."""
    told = [one for one in found if one.sample.named]
    overall = calibrated(isotonic(_stated(told, factors, fitted=True)))
    head = ("verdicts", "right", "stated", "Brier", "gap", "with map", "others")
    yield f"{'held out':<20}" + "".join(f"{title:>10}" for title in head)
    for source in (*dict.fromkeys(one.sample.source for one in told), "all"):
        mine = [one for one in told if source in (one.sample.source, "all")]
        held = _stated(mine, factors, fitted=False)
        if not held:
            continue
        rest = [one for one in told if one.sample.source != source]
        others = fit(_fitted_on(rest)) if _fitted_on(rest) else factors
        row = quality(held)
        yield (
            f"{source:<20}{row['verdicts']:>10.0f}{row['right']:>10.3f}{row['stated']:>10.3f}"
            f"{row['brier']:>10.3f}{row['gap']:>10.3f}{brier(held, overall):>10.3f}"
            f"{brier(_stated(mine, others, fitted=False)):>10.3f}"
        )


NAMES = {
    "recorder: listed": "recorders, listed layouts",
    "recorder: drawn": "recorders, drawn layouts",
    "stacks: made": "stacks",
    "RAS": "RAS",
    "weighed: recorder": "the live judge on recorders",
    "weighed: stacks": "the live judge on stacks",
    "weighed: both": "the live judge on both",
    "weighed: RAS": "the live judge on RAS",
    "engine: ranks": "the engine on played jobs of ranks",
    "engine: actors": "the engine on played jobs of actors",
}
"""What docs/verdict.md calls the sources."""


def overview(found: Sequence[Numbered], factors: Mapping[str, float]) -> Iterator[str]:
    """The table of docs/verdict.md, and its comparison with a number that follows from the score
    alone."""
    drawn_ = [one for one in found if one.sample.source in NAMES]
    for source in (*NAMES, "all"):
        mine = [one.sample for one in drawn_ if source in (one.sample.source, "all")]
        faulty = [one for one in mine if one.truth]
        if not faulty:
            continue
        named = (o for o in drawn_ if o.sample.named and source in (o.sample.source, "all"))
        held = _stated(named, factors, fitted=False)
        parts = [[one for one in held if low <= one.confidence < high] for low, high in COARSE]
        share = 100 * sum(not one.named for one in faulty) / len(faulty)
        silent = f"{share:.0f} %" if source in NAMES else ""
        yield f"| {' | '.join((NAMES.get(source, source), *map(_cell, parts), silent))} |"
    live = [o for o in drawn_ if o.sample.source in GROUPS[WEIGHED] and o.sample.named]
    held = _stated(live, factors, fitted=False)
    if held:
        yield f"the live judge: {quality(held)}"
        yield f"by its score alone: {quality(by_score(held))}"


COARSE = ((0.0, 0.75), (0.75, 0.9), (0.9, 1.01))
"""From and below which confidence the columns are."""


def _cell(some: Sequence[Sample]) -> str:
    """Stated on average → right, with the 95 % interval and the number of verdicts."""
    if not some:
        return ""
    right, count = sum(one.is_right for one in some), len(some)
    stated = sum(one.confidence for one in some) / count
    shares = (stated, right / count, *wilson(right, count))
    return "{:.0f} → {:.0f} % ({:.0f} to {:.0f}; {})".format(*(100 * o for o in shares), count)


def _fitted_on(found: Iterable[Numbered]) -> list[Sample]:
    return [o.sample for o in found if o.is_fitted and o.sample.named and o.sample.witnesses]


def _stated(
    found: Iterable[Numbered], factors: Mapping[str, float], *, fitted: bool
) -> list[Sample]:
    """The verdicts of one half, with the confidence that factors give. Where no witness is known,
    as of logs, it is what was stated."""
    half = [one.sample for one in found if one.is_fitted is fitted]
    known = iter(restated([one for one in half if one.witnesses], factors))
    return [next(known) if one.witnesses else one for one in half]


def made_from(found: Sequence[Numbered], factors: Mapping[str, float]) -> dict[str, object]:
    """What the file of weights says of its making."""
    told = [one for one in found if one.sample.named]
    real = [one for one in told if one.sample.source in GROUPS[REAL]]
    drawn_ = [one for one in told if one.sample.witnesses and one.sample.source not in GROUPS[REAL]]
    corpora = Counter(one.sample.source for one in drawn_ if one.is_fitted)
    held = _stated(drawn_, factors, fitted=False)
    near = [one for one in held if 0.85 <= one.confidence < 0.95]
    return {
        "command": "python bench/calibration.py [--from FILE ...] --write",
        "drawn": dict(Counter(one.sample.source for one in found if one not in real)),
        "fitted on": dict(corpora),
        "held out": quality(held),
        "held out, stated 85 to 95 %": quality(near),
        "real incidents": quality(_stated(real, factors, fitted=False)) if real else {},
    }


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


def panels(
    found: Sequence[Numbered], factors: Mapping[str, float]
) -> dict[str, dict[str, list[Point]]]:
    """What the plot shows: the points of each source, of the half on which nothing was fitted."""
    held = _stated([one for one in found if one.sample.named], factors, fitted=False)
    drawn_ = [one for one in held if one.source not in GROUPS[REAL]]
    shown = {"all verdicts on drawn jobs": {"all kinds of evidence": _points(drawn_)}}
    shown |= {title: _series(held, sources) for title, sources in GROUPS.items()}
    return {title: series for title, series in shown.items() if series}


def _series(samples: Sequence[Sample], sources: Sequence[str]) -> dict[str, list[Point]]:
    told = {name: _points([one for one in samples if one.source == name]) for name in sources}
    return {name: points for name, points in told.items() if points}


def _points(samples: Sequence[Sample]) -> list[Point]:
    return [
        Point(block.stated, block.observed, *wilson(block.right, block.count), block.count)
        for block in bins(samples)
        if block.count >= LEAST_SHOWN
    ]


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


def incidents() -> list[Numbered]:
    """Verdicts on real jobs (``real_incidents``); nothing is ever fitted on them."""
    found = msgspec.json.decode(INCIDENTS.read_bytes(), type=list[Sample])
    return [Numbered(1, one) for one in found]


def main() -> None:
    """Draw, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--samples", type=int, default=400, help="numbers drawn of each source")
    parser.add_argument("--only", nargs="+", choices=SOURCES, default=list(SOURCES))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--misses", type=int, default=0, help="groups of wrong verdicts to print")
    parser.add_argument("--save", type=Path, metavar="FILE")
    parser.add_argument("--from", dest="given", nargs="+", type=Path, default=[], metavar="FILE",
                        help="saved samples")  # fmt: skip
    parser.add_argument("--write", action="store_true", help=f"write {FILE.relative_to(ROOT)}")
    parser.add_argument("--plot", type=Path, metavar="FILE")
    args = parser.parse_args()
    if args.given:
        read = (msgspec.json.decode(one.read_bytes(), type=list[Numbered]) for one in args.given)
        found = [one for some in read for one in some]
    else:
        found = sampled(args.only, args.samples, args.workers)
    if args.save:
        args.save.write_bytes(msgspec.json.encode(found))
    found += incidents()
    factors = fit(_fitted_on(found)) if args.write else FACTORS
    numbers = [one for one in found if not one.is_fitted]
    again = _stated(numbers, factors, fitted=False)
    print("\n".join(tables([Numbered(1, one) for one in again])), end="\n\n")
    print("\n".join(scores(found, factors)), end="\n\n")
    print("\n".join(overview(found, factors)))
    if args.misses:
        print("\nwrong:", *misses(found, args.misses), sep="\n")
    if args.plot:
        draw(args.plot, panels(found, factors))
    if args.write:
        FILE.write_text(module(factors, made_from(found, factors)))
        print(
            f"\n{FILE.relative_to(ROOT)}:", *map("{0[0]} {0[1]}".format, factors.items()), sep="\n"
        )


if __name__ == "__main__":
    main()
