"""The result lines of the fault suite as a table in Markdown.

python -m ray_sentinel.demo.table RESULTS.jsonl... >> docs/faults.md
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec

from ray_sentinel.demo.actor_catalogue import ACTOR_ALL, ACTOR_HEALTHY
from ray_sentinel.demo.actor_suite import ActorTrialResult
from ray_sentinel.demo.catalogue import ALL, HEALTHY
from ray_sentinel.demo.suite import TrialResult

HEAD = (
    "| fault | runs | detected | named in time | exact set | kind | seconds: median, worst | "
    "innocents, false alarms |\n|---|---|---|---|---|---|---|---|"
)
CLOCKS = {
    "hard": "hard evidence (limit 5 s)",
    "silence": "silence (limit 15 s)",
    "start-up": "start-up and the end (limit 90 s)",
    "outside": "nobody to name (limit 75 s)",
    "healthy": "healthy controls",
}


ACTORS = b'"family":"actors"'
ACTOR_CLOCKS = {
    "hard": "hard evidence (limit 5 s)",
    "silence": "waits (limit 20 s)",
    "start-up": "start-up (limit 90 s)",
    "slow": "slow, and nothing stands still",
    "healthy": "healthy controls",
}

Results: TypeAlias = Sequence[TrialResult] | Sequence[ActorTrialResult]


def markdown(lines: Results) -> str:
    """One row for each fault that was played, then one for each clock; broken trials apart. The
    lines are of one family."""
    played = [line for line in lines if not line.broken]
    broken = [line for line in lines if line.broken]
    actors = any(isinstance(line, ActorTrialResult) for line in lines)
    healthy = ACTOR_HEALTHY if actors else HEALTHY
    rows = [HEAD]
    for fault in ACTOR_ALL if actors else ALL:
        mine = [line for line in played if line.fault == fault]
        if mine:
            rows.append(_row(f"`{fault}`", mine, healthy=fault in healthy))
    for clock, name in (ACTOR_CLOCKS if actors else CLOCKS).items():
        mine = [line for line in played if line.clock == clock]
        if mine:
            rows.append(_row(f"**{name}**", mine, healthy=clock == "healthy"))
    text = "\n".join(rows) + "\n"
    if broken:
        text += f"\n{len(broken)} trials did not come to their trouble and count for nothing:\n\n"
        text += "".join(f"- `{line.fault}`: {line.broken[:160]}\n" for line in broken)
    return text


def missed(lines: Results) -> str:
    """Each trial that was not right in every respect, as a list in Markdown."""
    wrong = [line for line in lines if not line.broken and (line.wrong or not line.in_time)]
    return "".join(
        f"- `{line.fault}`, {line.layout}, {_who(line)}, attach: {line.attach}, seed "
        f"{line.seed}: {line.wrong or f'late, after {line.seconds} s'}"
        f"{f' (expected {line.expected})' if line.wrong else ''}\n"
        for line in wrong
    )


def _who(line: TrialResult | ActorTrialResult) -> str:
    if isinstance(line, ActorTrialResult):
        return line.culprit or "nobody"
    return f"{line.world} ranks{', actors' if line.actors else ''}"


def _row(name: str, lines: Sequence[TrialResult | ActorTrialResult], *, healthy: bool) -> str:
    """A row of the table: of some trials, which shares were named, in time, exactly and rightly."""
    seconds = [line.seconds for line in lines if line.seconds is not None]
    count = len(lines)
    harm = f"{sum(len(ln.innocents) for ln in lines)}, {sum(ln.false_alarms for ln in lines)}"
    if healthy:
        return f"| {name} | {count} | | | | | | {harm} |"
    cells = (
        _share(sum(line.seconds is not None for line in lines), count),
        _share(sum(line.in_time for line in lines), count),
        _share(sum(line.exact and line.seconds is not None for line in lines), count),
        _share(sum(line.right_kind for line in lines), count),
        f"{statistics.median(seconds):.1f}, {max(seconds):.1f}" if seconds else "",
    )
    return f"| {name} | {count} | {' | '.join(cells)} | {harm} |"


def _share(part: int, whole: int) -> str:
    return f"{part}" if part == whole else f"{part} of {whole}"


def main(arguments: list[str] | None = None) -> int:
    """Print the table of some files of results."""
    parser = argparse.ArgumentParser(prog="ray_sentinel.demo.table", description=__doc__)
    parser.add_argument("results", nargs="+", type=Path)
    args = parser.parse_args(arguments)
    lines = [text for path in args.results for text in path.read_bytes().splitlines()]
    ranks = [msgspec.json.decode(text, type=TrialResult) for text in lines if ACTORS not in text]
    actors = [msgspec.json.decode(text, type=ActorTrialResult) for text in lines if ACTORS in text]
    families: tuple[Results, ...] = (ranks, actors)
    for results in families:
        if results:
            sys.stdout.write(f"{markdown(results)}\n{missed(results)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
