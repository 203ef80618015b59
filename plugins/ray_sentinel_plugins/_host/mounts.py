"""Space on the watched mounts, by ``statvfs``, each under its own deadline.

A dead NFS server never answers: the thread that asked stays in D state, the other mounts are not
held up, and the dead one is not asked again before that thread has returned.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from ray_sentinel.api import Metric, Sample
from ray_sentinel.bounded import Bounded
from ray_sentinel.kernel_files import Mount, parse_mountinfo
from ray_sentinel_plugins._files import Files, clean

FREE = Metric("hw_disk_free_bytes", "gauge", "Space that users can still fill.", ("mount",))
TOTAL = Metric("hw_disk_total_bytes", "gauge", "Size of the file system.", ("mount",))
METRICS = (FREE, TOTAL)

MAX_MOUNTS = 64
"""Most mounts that are asked; a node of many containers has thousands."""
DEADLINE = 1.0
"""Seconds that one mount has to answer: a dead NFS server never does."""
MAX_HANGING = 8
"""Most threads that wait for such mounts at one time."""

# fmt: off
_NO_STORAGE = frozenset({
    "autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "cpuset", "debugfs", "devpts",
    "devtmpfs", "efivarfs", "fusectl", "fuse.lxcfs", "fuse.gvfsd-fuse", "fuse.portal", "hugetlbfs",
    "iso9660", "mqueue", "nfsd", "nsfs", "proc", "pstore", "ramfs", "rpc_pipefs", "securityfs",
    "selinuxfs", "squashfs", "sysfs", "tracefs",
})
# fmt: on
_SHARED_MEMORY = "/dev/shm"


class Mounts:
    """Remembers which mounts hang."""

    def __init__(self, wanted: tuple[str, ...] = (), seconds: float = DEADLINE) -> None:
        self._wanted = wanted
        self._bounded: Bounded[str, os.statvfs_result] = Bounded(seconds, MAX_HANGING)

    def read(
        self,
        files: Files,
        proc: Path,
        ask: Callable[[str], os.statvfs_result] = os.statvfs,
    ) -> Iterator[Sample]:
        """All samples of this subject; none on a captured tree: its mounts are not here."""
        if not files.live:
            return
        points = self._wanted or watched(parse_mountinfo(files.text(proc / "self/mountinfo") or ""))
        points = tuple(files.bounded(points, MAX_MOUNTS, "the mounts"))
        found, failed = self._bounded.run({point: partial(ask, point) for point in points})
        for point, why in failed.items():
            files.complain(point, f"its free space is unknown: {why}")
        for point, space in found.items():
            yield FREE(space.f_bavail * space.f_frsize, clean(point))
            yield TOTAL(space.f_blocks * space.f_frsize, clean(point))


def watched(mounts: list[Mount]) -> tuple[str, ...]:
    """Mount points that store something, each file system once, at its shortest path.

    A container's ``/etc/hosts`` is a file of the host's disk mounted on its own; such bind mounts
    carry the device number of a file system that is already there. Later mounts hide earlier ones
    at the same place. Of the memory file systems only /dev/shm matters to training.
    """
    top = {mount.point: mount for mount in mounts}
    shortest: dict[str, str] = {}
    for mount in sorted(top.values(), key=lambda mount: (len(mount.point), mount.point)):
        if mount.kind in _NO_STORAGE:
            continue
        if mount.kind == "tmpfs" and mount.point not in ("/", _SHARED_MEMORY):
            continue
        shortest.setdefault(mount.device, mount.point)
    return tuple(sorted(shortest.values()))
