"""How long each tool stops the process that it looks at.

    python bench/pauses.py [--runs 5] [--torch] [--json]

A process counts milliseconds in a loop and remembers the longest gap: what it lost to the tool,
measured by itself. Beside it stand the tool's wall time and the pause that the capture reports.
With ``--torch`` the process has torch loaded, whose libraries make debuggers slow. Tools that are
not on this machine are left out and named.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ray_sentinel.capture import guard
from ray_sentinel.capture.tracer import Tracer, all_tracers
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.progress.proc.proc_stat import parse_stat

DEADLINE = 60.0
_RANK = """
import sys, threading, time
{imports}
longest = 0.0
def count():
    global longest
    last = time.monotonic()
    while True:
        time.sleep(0.001)
        now = time.monotonic()
        longest = max(longest, now - last)
        last = now
threading.Thread(target=count, daemon=True).start()
print("ready", flush=True)
for _ in sys.stdin:
    print(longest, flush=True)
    longest = 0.0
"""


class BenchRank:
    """The process that is looked at."""

    def __init__(self, imports: str) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-c", _RANK.format(imports=imports)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._line()
        stat = Path(f"/proc/{self._child.pid}/stat").read_bytes()
        self.process = ProcessId("here", self._child.pid, parse_stat(stat).start)

    def longest_gap(self) -> float:
        """Seconds since the last call that the process could not run."""
        assert self._child.stdin is not None
        self._child.stdin.write("\n")
        self._child.stdin.flush()
        return float(self._line())

    def _line(self) -> str:
        assert self._child.stdout is not None
        return self._child.stdout.readline()

    def end(self) -> None:
        """Kill the process."""
        self._child.kill()
        self._child.wait()


def measure(rank: BenchRank, tracer: Tracer, runs: int) -> dict[str, Any]:
    """Medians and the worst of one tool."""
    gaps, walls, reported, failed = [], [], [], 0
    rank.longest_gap()
    for _ in range(runs):
        result = guard.trace(tracer, rank.process, DEADLINE)
        gaps.append(rank.longest_gap())
        walls.append(result.seconds)
        reported.append(result.paused or 0.0)
        failed += bool(result.problem)
    return {
        "tool": tracer.name,
        "runs": runs,
        "failed": failed,
        "pause_ms": round(statistics.median(gaps) * 1e3, 1),
        "worst_pause_ms": round(max(gaps) * 1e3, 1),
        "reported_pause_ms": round(statistics.median(reported) * 1e3, 1),
        "wall_ms": round(statistics.median(walls) * 1e3, 1),
    }


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--torch", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rank = BenchRank("import torch" if args.torch else "")
    found, missing = [], []
    try:
        for tracer in all_tracers().values():
            if reason := tracer.available():
                missing.append(reason)
            else:
                found.append(measure(rank, tracer, args.runs))
    finally:
        rank.end()
    if args.json:
        print(json.dumps({"tools": found, "missing": missing}, indent=2))
        return 0
    print(f"{'tool':<16}{'pause ms':>10}{'worst':>10}{'reported':>10}{'wall ms':>10}{'failed':>8}")
    for item in found:
        values = (item[k] for k in ("pause_ms", "worst_pause_ms", "reported_pause_ms", "wall_ms"))
        line = "".join(f"{value:>10.1f}" for value in values)
        print(f"{item['tool']:<16}{line}{item['failed']:>8}")
    for reason in missing:
        print(f"left out: {reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
