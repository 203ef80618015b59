"""NVIDIA GPUs, through NVML.

The library is the driver's own and cannot be interrupted: a call that never returns is ended with
this process by the runner's deadline. A lost GPU loses its series and is reported once; the others
go on.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.api import Collector, Context, Event, Options, Sample, Seconds, Skip
from ray_sentinel_plugins import _gpu_metrics as gpu_metrics
from ray_sentinel_plugins._files import Files, clean, files_of
from ray_sentinel_plugins._gpu_index import nvidia_addresses
from ray_sentinel_plugins._host.identity import nvidia_version
from ray_sentinel_plugins._nvml import dear, readings
from ray_sentinel_plugins._nvml.library import GpuLost, Nvml
from ray_sentinel_plugins._nvml.xid_events import XidEvents, log_is_readable
from ray_sentinel_plugins._pci import read_aer, sysfs_address

# What a captured tree shows of NVIDIA's GPUs without their driver: identity and PCIe errors.

MAX_GPUS = 256
"""Most GPUs that are read."""


def read(files: Files, proc: Path, sys: Path) -> Iterator[Sample]:
    """All GPUs; nothing if the tree shows none."""
    driver = nvidia_version(files, proc, sys) or ""
    addresses = files.bounded(nvidia_addresses(files, proc, sys), MAX_GPUS, "NVIDIA's GPUs")
    for index, pci in enumerate(addresses):
        known = parse_information(files.text(proc / "driver/nvidia/gpus" / pci / "information"))
        labels = (known.get("GPU UUID", ""), known.get("Model", ""), "nvidia", driver, pci)
        yield gpu_metrics.INFO(1, str(index), *map(clean, labels))
        yield from read_aer(files, sys / "bus/pci/devices" / pci, str(index))


def parse_information(text: str | None) -> dict[str, str]:
    """``/proc/driver/nvidia/gpus/<address>/information``: a name, a colon, blanks, a value.

    A UUID that the driver has not read yet is written with question marks, and is left out.

    >>> parse_information("Model: \\t\\t NVIDIA H100\\nGPU UUID: \\t GPU-????????-????\\n")
    {'Model': 'NVIDIA H100'}
    """
    pairs = re.findall(r"^([\w ]+?):[ \t]+(\S.*?)[ \t]*$", text or "", re.MULTILINE)
    return {name: value for name, value in pairs if "??" not in value}


class NvmlOptions(Options, frozen=True):
    """``[collectors.nvml]``"""

    dear_interval: Seconds = 60.0
    """Seconds between two rounds of the calls that take milliseconds."""
    throughput_at_once: int = 2
    """Number of GPUs whose PCIe throughput is measured in one collection, 40 ms each; the others
    keep their last values until it is their turn."""


class NvmlGpu(msgspec.Struct):
    """A GPU as it was first seen."""

    label: str
    """NVML's index of the GPU, or ``<index>:<MIG index>``."""
    uuid: str
    name: str
    pci: str
    met: bool = True
    """Whether the GPU answered when it was first seen; if False, nothing else is known of it."""
    lost: bool = False
    dear: list[Sample] = []
    """Samples of links and processes, as of the last round."""
    throughput: list[Sample] = []
    throughput_at: float = float("-inf")


