"""What a full cycle of all collectors costs: time, CPU and memory, with 8 GPUs and 8 RDMA ports.

    python bench/collectors.py [--cycles N] [--seconds S] [--json]

The GPUs are the tests' driver library, built here with ``cc``, whose calls cost what NVML's cost
(4.5 ms for the processes of a GPU, 20 ms for the PCIe throughput in one direction); the ports are a
ConnectX-5's; a training writes 30 tags a second for TensorBoard and a log; the rest is this
machine.

*Cycle*: the collectors run one after the other in one process, so that the sum of their times is a
whole cycle; on a node they run side by side. NVML's expensive calls are made in every cycle here,
once a minute on a node. *Node*: the runner and the exporter in a Ray actor, as an agent has them,
with each collector in its own process at its own interval, scraped every five seconds.

Targets: a cycle of 300 ms, 1 % of a core at 10 s, 250 MB (PSS) of agent and collectors together.
Exit code 1 if one is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from processes import children, command, cpu_seconds, pss_bytes
from world import BenchTraining, make_world

CYCLE_MS = 300.0
CORE_PERCENT = 1.0
PSS_MEBIBYTES = 250.0
INTERVAL = 10.0
SCRAPE_SECONDS = 5.0


def measure(folder: Path, cycles: int) -> dict[str, dict[str, float]]:
    """Milliseconds of wall and CPU time by collector, and of all."""
    collectors = _collectors(folder)
    wall: dict[str, list[float]] = {"cycle": []}
    cpu: dict[str, list[float]] = {"cycle": []}
    series = 0
    for _ in range(cycles):
        total = [0.0, 0.0]
        series = 0
        for collector in collectors:
            seconds, busy, count = timed(lambda: sample_count(collector))  # noqa: B023
            series += count
            wall.setdefault(collector.name, []).append(seconds)
            cpu.setdefault(collector.name, []).append(busy)
            total = [total[0] + seconds, total[1] + busy]
        wall["cycle"].append(total[0])
        cpu["cycle"].append(total[1])
    for collector in collectors:
        collector.close()  # one of them reads the event files: it leaves them to the node's
    found = {name: summary(wall[name], cpu[name]) for name in wall}
    found["cycle"]["series"] = series
    found["cycle"]["core_percent_at_10_s"] = 100 * statistics.mean(cpu["cycle"]) / INTERVAL
    return found


def _collectors(folder: Path) -> list[Any]:
    """All installed collectors; those that ask to be left out are printed."""
    from importlib import metadata

    from ray_sentinel.api import Context, Skip

    settings: dict[str, dict[str, Any]] = {"nvml": {"dear_interval": 0}, **sources(folder)}
    made = []
    for point in sorted(metadata.entry_points(group="ray_sentinel.collectors")):
        kind = point.load()
        options = kind.Options(**settings.get(point.name, {}))
        state = folder / "state" / point.name
        try:
            made.append(kind(Context(sys=folder / "sys", state_dir=state, options=options)))
        except Skip as reason:
            print(f"{point.name} is left out: {reason}", file=sys.stderr)
    return made


def sample_count(collector: Any) -> int:
    """The number of a collector's samples; 0 if it has nothing new, as without a Ray beside us."""
    from ray_sentinel.api import NoData

    try:
        return len(list(collector.collect()))
    except NoData:
        return 0


def sources(folder: Path) -> dict[str, dict[str, Any]]:
    """Where the training writes, as settings of the collectors."""
    return {
        "tensorboard": {"folder": str(folder / "tb"), "history": True},
        "train_logs": {"files": (str(folder / "train.log"),)},
    }


def timed(work: Callable[[], int]) -> tuple[float, float, int]:
    """Wall seconds, CPU seconds and the result of ``work``."""
    wall, cpu = time.perf_counter(), time.process_time()
    count = work()
    return time.perf_counter() - wall, time.process_time() - cpu, count


def summary(wall: list[float], cpu: list[float]) -> dict[str, float]:
    """First, median and worst wall milliseconds, and median CPU milliseconds, of some seconds."""
    return {
        "first_ms": wall[0] * 1e3,
        "median_ms": statistics.median(wall) * 1e3,
        "worst_ms": max(wall) * 1e3,
        "cpu_median_ms": statistics.median(cpu) * 1e3,
    }


