"""A file system that hangs and comes back, as a dead NFS server's does: FUSE, its server stopped.

Every call to it, on files that are open too, waits in the kernel until the server goes on. As a
program (``python hanging_disk.py SOURCE MOUNT``) this is the server: it shows SOURCE at MOUNT.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.parts import UNPACKED, lacking, require
from tests.support.waiting import eventually

MNT_FORCE, MNT_DETACH = 1, 2
_libc = ctypes.CDLL(None, use_errno=True)


class HangingDisk:
    """``path`` is where it is mounted, ``behind`` the folder that holds its files."""

    def __init__(
        self, path: Path, behind: Path, server: subprocess.Popen[bytes], waiting: Path
    ) -> None:
        """``waiting`` is the kernel's file with the number of calls that have no answer yet."""
        self.path, self.behind = path, behind
        self._server, self._waiting = server, waiting

    def hang(self) -> None:
        """From now on nothing returns, and whoever waits can be killed.

        Whoever waits for a call that the server has begun cannot be: the kernel keeps the process
        until there is an answer, and to everybody else it is alive. So the server stops between two
        calls.
        """
        stat = Path(f"/proc/{self._server.pid}/stat")

        def between_calls() -> bool:
            self._server.send_signal(signal.SIGSTOP)
            eventually(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "it stops")
            if int(self._waiting.read_text()) == 0:
                return True
            self.answer()
            return False

        eventually(between_calls, "nobody waits for the disk", every=0.01)

    def answer(self) -> None:
        """All that waits is done, in its order."""
        self._server.send_signal(signal.SIGCONT)


@contextmanager
def hanging_disk(folder: Path) -> Iterator[HangingDisk]:
    """One at ``folder/disk``. Skips where FUSE is not to be had; at the end whoever still waits
    for it gets an error."""
    mount, behind = folder / "disk", folder / "behind"
    connections = folder / "connections"
    for made in (mount, behind, connections):
        made.mkdir()
    server = subprocess.Popen(
        [sys.executable, __file__, str(behind), str(mount)],
        env={
            **os.environ,
            "FUSE_LIBRARY_PATH": _library(),
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
    )
    try:
        if _libc.mount(b"none", str(connections).encode(), b"fusectl", 0, None):
            lacking("the kernel's list of FUSE connections cannot be mounted: run as root")
        eventually(
            lambda: os.path.ismount(mount) or server.poll() is not None, "it is mounted", 20.0
        )
        if server.poll() is not None:
            lacking("a FUSE file system cannot be mounted here: run as root, with /dev/fuse")
        minor = os.minor(os.stat(mount).st_dev)
        yield HangingDisk(mount, behind, server, connections / str(minor) / "waiting")
    finally:
        server.send_signal(signal.SIGCONT)
        for flags in (MNT_FORCE, MNT_DETACH):
            _libc.umount2(str(mount).encode(), flags)
        _libc.umount2(str(connections).encode(), MNT_DETACH)
        server.kill()
        server.wait()


def _library() -> str:
    if importlib.util.find_spec("mfusepy") is None:
        lacking("mfusepy is missing: pip install mfusepy")
    if os.geteuid() != 0 or not os.access("/dev/fuse", os.R_OK | os.W_OK):
        lacking("needs /dev/fuse, and root: run the tests as root")
    require("fusermount3")
    found = sorted(UNPACKED.glob("lib/*-linux-gnu*/libfuse3.so.3"))
    return str(found[0]) if found else "libfuse3.so.3"


class _Mirror:
    """The operations of FUSE, on the files of a folder."""

    use_ns = True

    def __init__(self, source: str) -> None:
        self._source = source

    def _real(self, path: str) -> str:
        return self._source + path

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        found = os.lstat(self._real(path))
        names = ("mode", "nlink", "size", "gid", "uid", "ino")
        times = {f"st_{key}time": getattr(found, f"st_{key}time_ns") for key in "acm"}
        return {**{f"st_{key}": getattr(found, f"st_{key}") for key in names}, **times}

    def readdir(self, path: str, fh: int) -> list[str]:
        return [".", "..", *os.listdir(self._real(path))]

    def open(self, path: str, flags: int) -> int:
        return os.open(self._real(path), flags)

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        return os.open(self._real(path), os.O_RDWR | os.O_CREAT, mode)

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        return os.pread(fh, size, offset)

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        # The kernel has turned O_APPEND into an offset.
        with open(self._real(path), "r+b") as file:
            return os.pwrite(file.fileno(), data, offset)

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        os.truncate(self._real(path), length)
        return 0

    def release(self, path: str, fh: int) -> int:
        os.close(fh)
        return 0

    def mkdir(self, path: str, mode: int) -> int:
        os.mkdir(self._real(path), mode)
        return 0

    def rmdir(self, path: str) -> int:
        os.rmdir(self._real(path))
        return 0

    def unlink(self, path: str) -> int:
        os.unlink(self._real(path))
        return 0

    def rename(self, old: str, new: str) -> int:
        os.rename(self._real(old), self._real(new))
        return 0

    def link(self, target: str, source_: str) -> int:
        os.link(self._real(source_), self._real(target))
        return 0

    def chmod(self, path: str, mode: int) -> int:
        os.chmod(self._real(path), mode)
        return 0

    def chown(self, path: str, uid: int, gid: int) -> int:
        os.chown(self._real(path), uid, gid)
        return 0

    def utimens(self, path: str, times: Any = None) -> int:
        os.utime(self._real(path), ns=times)
        return 0


def _serve(source: str, mount: str) -> None:
    import mfusepy

    kind = type("Mirror", (_Mirror, mfusepy.Operations), {})
    mfusepy.FUSE(
        kind(source),
        mount,
        foreground=True,
        nothreads=True,
        allow_other=True,
        # Nothing is known from before: each look asks the server.
        attr_timeout=0,
        entry_timeout=0,
    )


if __name__ == "__main__":
    _serve(*sys.argv[1:])