class NvmlCollector(Collector):
    """Every GPU and every MIG device that the driver shows."""

    name = "nvml"
    Options = NvmlOptions
    metrics = (
        *gpu_metrics.READINGS,
        gpu_metrics.ECC_CORRECTED,
        gpu_metrics.ECC_UNCORRECTED,
        gpu_metrics.REMAPPED_ROWS,
        gpu_metrics.REMAP_PENDING,
        *gpu_metrics.AER,
        gpu_metrics.PCIE_REPLAY,
        gpu_metrics.PCIE_RX,
        gpu_metrics.PCIE_TX,
        gpu_metrics.NVLINK_ERRORS,
        gpu_metrics.USER_PROCESSES,
        gpu_metrics.PROCESS_MEMORY,
        gpu_metrics.XIDS,
    )

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._files = Files(self.log) if context.live else files_of(context, self.log)
        if not context.live:
            if not nvidia_addresses(self._files, context.proc, context.sys):
                raise Skip("the tree shows no NVIDIA GPU; most of it only the driver itself tells")
            return
        options: NvmlOptions = context.options or NvmlOptions()
        self._options = options
        self._dear_at = float("-inf")
        self._nvml = Nvml(self.log)
        self._driver = str(self._nvml.ask("nvmlSystemGetDriverVersion") or "")
        self._gpus: dict[int, NvmlGpu] = {}
        self._processes: set[int] | None = None
        self._measurements = 0
        """How many more GPUs' throughput may be measured in this collection."""
        self._xids: XidEvents | None = None
        if not log_is_readable(context.dev):
            boot_id = self._files.line(context.proc / "sys/kernel/random/boot_id") or ""
            self._xids = XidEvents(self._nvml, context.state_dir, boot_id, self.log)

    def collect(self) -> Iterator[Sample | Event]:
        """All GPUs. Raises NVMLError if the driver itself is gone."""
        if not self.context.live:
            yield from read(self._files, self.context.proc, self.context.sys)
            return
        now = time.monotonic()
        dear_now = now - self._dear_at >= self._options.dear_interval
        if dear_now:
            self._dear_at = now
            self._processes = None
        # Run once by hand, there is no second collection to leave anything to.
        self._measurements = (
            self._options.throughput_at_once if self.context.state_dir else sys.maxsize
        )
        for index in self._order(self._nvml.count()):
            yield from self._one(index, dear_now, now)
        if self._processes is not None:
            yield gpu_metrics.USER_PROCESSES(len(self._processes))
        if self._xids is not None:
            known = {gpu.uuid: gpu.label for gpu in self._gpus.values() if gpu.uuid}
            yield from self._xids.read(known, time.time())

    def close(self) -> None:
        """Release NVML."""
        if self.context.live:
            self._nvml.close()

    def _order(self, count: int) -> list[int]:
        """All indices, first those whose throughput was measured longest ago."""
        never = float("-inf")
        return sorted(
            range(count),
            key=lambda index: (
                self._gpus[index].throughput_at if index in self._gpus else never,
                index,
            ),
        )

    def _one(self, index: int, dear_now: bool, now: float) -> Iterator[Sample | Event]:
        """All samples of one GPU, or none."""
        try:
            handle = self._nvml.handle(index)
            gpu = self._gpus.get(index)
            if gpu is None or not gpu.met:
                gpu = self._meet(index, handle)
            samples = list(self._samples(gpu, handle, dear_now, now))
        except GpuLost as error:
            yield from self._lose(index, str(error))
            return
        if gpu.lost:
            gpu.lost = False
            self.log.warning("GPU %s answers again", gpu.label)
        yield from samples

    def _meet(self, index: int, handle: Any) -> NvmlGpu:
        before, gpu = self._gpus.get(index), self._identify(handle, str(index))
        gpu.lost = before is not None and before.lost
        if self._xids is not None:
            self._xids.watch(handle, gpu.uuid)
        self._gpus[index] = gpu
        return gpu

    def _identify(self, handle: Any, label: str, pci: str = "") -> NvmlGpu:
        info = self._nvml.ask("nvmlDeviceGetPciInfo", handle)
        return NvmlGpu(
            label=label,
            uuid=clean(str(self._nvml.ask("nvmlDeviceGetUUID", handle) or "")),
            name=clean(str(self._nvml.ask("nvmlDeviceGetName", handle) or "")),
            pci=pci or (sysfs_address(_text(info.busId)) if info is not None else ""),
        )

    def _samples(self, gpu: NvmlGpu, handle: Any, dear_now: bool, now: float) -> Iterator[Sample]:
        yield self._info(gpu)
        yield from readings.read(self._nvml, handle, gpu.label)
        if gpu.pci:
            device = self.context.sys / "bus/pci/devices" / gpu.pci
            yield from read_aer(self._files, device, gpu.label)
        if dear_now:
            gpu.dear = list(self._dear(gpu, handle))
        yield from gpu.dear
        if self._measurements > 0 and now - gpu.throughput_at >= self._options.dear_interval:
            self._measurements -= 1
            gpu.throughput_at = now
            gpu.throughput = list(dear.throughput(self._nvml, handle, gpu.label))
        yield from gpu.throughput
        for index, device in readings.mig_devices(self._nvml, handle).items():
            part = self._identify(device, f"{gpu.label}:{index}", gpu.pci)
            yield self._info(part)
            yield from readings.memory(self._nvml, device, part.label)

    def _dear(self, gpu: NvmlGpu, handle: Any) -> Iterator[Sample]:
        yield from dear.links(self._nvml, handle, gpu.label)
        found = dear.processes(self._nvml, handle)
        if found is not None:
            self._processes = (self._processes or set()) | set(found)
            ranks = {rank.process.pid for rank in self.context.ranks}
            yield from dear.rank_memory(found, gpu.label, ranks)

    def _info(self, gpu: NvmlGpu) -> Sample:
        return gpu_metrics.INFO(
            1, gpu.label, gpu.uuid, gpu.name, "nvidia", clean(self._driver), gpu.pci
        )

    def _lose(self, index: int, why: str) -> Iterator[Event]:
        unknown = NvmlGpu(label=str(index), uuid="", name="", pci="", met=False)
        gpu = self._gpus.setdefault(index, unknown)
        gpu.dear, gpu.throughput = [], []
        if gpu.lost:
            return
        gpu.lost = True
        self.log.warning("GPU %s (%s) is lost: %s", gpu.label, gpu.pci, why)
        yield Event(
            time=time.time(),
            kind="gpu.lost",
            message=f"GPU {gpu.label} does not answer any more: {why}",
            severity="critical",
            attributes={"gpu": gpu.label, "pci": gpu.pci, "uuid": gpu.uuid},
        )


def _text(value: str | bytes) -> str:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else value
