"""What the nodes' own ``:9400`` tell of their GPUs, asked only of the nodes that are in sight."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from ray_sentinel.collect.exposition_text import parse
from ray_sentinel.errors import UnreachableError
from ray_sentinel.http import client
from ray_sentinel.text import natural, one_line

SECONDS = 2.0
"""Seconds to wait for a node's answer."""
EVERY = 2.0
"""Seconds between two questions to the nodes in sight."""
MOST_BYTES = 16 << 20
"""Most bytes of an answer."""
AT_ONCE = 8
"""Most nodes that are asked at the same time."""
PREFIX = "hw_gpu_"


class GpuSight(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU; what its node does not report is None."""

    gpu: str
    name: str = ""
    utilization: float | None = None
    used: float | None = None
    total: float | None = None
    watts: float | None = None
    watts_limit: float | None = None
    celsius: float | None = None


class NodeGpus(msgspec.Struct, frozen=True, kw_only=True):
    """One node's answer."""

    gpus: tuple[GpuSight, ...] = ()
    at: float = 0.0
    """Time at which the readings came, by ``time.monotonic``."""
    error: str = ""


FIELDS = {
    "hw_gpu_utilization_ratio": "utilization",
    "hw_gpu_vram_used_bytes": "used",
    "hw_gpu_vram_total_bytes": "total",
    "hw_gpu_power_watts": "watts",
    "hw_gpu_power_limit_watts": "watts_limit",
    "hw_gpu_temperature_celsius": "celsius",
}


def gpu_sights(text: str) -> tuple[GpuSight, ...]:
    """The GPUs in a node's exposition, in order of their numbers. Never raises."""
    told = "\n".join(line for line in text.splitlines() if line.startswith(PREFIX))
    fields: dict[str, dict[str, float]] = {}
    names: dict[str, str] = {}
    for family in parse(told).families:
        for sample in family.samples:
            labels = dict(sample.labels)
            gpu = labels.get("gpu")
            if gpu is None:
                continue
            if sample.name == "hw_gpu_info":
                names[gpu] = labels.get("name", "")
            elif field := FIELDS.get(sample.name):
                fields.setdefault(gpu, {})[field] = sample.value
    return tuple(
        GpuSight(gpu=gpu, name=names.get(gpu, ""), **fields.get(gpu, {}))
        for gpu in sorted({*fields, *names}, key=natural)
    )


class GpuAsker:
    """Asks the nodes that ``want`` names, over and over, a few at a time."""

    def __init__(self) -> None:
        self._wanted: tuple[str, ...] = ()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpu-asker", daemon=True)
        self._pool = ThreadPoolExecutor(AT_ONCE, "gpus-of-a-node")
        self.told: dict[str, NodeGpus] = {}
        """Answers by the URL of a node's metrics; written by our thread, read by others."""

    def want(self, urls: Sequence[str]) -> None:
        """Ask only these from now on; none if it is empty."""
        self._wanted = tuple(dict.fromkeys(filter(None, urls)))

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def close(self) -> None:
        """Stop asking; what is awaited ends by its own deadline."""
        self._closed.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def ask_once(self) -> None:
        """One look at all that are wanted."""
        wanted = self._wanted
        for url, answer in zip(wanted, self._pool.map(self._of_node, wanted), strict=True):
            self.told[url] = answer

    def _run(self) -> None:
        while not self._closed.wait(EVERY if self._wanted else 0.2):
            try:
                self.ask_once()
            except RuntimeError:  # the pool was shut down meanwhile
                return

    def _of_node(self, url: str) -> NodeGpus:
        try:
            body = client.get(url, seconds=SECONDS, most_bytes=MOST_BYTES)
        except UnreachableError as error:
            before = self.told.get(url, NodeGpus())
            return msgspec.structs.replace(before, error=one_line(str(error), 200))
        return NodeGpus(gpus=gpu_sights(body.decode("utf-8", "replace")), at=time.monotonic())
