"""Checkpoint folders can be written, have room and files left, and are the same everywhere."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterable, Iterator

import msgspec

from ray_sentinel.doctor.check import (
    Check,
    CheckInput,
    CheckResult,
    Here,
    failure,
    ok,
    skipped,
    warning,
)
from ray_sentinel.doctor.plan import RunPlan
from ray_sentinel.model.thresholds import DISK_FULL, DISK_FULL_BYTES, FILES_LOW, STORAGE_SLOW

TEST_BYTES = 4 << 20
"""Bytes that are written to each folder, and removed; the table's limit for slow storage is for as
many."""


class FolderReading(msgspec.Struct, frozen=True, kw_only=True):
    """One folder as seen from one node."""

    path: str
    problem: str = ""
    remedy: str = ""
    free_bytes: int | None = None
    total_bytes: int | None = None
    free_files: int | None = None
    """Free inodes; None if the file system does not count them."""
    seconds: float | None = None
    """Seconds that writing ``TEST_BYTES`` took; None if it was not tried."""


class DiskFacts(msgspec.Struct, frozen=True):
    """All folders."""

    places: tuple[FolderReading, ...]


class DiskCheck(Check[DiskFacts]):
    """Writes a small file of its own, and removes it again."""

    name = "disk"
    about = "checkpoints can be written"
    facts = DiskFacts

    def look(self, plan: RunPlan, here: Here) -> DiskFacts | None:
        """Try each folder that is not in an object store."""
        folders = [path for path in plan.checkpoints if "://" not in path]
        return (
            DiskFacts(tuple(_try(os.path.expanduser(path)) for path in folders))
            if folders
            else None
        )

    def judge(self, case: CheckInput[DiskFacts]) -> Iterable[CheckResult]:
        """Each place on each node."""
        if not case.seen:
            yield skipped("no checkpoint folder is given (--checkpoint-dir)")
            return
        found = [
            result
            for host, facts in case.seen.items()
            for place in facts.places
            for result in _of_place(host, place, case.plan.need_bytes)
        ]
        least = min(
            (p.free_bytes or 0 for f in case.seen.values() for p in f.places if not p.problem),
            default=0,
        )
        yield from found or [ok(f"written and removed; at least {_gib(least)} free")]


def _of_place(host: str, place: FolderReading, need: int) -> Iterator[CheckResult]:
    if place.problem:
        yield failure(f"{place.path}: {place.problem}", place.remedy, host)
        return
    if place.free_bytes is not None and place.free_bytes < need:
        yield failure(
            f"{place.path} has {_gib(place.free_bytes)} free, and {_gib(need)} are needed",
            "remove old checkpoints, or say with --need-gib what one needs",
            host,
        )
    elif _nearly_full(place):
        yield warning(
            f"{place.path} is nearly full: {_gib(place.free_bytes or 0)} are free",
            "remove old checkpoints, or say with --need-gib what one needs",
            host,
        )
    if place.free_files is not None and FILES_LOW.crossed(place.free_files):
        yield failure(
            f"{place.path} has room for {place.free_files} more files only",
            "remove small files there (`df -i` counts them)",
            host,
        )
    if place.seconds is not None and STORAGE_SLOW.crossed(place.seconds):
        yield warning(
            f"{place.path} took {place.seconds:.1f} s for {TEST_BYTES >> 20} MiB",
            "is it the storage that you mean? `df` and `mount` tell",
            host,
        )


def _nearly_full(place: FolderReading) -> bool:
    """By the same limits as the rule host.disk_full and the alert DiskFull."""
    free, total = place.free_bytes, place.total_bytes
    if free is None or not total:
        return False
    return DISK_FULL.crossed(free / total) and DISK_FULL_BYTES.crossed(free)


def _try(path: str) -> FolderReading:
    if not os.path.isdir(path):
        what = "is no folder" if os.path.exists(path) else "is not there"
        return FolderReading(
            path=path, problem=what, remedy=f"mkdir -p {shlex.quote(path)}, or mount it"
        )
    name = os.path.join(path, f".ray_sentinel-write-test-{os.getpid()}-{time.monotonic_ns()}")
    begun = time.monotonic()
    try:
        _write(name)
    except OSError as error:
        space = os.statvfs(path)
        remedy = (
            "make room: remove old checkpoints"
            if space.f_bavail * space.f_frsize < TEST_BYTES
            else f"ls -ld {shlex.quote(path)}: the user of the run must be allowed to write there"
        )
        return FolderReading(
            path=path, problem=f"cannot be written: {error.strerror}", remedy=remedy
        )
    seconds = time.monotonic() - begun
    space = os.statvfs(path)
    return FolderReading(
        path=path,
        free_bytes=space.f_bavail * space.f_frsize,
        total_bytes=space.f_blocks * space.f_frsize,
        free_files=space.f_favail if space.f_files else None,
        seconds=seconds,
    )


def _write(name: str) -> None:
    handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        data = memoryview(os.urandom(TEST_BYTES))
        while data:
            data = data[os.write(handle, data) :]
        os.fsync(handle)
    finally:
        os.close(handle)
        os.unlink(name)


def _gib(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB"
