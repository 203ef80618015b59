"""The kernel log: GPU faults, OOM kills, machine checks, hung tasks, NVMe and link errors.

The ring is counted once, so that a fault from before we came is not lost, and then followed by
sequence number. The counters belong to a boot: they are kept in ``state_dir`` and go on where they
were when this process starts again.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from msgspec import structs

from ray_sentinel.api import Collector, Context, Event, Metric, NoData, Sample, Skip
from ray_sentinel_plugins._files import Files, counter, files_of, of_running_kernel, pairs
from ray_sentinel_plugins._gpu_index import amd_indices, nvidia_indices
from ray_sentinel_plugins._gpu_metrics import XIDS
from ray_sentinel_plugins._kernel_log import tally
from ray_sentinel_plugins._kernel_log.follow import Batch, KmsgFollower, is_device, is_kernel_log
from ray_sentinel_plugins._kernel_log.meaning import REPORT, Happening, happenings, of_gpu
from ray_sentinel_plugins._kernel_log.records import KernelRecord, parse_log

GPU_ERRORS = Metric(
    "hw_dmesg_gpu_errors_total", "counter", "Errors of GPUs and their drivers in the kernel log."
)
ERRORS = Metric("hw_dmesg_errors_total", "counter", "Errors in the kernel log.", ("kind",))

MAX_EVENTS = 500
"""Most events of one collection; if there are more, the newest are sent and all are counted."""
FILES = ("kmsg", "dmesg")
"""Names of the kernel log in a captured tree's ``dev``: records of /dev/kmsg, or what dmesg or
journalctl -k printed."""
REMEDY = (
    "run as root or with CAP_SYSLOG, set kernel.dmesg_restrict=0, or give the container /dev/kmsg "
    "(privileged, or a device mapping with CAP_SYSLOG)"
)


class KernelLogCollector(Collector):
    """Counts what is in the log and reports each error as an event with its time."""

    name = "kernel_log"
    interval = 1.0  # An Xid names a rank at once; nothing new costs 30 µs.
    metrics = (GPU_ERRORS, ERRORS, XIDS)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._files = files_of(context, self.log)
        self._path = context.dev / "kmsg"
        self._follower: KmsgFollower | None = None
        boot_id = self._files.line(context.proc / "sys/kernel/random/boot_id") or ""
        self._folder = context.state_dir if context.live else None
        self._tally = tally.load(self._folder, boot_id, self.log)
        if context.live and is_kernel_log(self._path):
            self._open()

    def _open(self) -> None:
        try:
            self._follower = KmsgFollower(self._path, self._tally.next_sequence)
        except OSError as error:
            raise Skip(f"{self._path} cannot be read ({error.strerror}): {REMEDY}") from None

    def close(self) -> None:
        """Close /dev/kmsg."""
        if self._follower is not None:
            self._follower.close()
            self._follower = None

    def collect(self) -> Iterator[Sample | Event]:
        """New events, then all counters. Raises Skip where there is no log to read."""
        batch = self._follower.read() if self._follower else self._stored()
        counts = self._tally
        found = list(happenings(batch.records, counts.memory))
        if found:
            self._learn_gpus()
        found = [self._placed(happening) for happening in found]
        for happening in found:
            counts.add(happening)
        counts.lost += batch.lost
        if batch.records:
            counts.next_sequence = (batch.records[-1].sequence or 0) + 1
            tally.save(counts, self._folder, self.log)
        yield from self._events(batch, found)
        yield from self._samples()

    def _learn_gpus(self) -> None:
        indices = {
            **amd_indices(self._files, self.context.sys),
            **nvidia_indices(self._files, self.context.proc, self.context.sys),
        }
        for pci, index in indices.items():
            self._tally.gpus.setdefault(pci, index)

    def _placed(self, happening: Happening) -> Happening:
        """An error that the firmware reports of a GPU is the GPU's, not the machine's."""
        fact = happening.fact
        known = fact.attributes.get("pci") in self._tally.gpus or of_gpu(fact.attributes)
        if fact.kind != REPORT or not known:
            return happening
        return structs.replace(happening, fact=structs.replace(fact, counted="gpu"))

    def _events(self, batch: Batch, found: list[Happening]) -> Iterator[Event]:
        boot = boot_time(self._files, self.context)
        if batch.lost:
            self.log.warning("%d kernel records were overwritten before they were read", batch.lost)
            yield Event(
                time=_time(batch.records[-1], boot),
                kind="kernel.log_lost",
                message=f"{batch.lost} kernel log records were overwritten before they were read",
                attributes={"records": str(batch.lost)},
            )
        if len(found) > MAX_EVENTS:
            self.log.warning(
                "%d kernel events at once: all are counted, the last %d are listed",
                len(found),
                MAX_EVENTS,
            )
        for happening in found[-MAX_EVENTS:]:
            attributes = dict(happening.fact.attributes)
            if index := self._tally.gpus.get(attributes.get("pci", "")):
                attributes["gpu"] = index
            yield Event(
                time=_time(happening.record, boot),
                kind=happening.fact.kind,
                message=happening.text,
                severity=happening.fact.severity,
                attributes=attributes,
            )

    def _samples(self) -> Iterator[Sample]:
        counts = self._tally
        yield GPU_ERRORS(counts.counts.get("gpu", 0))
        for kind in tally.KINDS:
            yield ERRORS(counts.counts.get(kind, 0), kind)
        for pci, xids in counts.xids.items():
            for xid, number in xids.items():
                yield XIDS(number, counts.label(pci), xid)

    def _stored(self) -> Batch:
        """What is new in the log file of a captured tree."""
        for path in self._places():
            if is_device(path):
                continue
            text = self._files.text(path, limit=64 << 20)
            if text is not None:
                return self._parse(path, text)
        if self.context.live:
            what = "is no kernel log" if is_device(self._path) else "is not there"
            raise Skip(f"{self._path} {what}: {REMEDY}")
        places = " or ".join(str(self.context.dev / name) for name in FILES)
        raise Skip(f"the tree has no kernel log; it would be {places}")

    def _places(self) -> Iterator[Path]:
        """Where a tree keeps its log, the usual place first."""
        dev, proc = self.context.dev, self.context.proc
        yield from (dev / name for name in FILES)
        if self.context.live:
            return
        if not of_running_kernel(proc):
            yield proc / "kmsg"
        yield from (dev.parent / name for name in (*FILES, "dmesg.txt", "dmesg.log"))
        yield from (dev.parent / "var/log" / name for name in ("dmesg", "kern.log"))

    def _parse(self, path: Path, text: str) -> Batch:
        records = parse_log(text, _modified(path))
        if text and not any(_has_time(record) for record in records):
            self._files.complain(path, "has no line with a time: it may be no kernel log")
            if "\ufffd" in text or "\0" in text:
                raise NoData(f"{path} is not a kernel log")
        start = self._tally.next_sequence
        fresh = [r for r in records if start is None or (r.sequence or 0) >= start]
        return Batch(fresh)


def boot_time(files: Files, context: Context) -> float | None:
    """When the machine was started, in Unix seconds, or None if that is not known.

    Records carry the time since boot. On a live host the difference of the two clocks now is used,
    which knows how the clock was set since.
    """
    if context.live:
        return time.time() - time.monotonic()
    for key, words in pairs(files.text(context.proc / "stat") or ""):
        if key == "btime" and words:
            moment = counter(words[0])
            return float(moment) if moment is not None else None
    return None


def _time(record: KernelRecord, boot: float | None) -> float:
    """Unix seconds; seconds since boot if the time of the boot is not known."""
    if record.wall is not None:
        return record.wall
    return (record.monotonic or 0.0) + (boot or 0.0)


def _has_time(record: KernelRecord) -> bool:
    return record.monotonic is not None or record.wall is not None


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
