"""How long it takes to watch a cluster of three nodes, how long a killed agent is away, and how
much memory and CPU our processes take, compared with an actor of Ray's that does nothing.

    python bench/deploy.py [--rounds N] [--seconds S] [--json]

Figures: attach() <= 50 ms; the cluster watched <= 5 s later; a killed agent answers again in
<= 5 s; <= 200 MB (PSS) per node in all, by part; CPU as a share of one core.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import psutil
from processes import own_cpu_seconds, pss_bytes

sys.path.insert(0, str(Path(__file__).parents[1]))

from ray_sentinel.actors.deployment.deploy import Description
from tests.support.ray_cluster import RayCluster, Watched, eventually

ATTACH = """
import json, time
begun = time.perf_counter()
import ray_sentinel
imported = time.perf_counter()
sentinel = ray_sentinel.attach(job="bench", rank=0, world_size=1)
attached = time.perf_counter()
ok = sentinel.wait(60)
print(json.dumps({"import": imported - begun, "attach": attached - imported,
    "watched": time.perf_counter() - attached, "ok": ok, "problems": sentinel.problems}))
"""


def attach(cluster: RayCluster, log_dir: Path) -> dict[str, Any]:
    """One attach in a fresh process, to an unwatched cluster."""
    ended = subprocess.run(
        [sys.executable, "-c", ATTACH],
        env=cluster.environ(RAY_SENTINEL_LOG_DIR=str(log_dir)),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return dict(json.loads(ended.stdout))


def away(watched: Watched) -> float:
    """Seconds from an agent's SIGKILL to the first report of the next."""
    before = watched.agents()["127.0.0.2"]
    begun = time.perf_counter()
    os.kill(before.pid, signal.SIGKILL)
    eventually(
        lambda: watched.agents()["127.0.0.2"].incarnation != before.incarnation,
        "the agent reports again",
        every=0.02,
    )
    return time.perf_counter() - begun


def processes(watched: Watched) -> dict[int, tuple[str, str]]:
    """Pid → (node's address, part) of all our processes."""
    found = {agent.pid: (agent.address, "agent") for agent in watched.agents().values()}
    found[watched.ask("describe", Description).pid] = ("head", "coordinator")
    for pid, (address, _) in list(found.items()):
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended
            below = psutil.Process(pid).children(recursive=True)
            found |= {child.pid: (address, "collectors") for child in below}
    return found


def cpu(pids: Any) -> dict[int, float]:
    """CPU seconds of each process so far; those that ended are left out."""
    found = {}
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            found[pid] = own_cpu_seconds(pid)
    return found


class Nothing:
    """An actor that does nothing: what Ray takes for each, and ours with it."""

    async def pid(self) -> int:
        """The id of its process."""
        return os.getpid()


def footprint(watched: Watched, empty: int, seconds: float) -> dict[str, dict[str, float]]:
    """Part → memory and CPU per node."""
    eventually(
        lambda: all(c.state != "starting" for n in watched.status().nodes for c in n.collectors),
        "all collectors have started",
    )
    time.sleep(15.0)
    ours = {**processes(watched), empty: ("head", "empty actor")}
    before, begun = cpu(ours), time.monotonic()
    time.sleep(seconds)
    after, took = cpu(ours), time.monotonic() - begun
    memory: dict[str, list[int]] = defaultdict(list)
    share: dict[str, float] = defaultdict(float)
    for pid, (_, part) in ours.items():
        memory[part].append(pss_bytes(pid))
        share[part] += (after.get(pid, 0.0) - before.get(pid, 0.0)) / took
    nodes = {"coordinator": 1, "empty actor": 1}
    return {
        part: {
            "pss_mb_per_node": sum(sizes) / nodes.get(part, 3) / 1e6,
            "processes_per_node": len(sizes) / nodes.get(part, 3),
            "cpu_percent_per_node": 100 * share[part] / nodes.get(part, 3),
        }
        for part, sizes in sorted(memory.items())
    }


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=60.0, help="to watch the CPU time")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    cluster = RayCluster()
    try:
        with tempfile.TemporaryDirectory() as folder:
            attached = []
            for number in range(args.rounds):
                attached.append(attach(cluster, Path(folder)))
                if number < args.rounds - 1:
                    cluster.down()
            with cluster.connected() as ray:
                watched = Watched(ray)
                killed = [away(watched) for _ in range(args.rounds)]
                empty = ray.remote(num_cpus=0)(Nothing).remote()
                parts = footprint(watched, ray.get(empty.pid.remote()), args.seconds)
            cluster.down()
    finally:
        cluster.stop()
    result = {
        "attach_ms": _spread([1e3 * one["attach"] for one in attached]),
        "import_ms": _spread([1e3 * one["import"] for one in attached]),
        "watched_after_s": _spread([one["watched"] for one in attached]),
        "killed_agent_away_s": _spread(killed),
        "footprint": parts,
        "load": os.getloadavg()[0],
    }
    if args.json:
        print(json.dumps(result, indent=2))
        return 0
    for name, value in result.items():
        if name != "footprint":
            print(f"{name:22} {value}")
    for part, figures in parts.items():
        print(f"{part:22} " + ", ".join(f"{key} {value:.1f}" for key, value in figures.items()))
    return 0


def _spread(values: list[float]) -> str:
    return f"median {statistics.median(values):.2f}, worst {max(values):.2f} of {len(values)}"


if __name__ == "__main__":
    sys.exit(main())
