"""Verdicts on real jobs with a known culprit, from what the fault suite has kept of them.

    python bench/real_incidents.py LINES.jsonl=LOG_DIR ... > bench/real_incidents.json

``LINES`` is what ``python -m ray_sentinel.demo.suite`` wrote, and ``LOG_DIR`` its ``--log-dir``,
or a copy of the folder ``events`` in it. Each job is judged anew from the events of its run, so
that it says which witnesses speak for the verdict and how sure it is. ``calibration.py`` takes what
this prints as one more part that is held out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from samples_of_verdicts import Sample

from ray_sentinel.actors.coordinator.event_log.replay import RecordedLog, recorded_logs
from ray_sentinel.config import Config
from ray_sentinel.model.incident import Incident
from ray_sentinel.waitgraph.confidence import put_on_culprit

REAL_RANKS, REAL_ACTORS = "real: ranks", "real: actors"


class Trial(msgspec.Struct):
    """What is read of a line of the suite."""

    job: str
    fault: str
    layout: str
    expected: list[Any]
    named: list[Any]
    kind: str
    summary: str = ""
    family: str = "ranks"


def judged_anew(folder: Path) -> Iterator[tuple[Incident, Incident]]:
    """The incidents of a log, as they were told and as they are judged now."""
    for log in recorded_logs(folder):
        for one in RecordedLog(log).replay(Config()).incidents:
            if one.then is not None and one.now is not None:
                yield one.then, one.now


def samples(lines: Path, folder: Path) -> Iterator[Sample]:
    """One verdict for each trial that names somebody."""
    found = {(then.job, then.summary): now for then, now in judged_anew(folder)}
    by_summary = {summary: now for (_, summary), now in found.items()}
    for line in lines.read_bytes().splitlines():
        trial = msgspec.json.decode(line, type=Trial)
        if not trial.named:
            continue
        now = found.get((trial.job, trial.summary)) or by_summary.get(trial.summary)
        if now is None or now.verdict is None:
            print(f"{lines}: {trial.job} is not in {folder}", file=sys.stderr)
            continue
        # Of actors, any of several sets of members is right.
        ranks = trial.family == "ranks"
        sets = [trial.expected] if ranks else trial.expected
        yield Sample(
            source=REAL_RANKS if ranks else REAL_ACTORS,
            case=trial.fault,
            harm=trial.layout,
            named=tuple(map(str, trial.named)),
            truth=tuple(sorted({str(who) for members in sets for who in members})),
            kind=now.kind,
            confidence=now.verdict.confidence,
            witnesses=dict(put_on_culprit(now.verdict)),
        )


def main() -> None:
    """Judge all, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", nargs="+", metavar="LINES=LOG_DIR")
    pairs = (one.split("=") for one in parser.parse_args().runs)
    found = [one for lines, folder in pairs for one in samples(Path(lines), Path(folder))]
    print(msgspec.json.format(msgspec.json.encode(found), indent=1).decode())


if __name__ == "__main__":
    main()
