"""What collecting costs: memory by part and CPU, with all installed collectors at their intervals.

    python bench/collect.py [--seconds 60]

The runner and the exporter run in a process as an agent's do, without Ray: an agent adds what an
idle Ray worker takes. Prints one JSON document.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

from processes import children, command, cpu_seconds, pss_mebibytes

from ray_sentinel.collect.runner import Runner, Settings
from ray_sentinel.config import Config
from ray_sentinel.model.metrics import Family
from ray_sentinel_exporters.prometheus import PrometheusExporter


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    args = parser.parse_args()
    served: list[tuple[Family, ...]] = []
    exporter = PrometheusExporter("bench", "127.0.0.1", PrometheusExporter.Options(port=0))
    exporter.start()

    def take(families: tuple[Family, ...]) -> None:
        served.append(families)
        exporter.publish(families)

    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(
            Settings(host="bench", run_dir=Path(folder) / "run", log_dir=Path(folder) / "logs"),
            Config(),
            on_families=take,
            on_events=lambda events: None,
        )
        runner.start()
        time.sleep(15)  # started, and asked once and again
        before, begin = _cpu(), time.monotonic()
        time.sleep(args.seconds)
        spent, elapsed = _spent(before, _cpu()), time.monotonic() - begin
        memory = {
            "runner and exporter": pss_mebibytes(os.getpid()),
            **{command(pid): pss_mebibytes(pid) for pid in children(os.getpid())},
        }
        statuses = {status.name: status for status in runner.statuses()}
        runner.stop()
    exporter.close()
    report = {
        "series": sum(len(family.samples) for family in served[-1]),
        "cpu_percent_of_a_core": {
            name: round(100 * seconds / elapsed, 3) for name, seconds in spent.items()
        },
        "cpu_percent_of_a_core_in_all": round(100 * sum(spent.values()) / elapsed, 3),
        "pss_mebibytes": {name: round(size, 1) for name, size in memory.items()},
        "pss_mebibytes_in_all": round(sum(memory.values()), 1),
        "collectors": {
            name: {"state": status.state, "seconds": status.seconds, "interval": status.interval}
            for name, status in statuses.items()
        },
        "seconds": round(elapsed, 1),
    }
    print(json.dumps(report, indent=2))


def _cpu() -> dict[int, tuple[str, float]]:
    own = {os.getpid(): ("runner and exporter", time.process_time())}
    return own | {pid: (command(pid), cpu_seconds(pid)) for pid in children(os.getpid())}


def _spent(
    before: dict[int, tuple[str, float]], after: dict[int, tuple[str, float]]
) -> dict[str, float]:
    return {name: seconds - before.get(pid, ("", 0.0))[1] for pid, (name, seconds) in after.items()}


if __name__ == "__main__":
    main()
