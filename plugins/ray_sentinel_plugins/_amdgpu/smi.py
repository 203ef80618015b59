"""What only AMD's own library reports: energy. Used where ``amdsmi`` happens to be installed.

It is imported here, in the collector's own process, and nowhere else: without its native library
the package breaks the import of others.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from ray_sentinel.api import Sample
from ray_sentinel_plugins import _gpu_metrics as gpu_metrics

MICROJOULE = 1e-6


class AmdSmi:
    """The library, opened; ``open`` gives None if it is not available."""

    def __init__(self, module: ModuleType, handles: dict[str, Any]) -> None:
        self._module = module
        self._handles = handles

    @classmethod
    def open(cls, log: logging.Logger) -> AmdSmi | None:
        """Import and initialise ``amdsmi``."""
        try:
            module = importlib.import_module("amdsmi")
        except ImportError:
            return None
        except (OSError, KeyError, AttributeError) as error:
            # The package is there and its native library is not, or is of another version.
            log.info("amdsmi is installed but cannot be used: %s", error)
            return None
        try:
            module.amdsmi_init()
            handles = {
                str(module.amdsmi_get_gpu_device_bdf(handle)).lower(): handle
                for handle in module.amdsmi_get_processor_handles()
            }
        except module.AmdSmiException as error:
            log.info("amdsmi is installed but does not start: %s", error)
            return None
        return cls(module, handles)

    def read(self, pci: str, gpu: str) -> Iterator[Sample]:
        """The energy counter of one GPU, by its PCI address."""
        handle = self._handles.get(pci)
        if handle is None:
            return
        try:
            answer = self._module.amdsmi_get_energy_count(handle)
        except self._module.AmdSmiException:
            # Not supported on this card.
            return
        # Called "power" before ROCm 6.3, though it always was the accumulated energy.
        ticks = answer.get("energy_accumulator", answer.get("power"))
        resolution = answer.get("counter_resolution")
        if isinstance(ticks, int) and isinstance(resolution, int | float):
            yield gpu_metrics.ENERGY(ticks * resolution * MICROJOULE, gpu)

    def close(self) -> None:
        """Release the library."""
        try:
            self._module.amdsmi_shut_down()
        except self._module.AmdSmiException:
            return
