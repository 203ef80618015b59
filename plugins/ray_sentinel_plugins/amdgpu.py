"""AMD GPUs, from the amdgpu driver's files under /sys, and from amdsmi where it is installed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ray_sentinel.api import Collector, Context, Options, Sample, Skip
from ray_sentinel_plugins import _gpu_metrics as gpu_metrics
from ray_sentinel_plugins._amdgpu import ras, sensors
from ray_sentinel_plugins._amdgpu.cards import Card, find
from ray_sentinel_plugins._amdgpu.smi import AmdSmi
from ray_sentinel_plugins._bounded import Bounded
from ray_sentinel_plugins._files import clean, files_of
from ray_sentinel_plugins._host.identity import amdgpu_version, kernel_release
from ray_sentinel_plugins._pci import read_aer


class AmdgpuOptions(Options, frozen=True):
    """``[collectors.amdgpu]``"""

    ras_deadline: float = 1.0
    """Seconds that the error counts of all GPUs are given; see ``_amdgpu.ras``."""
    amdsmi: bool = True
    """Use ``amdsmi`` where it is installed."""


class AmdgpuCollector(Collector):
    """Every GPU of AMD's."""

    name = "amdgpu"
    Options = AmdgpuOptions
    metrics = (
        gpu_metrics.INFO,
        gpu_metrics.TEMPERATURE,
        gpu_metrics.MEMORY_TEMPERATURE,
        gpu_metrics.POWER,
        gpu_metrics.POWER_LIMIT,
        gpu_metrics.ENERGY,
        gpu_metrics.UTILIZATION,
        gpu_metrics.MEMORY_UTILIZATION,
        gpu_metrics.CLOCK,
        gpu_metrics.VRAM_USED,
        gpu_metrics.VRAM_TOTAL,
        *ras.METRICS,
        gpu_metrics.REMAPPED_ROWS,
        gpu_metrics.REMAP_PENDING,
        *gpu_metrics.AER,
        gpu_metrics.PCIE_REPLAY,
        gpu_metrics.USER_PROCESSES,
    )

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        options = context.options if isinstance(context.options, AmdgpuOptions) else AmdgpuOptions()
        self._files = files_of(context, self.log)
        self._bounded: Bounded[str, ras.Reliability] = Bounded(options.ras_deadline, most=16)
        self._blocks: dict[str, frozenset[str]] = {}
        if not find(self._files, context.sys):
            raise Skip(f"there is no AMD GPU under {context.sys / 'class/drm'}")
        self._smi = AmdSmi.open(self.log) if options.amdsmi and context.live else None

    def collect(self) -> Iterator[Sample]:
        """All GPUs: first what is quick and safe, then the error counts."""
        cards = find(self._files, self.context.sys)
        for card in cards:
            yield self._info(card)
            yield from sensors.read(self._files, card.device, card.gpu)
            yield from read_aer(self._files, card.device, card.gpu)
            replays = self._files.count(card.device / "pcie_replay_count")
            if replays is not None:
                yield gpu_metrics.PCIE_REPLAY(replays, card.gpu)
            if self._smi is not None:
                yield from self._smi.read(card.pci, card.gpu)
        yield from self._processes()
        for gpu, found in self._reliability(cards).items():
            known = self._blocks.get(gpu, frozenset()) | found.blocks
            self._blocks[gpu] = known
            yield from ras.samples(found, known, gpu)

    def close(self) -> None:
        """Give amdsmi back."""
        if self._smi is not None:
            self._smi.close()

    def _info(self, card: Card) -> Sample:
        device = card.device
        name = self._files.word(device / "product_name", r"[\w /()+.,-]+")
        if name is None and (number := self._files.word(device / "device", "0x[0-9a-f]{4}")):
            name = f"AMD {number}"
        uuid = self._files.word(device / "unique_id", "[0-9a-f]{1,16}")
        driver = amdgpu_version(self._files, self.context.sys)
        if driver is None:
            # The kernel's own driver has no version but the kernel's.
            driver = kernel_release(self._files, self.context.proc)
        words = (clean(word or "") for word in (uuid, name))
        return gpu_metrics.INFO(1, card.gpu, *words, "amd", clean(driver or ""), clean(card.pci))

    def _processes(self) -> Iterator[Sample]:
        folder = self.context.sys / "class/kfd/kfd/proc"
        if folder.is_dir():
            pids = [name for name in self._files.names(folder, expected=True) if name.isdecimal()]
            yield gpu_metrics.USER_PROCESSES(len(pids))

    def _reliability(self, cards: list[Card]) -> dict[str, ras.Reliability]:
        if not self.context.live:
            return {card.gpu: ras.read(self._files, card.device) for card in cards}
        found, failed = self._bounded.run(
            {card.gpu: partial(ras.read, self._files, card.device) for card in cards}
        )
        for gpu, why in failed.items():
            self._files.complain(f"the error counts of GPU {gpu}", why)
        return found