def node(folder: Path, seconds: float) -> dict[str, Any]:
    """A Ray actor with runner and exporter, its collectors beside it: memory and CPU by part."""
    import ray

    @ray.remote(num_cpus=0)
    class BenchNode:
        def __init__(self, folder: str) -> None:
            from ray_sentinel.actors.loops import Loop
            from ray_sentinel.collect.protocol import Roots
            from ray_sentinel.collect.runner import Runner, RunnerSettings
            from ray_sentinel.config import Config
            from ray_sentinel_exporters.prometheus import PrometheusExporter

            place = Path(folder)
            self.exporter = PrometheusExporter(
                "bench", "127.0.0.1", PrometheusExporter.Options(port=0)
            )
            self.exporter.start()
            settings = {name: dict(table) for name, table in sources(place).items()}
            self.runner = Runner(
                RunnerSettings(host="bench", run_dir=place / "run", roots=Roots(sys=place / "sys")),
                Config(collectors=settings),
                on_events=lambda events: None,
            )
            self.runner.start()
            self.cycle = Loop(1.0, self.publish, name="bench-publish")

        def publish(self) -> None:
            self.exporter.publish(self.runner.families)
            self.runner.set_handed_on(self.exporter.handed_on)

        def about(self) -> dict[str, Any]:
            states = {status.name: status.state for status in self.runner.statuses()}
            url = self.exporter.url
            served = sum(len(family.samples) for family in self.runner.families)
            return {"pid": os.getpid(), "series": served, "states": states, "url": url}

        def stop(self) -> None:
            self.cycle.stop(2.0)
            self.runner.stop()
            self.exporter.close()

    # One of our own, whatever runs on this machine.
    ray.init(
        "local", num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR"
    )
    try:
        actor = BenchNode.remote(str(folder))
        # An agent that has run for a while holds fewer steps than one that has just begun.
        scrape(ray, actor, 100.0)
        about = ray.get(actor.about.remote())
        before, begun = spent(about["pid"]), time.monotonic()
        scrape(ray, actor, seconds)
        after, elapsed = spent(about["pid"]), time.monotonic() - begun
        pids = [about["pid"], *children(about["pid"])]
        memory = {name_of(pid, about["pid"]): pss_bytes(pid) / 2**20 for pid in pids}
        about = ray.get(actor.about.remote())
        ray.get(actor.stop.remote())
    finally:
        ray.shutdown()
    cpu = {name: 100 * (after[name] - before.get(name, 0.0)) / elapsed for name in after}
    return {
        "states": about["states"],
        "samples": about["series"],
        "pss_mebibytes": rounded(memory),
        "pss_mebibytes_in_all": round(sum(memory.values()), 1),
        "core_percent": rounded(cpu),
        "core_percent_in_all": round(sum(cpu.values()), 2),
    }


def scrape(ray: Any, actor: Any, seconds: float) -> None:
    """Scrape as a Prometheus does, for ``seconds``."""
    url = ray.get(actor.about.remote())["url"]
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for place in (url, url.replace("/metrics", "/steps")):
            headers = {"X-Prometheus-Scrape-Timeout-Seconds": "5", "Accept-Encoding": "gzip"}
            try:
                with urllib.request.urlopen(urllib.request.Request(place, headers=headers)) as got:
                    got.read()
            except urllib.error.HTTPError as error:
                if error.code != 503:  # nothing was collected yet
                    raise
        time.sleep(SCRAPE_SECONDS)


def spent(agent: int) -> dict[str, float]:
    """CPU seconds of the agent and of each collector so far."""
    return {name_of(pid, agent): cpu_seconds(pid) for pid in (agent, *children(agent))}


def name_of(pid: int, agent: int) -> str:
    """The collector's name, or "agent"."""
    return "agent" if pid == agent else command(pid)


def rounded(values: dict[str, float]) -> dict[str, float]:
    """The values to two decimals."""
    return {name: round(value, 2) for name, value in values.items()}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--cycles", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=60.0, help="to watch the node; 0: not")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        found: dict[str, Any] = {"cycle": measure(args.inside, args.cycles)}
        if args.seconds:
            found["node"] = node(args.inside, args.seconds)
        print(json.dumps(found))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        # The library is found when a process starts, so the measuring is done in a second one.
        environment = make_world(Path(folder))
        training = BenchTraining(Path(folder))
        numbers = ["--cycles", str(args.cycles), "--seconds", str(args.seconds)]
        again = [sys.executable, __file__, *numbers, "--inside", folder]
        try:
            done = subprocess.run(
                again, env=environment, stdout=subprocess.PIPE, check=True, timeout=600
            )
        finally:
            training.stop()
    found = json.loads(done.stdout.splitlines()[-1])
    show(found, as_json=args.json)
    return 0 if met(found) else 1


def show(found: dict[str, Any], *, as_json: bool) -> None:
    """Print the figures, as JSON or as lines."""
    if as_json:
        print(json.dumps({**found, "load": os.getloadavg()[0]}))
        return
    for name, figures in found["cycle"].items():
        print(f"{name:12}", " ".join(f"{key}={value:.2f}" for key, value in figures.items()))
    for key, value in found.get("node", {}).items():
        print(f"{key}: {value}")
    print(f"load average {os.getloadavg()[0]:.1f}")


def met(found: dict[str, Any]) -> bool:
    """Whether the targets are met."""
    cycle, beside = found["cycle"]["cycle"], found.get("node")
    well = cycle["worst_ms"] <= CYCLE_MS and cycle["core_percent_at_10_s"] <= CORE_PERCENT
    return well and (beside is None or beside["pss_mebibytes_in_all"] <= PSS_MEBIBYTES)


if __name__ == "__main__":
    sys.exit(main())
