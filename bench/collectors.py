"""How long one cycle of all collectors takes: 8 GPUs, 8 RDMA ports, this machine's /proc.

    python bench/collectors.py [--cycles N] [--json]

The GPUs are the tests' driver library, built here with ``cc``, whose calls cost what NVML's cost
(4.5 ms for the processes of a GPU, 20 ms for the PCIe throughput in one direction). The collectors
run one after the other in one process, so that the sum of their times is the whole cycle; on a node
they run side by side. NVML's dear calls are made in every cycle here, once a minute on a node.
Exit code 1 if any cycle is above the target.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

TARGET_MS = 300.0
INTERVAL = 10.0
GPUS = PORTS = 8
ROOT = Path(__file__).resolve().parents[1]
STAND_IN = ROOT / "tests/support/nvml_stand_in"
COSTS = {
    "nvmlDeviceGetUtilizationRates": 3,
    "nvmlDeviceGetMemoryInfo": 12,
    "nvmlDeviceGetComputeRunningProcesses": 2250,
    "nvmlDeviceGetPcieThroughput": 20000,
}
"""Microseconds a call; the list of processes takes two calls."""


def make_world(folder: Path) -> dict[str, str]:
    """The library, its script and a /sys with ports and PCI devices; gives the environment."""
    library = folder / "libnvidia-ml.so.1"
    compile_it = ["cc", "-shared", "-fPIC", "-O2", "-Wl,-soname,libnvidia-ml.so.1"]
    subprocess.run([*compile_it, "-o", str(library), str(STAND_IN / "nvml.c")], check=True)
    one = [line for line in (STAND_IN / "h100.txt").read_text().splitlines() if line[0] == "0"]
    lines = [f"gpus {GPUS}", "driver 570.158.01"]
    lines += [f"cost {function} {micros}" for function, micros in COSTS.items()]
    for gpu in range(GPUS):
        lines += [f"{gpu} nvmlDeviceGetPciInfo 00000000:{gpu + 16:02X}:00.0"]
        lines += [f"{gpu} nvmlDeviceGetNvLinkState.{link} 1" for link in range(18)]
        lines += [f"{gpu}{line[1:]}" for line in one]
    (folder / "script").write_text("\n".join(lines) + "\n")
    card = ROOT / "tests/fixtures/trees/mi250x/sys/devices/pci0000:00/0000:c1:00.0"
    for gpu in range(GPUS):
        device = folder / f"sys/bus/pci/devices/0000:{gpu + 16:02x}:00.0"
        device.mkdir(parents=True)
        for file in card.glob("aer_dev_*"):
            shutil.copy(file, device)
    port = ROOT / "tests/fixtures/trees/mlx5-roce/sys/class/infiniband/mlx5_0"
    for number in range(PORTS):
        shutil.copytree(port, folder / f"sys/class/infiniband/mlx5_{number}")
    return {**os.environ, "LD_LIBRARY_PATH": str(folder), "NVML_STAND_IN": str(folder / "script")}


def measure(folder: Path, cycles: int) -> dict[str, dict[str, float]]:
    """Milliseconds of wall and CPU time by collector, and of all."""
    from ray_sentinel.api import Context, Skip
    from ray_sentinel_plugins.host import HostCollector
    from ray_sentinel_plugins.kernel_log import KernelLogCollector
    from ray_sentinel_plugins.nvml import NvmlCollector, NvmlOptions
    from ray_sentinel_plugins.rdma import RdmaCollector

    collectors = []
    for kind in (HostCollector, KernelLogCollector, NvmlCollector, RdmaCollector):
        state = folder / "state" / kind.name
        try:
            options = NvmlOptions(dear_interval=0) if kind is NvmlCollector else None
            context = Context(sys=folder / "sys", state_dir=state, options=options)
            collectors.append(kind(context))
        except Skip as reason:
            print(f"{kind.name} is left out: {reason}", file=sys.stderr)
    wall: dict[str, list[float]] = {"cycle": []}
    cpu: dict[str, list[float]] = {"cycle": []}
    series = 0
    for _ in range(cycles):
        total = [0.0, 0.0]
        series = 0
        for collector in collectors:
            seconds, busy, count = timed(lambda: len(list(collector.collect())))  # noqa: B023
            series += count
            wall.setdefault(collector.name, []).append(seconds)
            cpu.setdefault(collector.name, []).append(busy)
            total = [total[0] + seconds, total[1] + busy]
        wall["cycle"].append(total[0])
        cpu["cycle"].append(total[1])
    found = {name: summary(wall[name], cpu[name]) for name in wall}
    found["cycle"]["series"] = series
    found["cycle"]["core_percent_at_10_s"] = 100 * statistics.mean(cpu["cycle"]) / INTERVAL
    return found


def timed(work: Callable[[], int]) -> tuple[float, float, int]:
    wall, cpu = time.perf_counter(), time.process_time()
    count = work()
    return time.perf_counter() - wall, time.process_time() - cpu, count


def summary(wall: list[float], cpu: list[float]) -> dict[str, float]:
    return {
        "first_ms": wall[0] * 1e3,
        "median_ms": statistics.median(wall) * 1e3,
        "worst_ms": max(wall) * 1e3,
        "cpu_median_ms": statistics.median(cpu) * 1e3,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--cycles", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        print(json.dumps(measure(args.inside, args.cycles)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        # The library is found when a process starts, so the measuring is done in a second one.
        environment = make_world(Path(folder))
        again = [sys.executable, __file__, "--cycles", str(args.cycles), "--inside", folder]
        done = subprocess.run(
            again, env=environment, stdout=subprocess.PIPE, check=True, timeout=300
        )
    found = json.loads(done.stdout)
    if args.json:
        print(json.dumps(found))
    else:
        for name, figures in found.items():
            print(name, " ".join(f"{key}={value:.2f}" for key, value in figures.items()))
    return 0 if found["cycle"]["worst_ms"] <= TARGET_MS else 1


if __name__ == "__main__":
    sys.exit(main())
