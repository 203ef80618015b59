"""What each call of NVML takes that the collector makes, on this machine's GPUs.

    python bench/nvml.py [--rounds N]

The median and the longest of N rounds, in microseconds, with the last answer; for the first GPU.
Exit code 2 without a GPU or its driver.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import time
from typing import Any

from ray_sentinel.api import Skip
from ray_sentinel_plugins._nvml import dear, readings
from ray_sentinel_plugins._nvml.library import Nvml


class TimedNvml(Nvml):
    """Notes how long each call took, by its function and numbers."""

    def __init__(self) -> None:
        super().__init__(logging.getLogger("bench"))
        self.took: dict[str, list[float]] = {}
        self.answers: dict[str, Any] = {}

    def ask(self, function: str, *args: Any) -> Any:
        """The answer, as ``Nvml.ask`` gives it. Raises what that does."""
        begun = time.perf_counter()
        answer = super().ask(function, *args)
        numbers = "".join(f" {arg}" for arg in args if isinstance(arg, (int, list)))
        name = function.removeprefix("nvmlDevice") + numbers
        self.took.setdefault(name, []).append((time.perf_counter() - begun) * 1e6)
        self.answers[name] = answer
        return answer


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    try:
        nvml = TimedNvml()
    except Skip as reason:
        print(reason)
        return 2
    handle = nvml.handle(0)
    for _ in range(rounds):
        for reader in (readings.read, dear.throughput, dear.links):
            for _sample in reader(nvml, handle, "0"):
                pass
        nvml.ask("nvmlDeviceGetMigMode", handle)
        nvml.ask("nvmlDeviceGetComputeRunningProcesses", handle)
    for name, took in nvml.took.items():
        answer = " ".join(str(nvml.answers[name]).split())[:60]
        print(f"{name:<48} {statistics.median(took):9.1f} {max(took):9.1f}  {answer}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
