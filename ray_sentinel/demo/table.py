"""The result lines of the fault suite as a table in Markdown.

python -m ray_sentinel.demo.table RESULTS.jsonl... >> docs/faults.md
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from ray_sentinel.demo.catalogue import ALL, FAULTS
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


def markdown(lines: Iterable[TrialResult]) -> str:
    """One row for each fault that was played, then one for each clock; broken trials apart."""
    played = [line for line in lines if not line.broken]
    broken = [line for line in lines if line.broken]
    rows = [HEAD]
    for fault in ALL:
        mine = [line for line in played if line.fault == fault]
        if mine:
            rows.append(_row(f"`{fault}`", mine, healthy=fault not in FAULTS))
    for clock, name in CLOCKS.items():
        mine = [line for line in played if line.clock == clock]
        if mine:
            rows.append(_row(f"**{name}**", mine, healthy=clock == "healthy"))
    text = "\n".join(rows) + "\n"
    if broken:
        text += f"\n{len(broken)} trials did not come to their trouble and count for nothing:\n\n"
        text += "".join(f"- `{line.fault}`: {line.broken[:160]}\n" for line in broken)
    return text


def missed(lines: Iterable[TrialResult]) -> str:
    """Each trial that was not right in every respect, as a list in Markdown."""
    wrong = [line for line in lines if not line.broken and (line.wrong or not line.in_time)]
    return "".join(
        f"- `{line.fault}`, {line.layout}, {line.world} ranks, attach: {line.attach}, "
        f"{'actors, ' if line.actors else ''}seed "
        f"{line.seed}: {line.wrong or f'late, after {line.seconds} s'}"
        f"{f' (expected {line.expected})' if line.wrong else ''}\n"
        for line in wrong
    )


def _row(name: str, lines: Sequence[TrialResult], *, healthy: bool) -> str:
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
    lines = [
        msgspec.json.decode(text, type=TrialResult)
        for path in args.results
        for text in path.read_bytes().splitlines()
    ]
    sys.stdout.write(f"{markdown(lines)}\n{missed(lines)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
