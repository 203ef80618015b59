"""How long a diagnosis takes, and how much memory: a large job through a real Prometheus.

    python bench/diagnose.py [--hosts 24] [--hours 24] [--gpus 8] [--promtool P] [--prometheus P]

The job is generated (10 s between samples), made into a TSDB by promtool, and diagnosed whole and
over its last 30 minutes, each in a process of its own. Prometheus's own time is stated apart.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.tsdb_scenarios import ranges
from tests.support.tsdb_scenarios.catalogue import scenario
from tests.support.tsdb_scenarios.openmetrics import make_tsdb

CHILD = (
    "import json,resource,sys,contextlib,io\n"
    "from ray_sentinel.cli.main import main\n"
    "out=io.StringIO()\n"
    "with contextlib.redirect_stdout(out): main(sys.argv[1:])\n"
    "a=json.loads(out.getvalue())\n"
    "print(json.dumps({'cause':a['cause'],'culprits':[c['host'] for c in a['culprits']],"
    "'seconds':a['seconds'],'source_seconds':a['source_seconds'],"
    "'mb':resource.getrusage(resource.RUSAGE_SELF).ru_maxrss//1024}))\n"
)


def main() -> None:
    """Make the job, diagnose it, print a line for each run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=24)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--promtool", default="promtool")
    parser.add_argument("--prometheus", default="")
    args = parser.parse_args()
    ranges.INTERVAL = (10.0, 10.0)
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        planted = scenario("hang-network-trigger")
        object.__setattr__(planted, "minutes", args.hours * 60)
        world, truth = planted.make(1, hosts=args.hosts, gpus=args.gpus)
        make_tsdb(args.promtool, world.series(), Path(folder) / "prometheus")
        print(
            f"made in {time.monotonic() - began:.0f} s; planted: {truth.cause} {set(truth.hosts)}"
        )
        onset = truth.onset or 0.0
        for name, more in (
            ("whole job", []),
            ("30-minute window", [f"--window={onset - 600:.0f}..{onset + 1200:.0f}"]),
        ):
            command = [sys.executable, "-c", CHILD, "diagnose", folder, "--json", *more]
            if args.prometheus:
                command.append(f"--prometheus={args.prometheus}")
            done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
            print(f"{name}: {json.loads(done.stdout)}")
    print(f"this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB")


if __name__ == "__main__":
    main()
