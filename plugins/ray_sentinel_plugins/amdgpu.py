"""AMD GPUs, from the amdgpu driver's files under /sys, and from amdsmi where it is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeVar

import msgspec

from ray_sentinel.api import Collector, Context, Options, Sample, Seconds, Skip
from ray_sentinel.bounded import Bounded
from ray_sentinel_plugins import _gpu_metrics as gpu_metrics
from ray_sentinel_plugins._amdgpu import ras, sensors, table
from ray_sentinel_plugins._amdgpu.cards import AmdCard, find
from ray_sentinel_plugins._amdgpu.smi import AmdSmi
from ray_sentinel_plugins._files import clean, files_of
from ray_sentinel_plugins._host.identity import amdgpu_version, kernel_release
from ray_sentinel_plugins._pci import read_aer

T = TypeVar("T")


class AmdgpuOptions(Options, frozen=True):
    """``[collectors.amdgpu]``"""

    gpu_deadline: Seconds = 2.0
    """Seconds that reading one GPU's sensors may take: they ask its firmware."""
    ras_deadline: Seconds = 1.0
    """Seconds that reading one GPU's error counts may take; see ``_amdgpu.ras``."""
    amdsmi: bool = True
    """Whether to use ``amdsmi`` for the energy, if it is installed and the driver's own table
    cannot be read."""


class Readings(msgspec.Struct, frozen=True):
    """The samples of one GPU, except its error counts."""

    samples: list[Sample]
    table: table.MetricsTable | None


class AmdgpuCollector(Collector):
    """Collects from every AMD GPU."""

    name = "amdgpu"
    Options = AmdgpuOptions
    metrics = (
        *gpu_metrics.READINGS,
        *ras.METRICS,
        gpu_metrics.REMAPPED_ROWS,
        gpu_metrics.REMAP_PENDING,
        *gpu_metrics.AER,
        gpu_metrics.PCIE_REPLAY,
        gpu_metrics.USER_PROCESSES,
    )

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        options: AmdgpuOptions = context.options or AmdgpuOptions()
        self._files = files_of(context, self.log)
        self._sensors: Bounded[str, Readings] = Bounded(options.gpu_deadline, most=16)
        self._ras: Bounded[str, ras.Reliability] = Bounded(options.ras_deadline, most=16)
        self._blocks: dict[str, frozenset[str]] = {}
        self._tables: dict[str, table.MetricsTable] = {}
        if not find(self._files, context.sys):
            raise Skip(f"there is no AMD GPU under {context.sys / 'class/drm'}")
        self._smi = AmdSmi.open(self.log) if options.amdsmi and context.live else None

    def collect(self) -> Iterator[Sample]:
        """All GPUs: first what is quick, then the error counts. Each GPU is read in a thread of its
        own, so that a wedged one hides no other."""
        cards = {card.gpu: card for card in find(self._files, self.context.sys)}
        for gpu, readings in self._each(self._sensors, cards, self._read_sensors).items():
            yield from readings.samples
            if readings.table is not None:
                yield from table.samples(readings.table, self._tables.get(gpu), gpu)
                self._tables[gpu] = readings.table
            # amdsmi reads the same table, and takes any card's energy to be in MI200's unit.
            if self._smi is not None and readings.table is None:
                yield from self._smi.read(cards[gpu].pci, gpu)
        yield from self._processes()
        for gpu, found in self._each(self._ras, cards, self._read_ras).items():
            known = self._blocks.get(gpu, frozenset()) | found.blocks
            self._blocks[gpu] = known
            yield from ras.samples(found, known, gpu)

    def close(self) -> None:
        """Release amdsmi."""
        if self._smi is not None:
            self._smi.close()

    def _each(
        self, bounded: Bounded[str, T], cards: dict[str, AmdCard], read: Callable[[AmdCard], T]
    ) -> dict[str, T]:
        if not self.context.live:
            return {gpu: read(card) for gpu, card in cards.items()}
        found, failed = bounded.run({gpu: partial(read, card) for gpu, card in cards.items()})
        for gpu, why in failed.items():
            self._files.complain(f"{read.__name__.removeprefix('_read_')} of GPU {gpu}", why)
        return found

    def _read_sensors(self, card: AmdCard) -> Readings:
        files, device = self._files, card.device
        number = files.word(device / "device", "0x[0-9a-f]{4}") or ""
        samples = [
            self._info(card, number),
            *sensors.read(files, device, card.gpu),
            *read_aer(files, device, card.gpu),
            *files.counted(device / "pcie_replay_count", gpu_metrics.PCIE_REPLAY, card.gpu),
        ]
        found = None
        if data := files.raw(path := device / "gpu_metrics"):
            found = table.parse(data, number)
            if found is None:
                files.complain(path, "is of no known revision, or not whole")
        return Readings(samples, found)

    def _read_ras(self, card: AmdCard) -> ras.Reliability:
        return ras.read(self._files, card.device)

    def _info(self, card: AmdCard, number: str) -> Sample:
        name = self._files.word(card.device / "product_name", r"[\w /()+.,-]+")
        if name is None and number:
            name = f"AMD {number}"
        uuid = self._files.word(card.device / "unique_id", "[0-9a-f]{1,16}")
        driver = amdgpu_version(self._files, self.context.sys)
        if driver is None:
            # The kernel's own driver has no version but the kernel's.
            driver = kernel_release(self._files, self.context.proc)
        words = (clean(word or "") for word in (uuid, name))
        return gpu_metrics.INFO(1, card.gpu, *words, "amd", clean(driver or ""), clean(card.pci))

    def _processes(self) -> Iterator[Sample]:
        folder = self.context.sys / "class/kfd/kfd/proc"
        if self._files.is_folder(folder):
            names = self._files.names(folder, expected=True)
            pids = [name for name in names if name.isascii() and name.isdecimal()]
            yield gpu_metrics.USER_PROCESSES(len(pids))
