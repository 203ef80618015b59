"""Which deployments keep files in a folder, and which of them are over for certain.

Several deployments may share a log folder, on one host or over a network. Each has a lease there:
``.ray_sentinel/<deployment>.lease``, which its coordinator locks, rewrites every ``BEAT_SECONDS``,
and marks as ended when it ends. What a deployment left may be removed by another only if it is
over, which is proved in one of these ways:

- its lease says that it has ended;
- the folder is on a local file system, where the kernel knows all who hold a lock: nobody holds the
  lease's, and it was not written for ``LOCAL_QUIET`` seconds, in which Ray would have restarted the
  coordinator;
- on a shared file system, where locks can be lost or not work at all: nobody is seen to hold the
  lock, and the lease did not change while we watched it, for ``WATCHED_SHORT`` seconds of our own
  monotonic clock if the file server's clock says that it is a day old, else ``WATCHED_LONG``.
  Without working locks, both the day and ``WATCHED_LONG``.

Whatever else there is, a lease that is missing, that cannot be read, or that belongs to another
user, leaves the question open, and then nothing is removed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import stat
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.clock import Clock
from ray_sentinel.private_files import FILE_MODE, keep_private
from ray_sentinel.progress.proc.mounts import kind_of

log = logging.getLogger(__name__)

FOLDER = ".ray_sentinel"
BEAT_SECONDS = 20.0
LOCAL_QUIET = 300.0
WATCHED_ONCE, WATCHED_SHORT, WATCHED_LONG = 60.0, 300.0, 3600.0
OLD_SECONDS = 86_400.0
DEPLOYMENT = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{6}", re.ASCII)
"""Names of deployments, as ``deploy.new_deployment`` makes them."""
LOCAL_TYPES = {"btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"}
_LEASE = "ray_sentinel"
_MOST_BYTES = 4096
# struct flock: l_type, l_whence, l_start, l_len, l_pid (0 for locks of an open file description).
_LOCK = struct.pack("hhqqixxxx", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
_SET_LOCK = getattr(fcntl, "F_OFD_SETLK", 37)
_HELD = {errno.EAGAIN, errno.EACCES}


class LeaseText(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a lease."""

    lease: str = _LEASE
    deployment: str
    pid: int = 0
    beat: int = 0
    ended: bool = False


class Lease:
    """Our own lease below ``root``. Any thread may call; nothing here raises OSError."""

    def __init__(self, root: Path, deployment: str) -> None:
        self.folder = root / FOLDER
        self.deployment = deployment
        self._path = self.folder / f"{deployment}.lease"
        self._file = -1
        self._beat = 0
        self._ended = False
        self._problem = ""
        self._lock = threading.Lock()

    def renew(self) -> None:
        """Renew the lease."""
        with self._lock:
            if not self._ended:
                self._renew()

    def end(self) -> None:
        """Mark this deployment as over, and release the lock."""
        with self._lock:
            self._ended = True
            self._renew()
            self._release()

    def status(self) -> os.stat_result | None:
        """The file status of the lease when it was last written: its owner is this user, its time
        that of the file system."""
        with self._lock:
            try:
                return os.fstat(self._file) if self._file >= 0 else None
            except OSError:
                return None

    def _renew(self) -> None:
        self._beat += 1
        text = LeaseText(
            deployment=self.deployment, pid=os.getpid(), beat=self._beat, ended=self._ended
        )
        data = msgspec.json.encode(text) + b"\n"
        try:
            self._acquire()
            os.pwrite(self._file, data, 0)
            os.ftruncate(self._file, len(data))
            self._problem = ""
        except OSError as error:
            problem = f"{self._path} cannot be written: {error.strerror}"
            if problem != self._problem:
                log.warning("%s", problem)
            self._problem = problem
            self._release()

    def _acquire(self) -> None:
        if self._file >= 0 and os.fstat(self._file).st_nlink == 0:
            self._release()  # somebody removed it
        if self._file < 0:
            keep_private(self.folder)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
            self._file = os.open(self._path, flags, FILE_MODE)
        _locked(self._file)

    def _release(self) -> None:
        if self._file >= 0:
            with contextlib.suppress(OSError):
                os.close(self._file)
            self._file = -1


