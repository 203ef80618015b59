"""Calling NVML: any field may be missing on any card, driver or virtual machine."""

from __future__ import annotations

import logging
from typing import Any

import pynvml

from ray_sentinel.api import Skip

LOST = frozenset({pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED})
NO_DRIVER = frozenset({pynvml.NVML_ERROR_UNINITIALIZED, pynvml.NVML_ERROR_DRIVER_NOT_LOADED})
ABSENT = frozenset(
    {
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_NOT_FOUND,
        pynvml.NVML_ERROR_NO_DATA,
    }
)
"""Errors with which a card or a driver of another generation answers; nothing is wrong then."""


class GpuLost(Exception):
    """The GPU does not answer any more: it fell off the bus or must be reset."""


class Nvml:
    """NVML, opened. Raises Skip if no NVIDIA GPU is visible."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._said: set[tuple[str, int]] = set()
        self._open()
        if not self.count():
            self.close()
            raise Skip("the NVIDIA driver shows no GPU")

    @staticmethod
    def _open() -> None:
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError_LibraryNotFound:
            raise Skip("libnvidia-ml.so.1 is not there: no NVIDIA driver on this host") from None
        except pynvml.NVMLError_DriverNotLoaded:
            raise Skip("the NVIDIA driver is not loaded") from None
        except pynvml.NVMLError_NoPermission:
            raise Skip("/dev/nvidia* may not be opened by this user") from None

    def count(self) -> int:
        """The number of GPUs."""
        return int(pynvml.nvmlDeviceGetCount())

    def ask(self, function: str, *args: Any) -> Any:
        """The function's result, or None if this card or driver does not support it.

        Raises GpuLost if the GPU is gone, NVMLError if the driver is.
        """
        try:
            return getattr(pynvml, function)(*args)
        except AttributeError:
            # An older binding than the one that we know.
            return None
        except pynvml.NVMLError as error:
            code = int(error.value)
            if code in LOST:
                raise GpuLost(str(error)) from None
            if code in NO_DRIVER:
                raise
            if code not in ABSENT and (function, code) not in self._said:
                self._said.add((function, code))
                self._log.warning("%s: %s", function, error)
            return None

    def handle(self, index: int) -> Any:
        """A GPU's handle. Raises GpuLost if the GPU is gone."""
        handle = self.ask("nvmlDeviceGetHandleByIndex", index)
        if handle is None:
            raise GpuLost("it has no handle any more")
        return handle

    @staticmethod
    def close() -> None:
        """Release the library."""
        try:
            pynvml.nvmlShutdown()
        except pynvml.NVMLError:
            # It was not open, or its driver has gone: either way it is closed now.
            return
