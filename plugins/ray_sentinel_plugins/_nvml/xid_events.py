"""Xids from NVML's event set, for hosts where the kernel log cannot be read.

NVML reports only what happens after we asked, and not every Xid: the log is better where it is
available, and an error must not be counted by both.
"""

from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pynvml

from ray_sentinel.api import Event, Sample
from ray_sentinel_plugins import _gpu_metrics as gpu_metrics
from ray_sentinel_plugins._kernel_log import tally
from ray_sentinel_plugins._kernel_log.follow import is_device, is_kernel_log
from ray_sentinel_plugins._kernel_log.patterns import CRITICAL_XIDS
from ray_sentinel_plugins._nvml.library import Nvml

MOST_AT_ONCE = 256
"""Most events of one collection; the rest waits for the next."""


def log_is_readable(dev: Path) -> bool:
    """Whether the kernel log collector can do its work here."""
    if is_device(dev / "kmsg") and not is_kernel_log(dev / "kmsg"):
        return False
    try:
        os.close(os.open(dev / "kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError:
        return False
    return True


class XidEvents:
    """Counts Xids by GPU; the counts outlive this process, not the boot."""

    def __init__(self, nvml: Nvml, folder: Path | None, boot_id: str, log: logging.Logger) -> None:
        self._nvml, self._folder, self._log = nvml, folder, log
        self._tally = tally.load(folder, boot_id, log)
        self._set = nvml.ask("nvmlEventSetCreate")
        self._uuids: dict[int, str] = {}
        """UUIDs by handle: a lost GPU, as many are after an Xid, no longer reports its own."""

    def watch(self, handle: Any, uuid: str) -> None:
        """Ask for the Xids of one GPU."""
        self._uuids[_number(handle)] = uuid
        if self._set is not None:
            kind = pynvml.nvmlEventTypeXidCriticalError
            self._nvml.ask("nvmlDeviceRegisterEvents", handle, kind, self._set)

    def read(self, gpus: dict[str, str], now: float) -> Iterator[Sample | Event]:
        """New Xids as events, then all counts. ``gpus``: UUID → index."""
        if self._set is None:
            return
        changed = False
        for _ in range(MOST_AT_ONCE):
            try:
                data = pynvml.nvmlEventSetWait_v2(self._set, 0)
            except pynvml.NVMLError:
                # NVML_ERROR_TIMEOUT: nothing more has happened.
                break
            xid = int(data.eventData)
            gpu = gpus.get(self._uuids.get(_number(data.device), ""), "unknown")
            known = self._tally.xids.setdefault(gpu, {})
            known[str(xid)] = known.get(str(xid), 0) + 1
            changed = True
            yield Event(
                time=now,
                kind="kernel.xid",
                message=f"NVML reports Xid {xid} on GPU {gpu}",
                severity="critical" if xid in CRITICAL_XIDS else "error",
                attributes={"gpu": gpu, "xid": str(xid), "source": "nvml"},
            )
        if changed:
            tally.save(self._tally, self._folder, self._log)
        for gpu, xids in self._tally.xids.items():
            for number, count in xids.items():
                yield gpu_metrics.XIDS(count, gpu, number)


def _number(handle: Any) -> int:
    """NVML's own identifier of a device: handles are pointers, the same as long as it is loaded."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
