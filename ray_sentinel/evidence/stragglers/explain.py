"""From dumps to a straggler, or to the answer that there is none.

A rank is slow if its busy time is above the ranks' median by a margin that matters and by one that
chance does not make: the spread of the sums over runs of intervals gives the standard error, pooled
over the ranks. All slow ranks on one host, and none of that host fast, is a slow node. A group
whose transfers alone are slow is a slow link.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec
import numpy as np

from ray_sentinel.evidence.minority import most_odd
from ray_sentinel.evidence.stragglers.arrivals import ArrivalTable, Floats, read, tables
from ray_sentinel.evidence.stragglers.busy import Times, blocks, times
from ray_sentinel.evidence.stragglers.links import SlowLink, slow_link
from ray_sentinel.model.straggler import Busy, StragglerFacts, StragglerKind

LEAST_RATIO = 1.12
"""How many times as busy as the others a rank must be, at least, to be a straggler."""
LEAST_Z = 4.0
"""How many times the scatter of the others a rank's excess must be, at least: less may be
chance."""
LEAST_ROUNDS = 8
"""Least number of collectives in the dumps: fewer show no habit."""
LEAST_SHARE = 0.02
"""Share of the wall time that ranks must be busy, at the median, for ratios to mean anything."""
BLOCKS = 10
"""Number of parts into which the time is divided; how they scatter shows what is chance."""
LINK_CONFIDENCE = 0.8
"""Confidence that a link is slow: the spread of its own transfers was looked at, but what else it
carries is not known."""
TOO_FEW = "the dumps have too few collectives of all ranks in common"


def explain(
    dumps: Mapping[int, bytes],
    *,
    names: Mapping[int, str] | None = None,
    hosts: Mapping[int, str] | None = None,
    offsets: Mapping[int, float] | None = None,
) -> StragglerFacts:
    """Who is slow, from each rank's flight-recorder dump (rank → pickle or JSON).

    ``hosts`` distinguishes a slow node from a slow rank. ``offsets`` are seconds to add to the
    clock of each rank's host; without them, clocks are assumed to agree. Never raises for what a
    dump contains.
    """
    calls, problems = read(dumps, names or {})
    groups = tables(calls)
    if not groups or len(groups[0].created) - 1 < LEAST_ROUNDS:
        found = StragglerFacts(kind="cannot-tell", evidence=(TOO_FEW,))
    else:
        found = _judge(groups[0], times(groups[0], groups[1:], offsets or {}), hosts or {})
    found = msgspec.structs.replace(found, problems=tuple(problems))
    link = slow_link(calls, hosts or {})
    return found if link is None else _with_link(found, link)


def _judge(table: ArrivalTable, seen: Times, hosts: Mapping[int, str]) -> StragglerFacts:
    """The explanation from the collectives of one group."""
    seconds = float(seen.wall.sum())
    lines = _lines(table, seen, seconds, hosts)
    slow = [line for line in lines if line.ratio >= LEAST_RATIO and line.z >= LEAST_Z]
    kind, host = _kind(lines, slow, seconds)
    named = slow if kind in ("slow-rank", "slow-node") else []
    columns = [table.ranks.index(line.rank) for line in named]
    cost = seen.saved_without(columns) / seconds if named and seconds else 0.0
    return StragglerFacts(
        kind=kind,
        ranks=tuple(sorted(line.rank for line in named)),
        host=host,
        cost=round(cost, 4),
        confidence=_confidence(named),
        seconds=round(seconds, 3),
        rounds=len(seen.wall),
        busy=tuple(lines),
        evidence=tuple(_evidence(kind, named, host, cost, table, len(seen.wall), seconds)),
    )


def _with_link(found: StragglerFacts, link: SlowLink) -> StragglerFacts:
    """Ranks at the ends of a slow link come late elsewhere: then they are no stragglers."""
    if found.ranks and not set(found.ranks) <= set(link.ranks):
        return found
    return msgspec.structs.replace(
        found,
        kind="slow-link",
        ranks=link.ranks,
        host=link.host,
        cost=round(min(1.0, link.seconds / found.seconds), 4) if found.seconds else 0.0,
        confidence=LINK_CONFIDENCE,
        evidence=(*(found.evidence[:1] if found.rounds else ()), *link.evidence),
    )


def _lines(
    table: ArrivalTable, seen: Times, seconds: float, hosts: Mapping[int, str]
) -> list[Busy]:
    sums = blocks(seen.busy, BLOCKS)
    # A delay common to all ranks (the machine, the network) is nobody's fault, and no noise either.
    above = sums - np.median(sums, axis=1, keepdims=True)
    typical, error = _trimmed(above)
    usual = float(np.mean(np.median(sums, axis=1)))
    lines = []
    for column, rank in enumerate(table.ranks):
        excess = float(typical[column])
        lines.append(
            Busy(
                rank=rank,
                host=hosts.get(rank, ""),
                share=round(float(seen.busy[:, column].sum()) / seconds, 4) if seconds else 0.0,
                ratio=round(1.0 + excess / usual, 4) if usual > 0 else 1.0,
                z=round(excess / error, 2) if error > 0 else (99.0 if excess > 0 else 0.0),
            )
        )
    return sorted(lines, key=lambda line: -line.share)


def _trimmed(above: Floats) -> tuple[Floats, float]:
    """Each column's mean without its highest and its lowest value, and the standard error.

    A single hiccup of the machine makes nobody slow. The error is one number for all ranks: a
    spread that is small by luck makes no rank significant. Its formula is the usual one of trimmed
    means: the winsorized deviation over (1 - 2 * the share cut at each end) * sqrt(n).
    """
    ordered = np.sort(above, axis=0)
    count = len(ordered)
    if count < 5:
        return np.asarray(ordered.mean(axis=0)), math.inf
    winsorized = np.clip(ordered, ordered[1], ordered[-2])
    deviation = math.sqrt(float(winsorized.var(axis=0, ddof=1).mean()))
    return ordered[1:-1].mean(axis=0), deviation / ((1.0 - 2.0 / count) * math.sqrt(count))


def _kind(lines: list[Busy], slow: list[Busy], seconds: float) -> tuple[StragglerKind, str]:
    usual = float(np.median([line.share for line in lines]))
    if seconds <= 0 or (not slow and usual < LEAST_SHARE):
        return "cannot-tell", ""
    if not slow:
        return "even", ""
    host = slow[0].host
    of_host = [line for line in lines if line.host == host]
    if host and len(of_host) > 1 and len(of_host) < len(lines) and _all_of(of_host, slow):
        return "slow-node", host
    if len(slow) <= most_odd(len(lines)) and len(lines) > 2:
        return "slow-rank", ""
    return "imbalance", ""


def _all_of(of_host: list[Busy], slow: list[Busy]) -> bool:
    """Every rank of a host is slow, and no rank of another."""
    return {line.rank for line in of_host} == {line.rank for line in slow}


def _confidence(named: list[Busy]) -> float:
    if not named:
        return 0.0
    least = min(line.z for line in named)
    return round(min(0.99, 1.0 - math.pow(0.5, least / 2.0)), 2)


def _evidence(
    kind: StragglerKind,
    named: list[Busy],
    host: str,
    cost: float,
    table: ArrivalTable,
    rounds: int,
    seconds: float,
) -> list[str]:
    lines = [
        f"{rounds} collectives of {len(table.ranks)} ranks in {table.group}, over {seconds:.1f} s"
    ]
    lines += [
        f"rank {line.rank} is busy {line.ratio:.2f} times as long as the others' median "
        f"({line.z:.1f} standard errors), and hardly waits"
        for line in named
    ]
    if kind == "slow-node":
        lines.append(f"they are all ranks of {host}, and no other rank is slow: look at the node")
    if named:
        lines.append(f"without that, the job would take {100 * cost:.0f} % less time")
    if kind == "imbalance":
        lines.append("many ranks are slower than the others: uneven work rather than a straggler")
    if kind == "even":
        lines.append("no rank is slower than the others by more than chance makes")
    if table.durations is None and "nccl" in table.group:
        lines.append("devices were not timed: a slow device may not show in the calls of its host")
    return lines
