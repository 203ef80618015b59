"""Which folders are on a network file system, whose calls may hang.

The kernel's own table shows it (``/proc/self/mountinfo``, see ``man 5 proc``), without a call to
the file system. Only links in the path need such calls, which are made under a deadline.
"""

from __future__ import annotations

import os
from functools import lru_cache, partial
from pathlib import Path

from ray_sentinel.bounded import Bounded
from ray_sentinel.kernel_files import Mount, parse_mountinfo

REMOTE = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "ceph", "afs", "ncpfs"}
    | {"glusterfs", "orangefs", "pvfs2", "wekafs", "coda", "ocfs2", "gfs2", "panfs", "fuse"}
)
"""Types of remote file systems, in addition to ``fuse.*``."""
LOCAL_FUSE = frozenset({"fuse.fuse-overlayfs", "fuse.lxcfs"})
"""Local file systems among ``fuse.*``: a container without root has such a one as its root."""
PATIENCE = 0.5
"""Seconds that following the links of a path may take."""
MOST_KNOWN = 1000
"""Most folders whose answers are kept: each run may have its own."""


class MountTable:
    """Looks folders up; answers are cached, so each folder is looked up once."""

    def __init__(self, proc: Path = Path("/proc"), *, patience: float = PATIENCE) -> None:
        self._table = proc / "self/mountinfo"
        self._known: dict[Path, str] = {}
        self._following: Bounded[str, str] = Bounded(patience, most=1)

    def why_not(self, folder: Path) -> str:
        """Why code that must not block should not access a folder; empty if it may."""
        if folder not in self._known:
            found, _ = self._following.run({"path": partial(os.path.realpath, folder)})
            if "path" not in found:
                return "does not answer"  # it is looked up again
            kind = kind_of(found["path"], self._read())
            remote = kind in REMOTE or (kind.startswith("fuse.") and kind not in LOCAL_FUSE)
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[folder] = f"is on {kind}, which may hang" if remote else ""
        return self._known[folder]

    def _read(self) -> str:
        try:
            return self._table.read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            return ""


def kind_of(path: str, mountinfo: str) -> str:
    """The type of the file system that a path without links is on; empty if the table does not show
    it.

    >>> root = "1 0 8:1 / / rw - ext4 /dev/sda rw\\n"
    >>> table = root + "2 1 0:5 / /a\\\\040b rw shared:1 - nfs4 s:/ rw\\n"
    >>> kind_of("/a b/c", table), kind_of("/a", table), kind_of("/a bc", table)
    ('nfs4', 'ext4', 'ext4')
    """
    best, kind = "", ""
    for mount in _mounts(mountinfo):
        inside = path == mount.point or path.startswith(mount.point.rstrip("/") + "/")
        # If two are mounted at one place, the later one hides the earlier.
        if inside and len(mount.point) >= len(best):
            best, kind = mount.point, mount.kind
    return kind


@lru_cache(maxsize=2)
def _mounts(mountinfo: str) -> tuple[Mount, ...]:
    # The table seldom changes, and each of a thousand ranks may name a folder.
    return tuple(parse_mountinfo(mountinfo))