class _Seen(NamedTuple):
    token: tuple[bytes, int]
    since: float
    """When it was first seen to say this, in seconds on our monotonic clock."""


class LeaseWatch:
    """Determines which other deployments of a folder are over. Called by one thread."""

    def __init__(
        self, own: Lease, clock: Clock, is_local: Callable[[Path], bool] | None = None
    ) -> None:
        self._own, self._clock = own, clock
        self._is_local = is_local or on_local_disk
        self._seen: dict[str, _Seen] = {}

    def over(self, deployment: str) -> bool:
        """Whether that deployment is certainly over; False for our own, and if unknown."""
        own = self._own.status()
        if own is None or deployment == self._own.deployment:
            return False
        if DEPLOYMENT.fullmatch(deployment) is None:
            return False
        path = self._own.folder / f"{deployment}.lease"
        try:
            file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return False
        try:
            return self._judge(deployment, file, own)
        except (OSError, ValueError, RecursionError):
            return False
        finally:
            os.close(file)

    def forget(self, deployment: str) -> None:
        """Remove the lease of a deployment that is over and of which nothing is left."""
        with contextlib.suppress(OSError):
            os.unlink(self._own.folder / f"{deployment}.lease")
        self._seen.pop(deployment, None)

    def known(self) -> list[str]:
        """The deployments that have a lease here."""
        try:
            names = os.listdir(self._own.folder)
        except OSError:
            return []
        stems = [name.removesuffix(".lease") for name in names if name.endswith(".lease")]
        return sorted(stem for stem in stems if DEPLOYMENT.fullmatch(stem))

    def _judge(self, deployment: str, file: int, own: os.stat_result) -> bool:
        info = os.fstat(file)
        if not stat.S_ISREG(info.st_mode) or info.st_uid != own.st_uid:
            return False
        data = os.pread(file, _MOST_BYTES, 0)
        said = msgspec.json.decode(data, type=LeaseText)
        if (said.lease, said.deployment) != (_LEASE, deployment):
            return False
        token, now = (data, info.st_mtime_ns), self._clock.monotonic()
        seen = self._seen.get(deployment)
        if seen is None or seen.token != token:
            self._seen[deployment] = seen = _Seen(token, now)
        free = _locked(file)
        if free is False:
            return False
        return said.ended or self._quiet(free, own.st_mtime - info.st_mtime, now - seen.since)

    def _quiet(self, free: bool | None, age: float, watched: float) -> bool:
        """``age`` by the file system's clock, ``watched`` by ours, in seconds."""
        if free is None:
            return age >= OLD_SECONDS and watched >= WATCHED_LONG
        if self._is_local(self._own.folder):
            return age >= LOCAL_QUIET and watched >= WATCHED_ONCE
        return watched >= (WATCHED_SHORT if age >= OLD_SECONDS else WATCHED_LONG)


def _locked(file: int) -> bool | None:
    """Lock an open file: False where another has it locked, None where locks do not work.

    A lock of the open file description (``F_OFD_SETLK``): it goes with its last descriptor, and
    meets the byte-range locks that a file server holds for its clients.
    """
    try:
        fcntl.fcntl(file, _SET_LOCK, _LOCK)
    except OSError as error:
        return False if error.errno in _HELD else None
    return True


def on_local_disk(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> bool:
    """Whether only this machine's kernel writes there; False if that is unknown."""
    try:
        table = mounts.read_text("utf-8", "surrogateescape")
    except OSError:
        return False
    return kind_of(os.path.realpath(path), table) in LOCAL_TYPES
