"""The host collector's mounts: which are watched, and one that does not answer."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

from ray_sentinel.kernel_files import parse_mountinfo
from ray_sentinel_plugins._files import Files
from ray_sentinel_plugins._host import mounts
from tests.support.files import write

LOG = logging.getLogger("test")

MOUNTINFO = """\
22 27 0:21 / /proc rw - proc proc rw
27 1 254:0 / / rw - ext4 /dev/vda rw
28 27 254:0 /etc/hosts /etc/hosts rw - ext4 /dev/vda rw
29 27 0:50 / /mnt/nfs rw - nfs4 server:/x rw
30 27 0:51 / /dev/shm rw - tmpfs tmpfs rw
31 27 0:52 / /run rw - tmpfs tmpfs rw
32 27 0:53 / /mnt/my\\040data rw - lustre mds:/y rw
33 27 0:54 / /snap/x ro - squashfs /dev/loop0 ro
34 27 0:55 / /mnt/old rw - xfs /dev/vdb rw
35 27 0:56 / /mnt/old rw - autofs none rw
"""


def test_watched_mounts() -> None:
    found = mounts.watched(parse_mountinfo(MOUNTINFO))
    assert found == ("/", "/dev/shm", "/mnt/my data", "/mnt/nfs")


def test_a_dead_mount_does_not_hold_up_the_others(
    tmp_path: Path, hanging: Callable[..., threading.Event]
) -> None:
    write(tmp_path / "self/mountinfo", MOUNTINFO)
    gate = hanging("/mnt/nfs")
    real = os.statvfs("/")
    asked: list[str] = []

    def ask(point: str) -> os.statvfs_result:
        asked.append(point)
        if point == "/mnt/nfs":
            gate.wait(30)
        return real

    watch = mounts.Mounts()
    for _ in range(3):
        samples = list(watch.read(Files(LOG), tmp_path, ask))
        assert {sample.labels[0][1] for sample in samples} == {"/", "/dev/shm", "/mnt/my data"}
    assert asked.count("/mnt/nfs") == 1


def test_a_captured_tree_has_no_space(tmp_path: Path) -> None:
    write(tmp_path / "self/mountinfo", MOUNTINFO)
    assert not list(mounts.Mounts().read(Files(LOG, live=False), tmp_path))
