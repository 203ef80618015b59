"""How long a diagnosis takes, and how much memory: large jobs, from a Prometheus and a history.

    python bench/diagnose.py [--hosts 24] [--hours 24] [--gpus 8] [--promtool P] [--prometheus P]
    python bench/diagnose.py --source history --growth

A job with a bad link is generated (10 s between samples), kept in a TSDB made by promtool or in an
embedded history as a coordinator writes it, and diagnosed whole and over 30 minutes around the
onset, each in a process of its own. Prometheus's own time is given separately. ``--growth`` repeats
it with a quarter of the hosts and of the hours. Targets, at 24 hosts and 24 hours: 60 s and 2 GB
for the whole, 5 s for the 30 minutes, and the right host. Exit code 1 if one is missed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ray_sentinel.store.history.file import HistoryFile
from tests.support.tsdb_scenarios import ranges
from tests.support.tsdb_scenarios.catalogue import scenario
from tests.support.tsdb_scenarios.history import keep
from tests.support.tsdb_scenarios.openmetrics import make_large_tsdb

CHILD = (
    "import json,sys,contextlib,io\n"
    "from ray_sentinel.cli.main import main\n"
    "out=io.StringIO()\n"
    "with contextlib.redirect_stdout(out): main(sys.argv[1:])\n"
    "a=json.loads(out.getvalue())\n"
    # Not getrusage: that counts what this process had before it became another program.
    "most=next(x for x in open('/proc/self/status') if x.startswith('VmHWM'))\n"
    "print(json.dumps({'cause':a['cause'],'culprits':[c['host'] for c in a['culprits']],"
    "'seconds':round(a['seconds'],2),'source_seconds':round(a['source_seconds'],2),"
    "'mb':int(most.split()[1])//1024}))\n"
)
WHOLE_SECONDS, WINDOW_SECONDS, MEGABYTES = 60.0, 5.0, 2048


def measure(args: argparse.Namespace, source: str, hosts: int, hours: float) -> bool:
    """Measure one job; whether the targets are met."""
    planted = scenario("hang-network-trigger")
    job = type(planted)(planted.name, planted.build, minutes=60 * hours, hosts=hosts)
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        world, truth = job.make(1, gpus=args.gpus, style="ours")
        if source == "history":
            file = HistoryFile(Path(folder) / "history", "bench")
            keep(world.series(), file)
            file.close()
        else:
            make_large_tsdb(args.promtool, world.series(), Path(folder) / "prometheus")
        size = sum(one.stat().st_size for one in Path(folder).rglob("*") if one.is_file())
        made = f"made in {time.monotonic() - began:.0f} s, {size >> 20} MiB"
        print(f"{source}, {hosts} hosts of {args.gpus} GPUs, {hours:g} h: {made}")
        del world
        onset = truth.onset or 0.0
        well = _run("whole job", folder, args, [], truth.hosts, WHOLE_SECONDS)
        window = [f"--window={onset - 600:.0f}..{onset + 1200:.0f}"]
        return _run("30 minutes", folder, args, window, truth.hosts, WINDOW_SECONDS) and well


def _run(
    title: str, folder: str, args: argparse.Namespace, more: list[str], hosts: frozenset[str],
    most: float,
) -> bool:  # fmt: skip
    command = [sys.executable, "-c", CHILD, "diagnose", folder, "--json", *more]
    if args.prometheus:
        command.append(f"--prometheus={args.prometheus}")
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        print(done.stderr[-2000:])
        return False
    found = json.loads(done.stdout)
    print(f"  {title}: {found}")
    right = set(found["culprits"]) == set(hosts)
    return right and found["seconds"] <= most and found["mb"] <= MEGABYTES


def main() -> int:
    """Make the jobs, diagnose them, print a line for each run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--hosts", type=int, default=24)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--source", choices=("prometheus", "history", "both"), default="both")
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--promtool", default="promtool")
    parser.add_argument("--prometheus", default="")
    args = parser.parse_args()
    ranges.INTERVAL = (10.0, 10.0)
    sizes = [(args.hosts, args.hours)]
    if args.growth:
        few, short = max(args.hosts // 4, 2), args.hours / 4
        sizes = [(few, short), (few, args.hours), (args.hosts, short), *sizes]
    sources = ("history", "prometheus") if args.source == "both" else (args.source,)
    answers = [measure(args, source, *size) for source in sources for size in sizes]
    return 0 if all(answers) else 1


if __name__ == "__main__":
    sys.exit(main())
