"""What each call of NVML takes that the collector ``nvml`` makes, on this machine's GPUs.

    python bench/nvml.py [--rounds N]

The median and the longest of N collections, in microseconds, and the last answer. What the
collector asks once a minute is asked in each. Exit code 2 without a GPU or its driver.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml

from ray_sentinel.api import Context, Skip
from ray_sentinel_plugins.nvml import NvmlCollector, NvmlOptions

PREFIX = "nvmlDevice"


class Calls:
    """The calls of the driver's library, and how long each took."""

    def __init__(self) -> None:
        self.took: dict[str, list[float]] = {}
        self.answers: dict[str, str] = {}

    def watch(self) -> None:
        """Have each call that is made from now on noted."""
        for name in dir(pynvml):
            if name.startswith(PREFIX) and callable(function := getattr(pynvml, name)):
                setattr(pynvml, name, self._timed(name.removeprefix(PREFIX), function))

    def _timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            shown = name + "".join(f" {arg}" for arg in args if isinstance(arg, (int, list)))
            begun = time.perf_counter()
            try:
                answer = function(*args)
            except pynvml.NVMLError as error:
                answer = error
            self.took.setdefault(shown, []).append((time.perf_counter() - begun) * 1e6)
            self.answers[shown] = " ".join(str(answer).split())[:60]
            if isinstance(answer, pynvml.NVMLError):
                raise answer
            return answer

        return timed


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    calls = Calls()
    with tempfile.TemporaryDirectory() as folder:
        options = NvmlOptions(dear_interval=0.0)
        try:
            collector = NvmlCollector(Context(state_dir=Path(folder), options=options))
        except Skip as reason:
            print(reason)
            return 2
        calls.watch()
        for _ in range(rounds):
            list(collector.collect())
        collector.close()
    for name, took in calls.took.items():
        print(f"{name:<40} {statistics.median(took):9.1f} {max(took):9.1f}  {calls.answers[name]}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
