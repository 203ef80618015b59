"""What was counted so far, kept in a file so that a counter never falls in one boot."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from ray_sentinel.whole_file import write_whole
from ray_sentinel_plugins._files import clean
from ray_sentinel_plugins._kernel_log.meaning import Happening, KernelLogState

KINDS = ("oom", "gpu", "mce", "nvme", "net", "hung_task")
MAX_XID_SERIES = 1024
"""Most pairs of GPU and Xid that are counted."""
FILE = "counts.json"


class Tally(msgspec.Struct, kw_only=True):
    """Counters of one boot. ``next_sequence``: the first record that is not in them."""

    boot_id: str = ""
    next_sequence: int | None = None
    counts: dict[str, int] = {}
    xids: dict[str, dict[str, int]] = {}
    """Number of times that each Xid was reported, by the GPU's PCI address."""
    gpus: dict[str, str] = {}
    """The index of each GPU by its PCI address, as it was first seen: a GPU that is lost keeps its
    label."""
    lost: int = 0
    """Number of records that were overwritten before they could be read."""
    memory: KernelLogState = msgspec.field(default_factory=KernelLogState)

    def add(self, happening: Happening) -> None:
        """Count one occurrence."""
        fact = happening.fact
        if fact.counted:
            self.counts[fact.counted] = self.counts.get(fact.counted, 0) + 1
        xid = fact.attributes.get("xid")
        if xid is None:
            return
        gpu = fact.attributes.get("pci") or "unknown"
        known = self.xids.get(gpu, {})
        if xid in known or sum(map(len, self.xids.values())) < MAX_XID_SERIES:
            self.xids[gpu] = {**known, xid: known.get(xid, 0) + 1}

    def label(self, pci: str) -> str:
        """The ``gpu`` label of a PCI address: its index, or the address where that is unknown."""
        return self.gpus.get(pci) or clean(pci)


def load(folder: Path | None, boot_id: str, log: logging.Logger) -> Tally:
    """The counters of this boot, or empty ones. A file that cannot be used is logged, and counting
    begins again."""
    fresh = Tally(boot_id=boot_id)
    if folder is None:
        return fresh
    path = folder / FILE
    try:
        kept = msgspec.json.decode(path.read_bytes(), type=Tally)
    except FileNotFoundError:
        return fresh
    except (OSError, ValueError, RecursionError) as error:
        log.warning("%s cannot be used, the kernel log is counted again: %s", path, error)
        return fresh
    # An empty boot id is unknown: the counters might be another boot's.
    return kept if kept.boot_id == boot_id and boot_id else fresh


def save(tally: Tally, folder: Path | None, log: logging.Logger) -> None:
    """Write the counters whole or not at all; a failure, such as a full disk, is only logged."""
    if folder is None:
        return
    path = folder / FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, msgspec.json.encode(tally))
    except OSError as error:
        log.warning("%s cannot be written: %s", path, error.strerror)
