"""Where the event files are, and whether this node is the one that reads them."""

from __future__ import annotations

import fcntl
import hashlib
import os
import socket
import tempfile
from collections.abc import Iterable
from pathlib import Path

from ray_sentinel.trusted_path import claim_private_folder
from ray_sentinel_plugins._event_files.follow import MARK, FileName


def open_folders(proc: Path, pids: Iterable[int]) -> set[Path]:
    """The folders of the event files that these processes have open."""
    found = set()
    for pid in pids:
        folder = proc / str(pid) / "fd"
        try:
            numbers = os.listdir(folder)
        except OSError:
            continue  # it has ended, or it is another user's
        for number in numbers:
            try:
                target = os.readlink(folder / number)
            except OSError:
                continue  # closed meanwhile
            if MARK in target and target.startswith("/") and not target.endswith(" (deleted)"):
                found.add(Path(target).parent)
    return found


def run_labels(folders: Iterable[Path], root: Path | None) -> dict[Path, str]:
    """A run's name is its folder below the root; without a root, below what all have in common.

    >>> run_labels([Path("/tb/a"), Path("/tb/b")], None)[Path("/tb/b")]
    'b'
    """
    folders = list(folders)
    if not folders:
        return {}
    base = root or Path(os.path.commonpath(folders))
    return {folder: os.path.relpath(folder, base) for folder in folders}


class Readership:
    """Chooses, among all agents that see a shared folder, the one that reads a run.

    It is the one of the host that the newest file's name gives; of several agents on that machine,
    the one that takes the lock in the machine's temporary folder. Where the name gives no host, it
    is the one that watches rank 0.
    """

    def __init__(self) -> None:
        self._names = {socket.gethostname(), socket.gethostname().split(".")[0]}
        self._locks: dict[Path, int] = {}

    def ours(self, folder: Path, newest: FileName | None, *, has_rank_0: bool) -> bool:
        """Whether we read this run now. It may change when another host takes over."""
        host = newest.host if newest else ""
        here = host in self._names if host else has_rank_0
        if not here:
            self.leave(folder)
            return False
        return self._locked(folder)

    def _locked(self, folder: Path) -> bool:
        if folder in self._locks:
            return True
        root = Path(tempfile.gettempdir()) / f"ray_sentinel-{os.getuid()}"
        digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:24]
        try:
            if claim_private_folder(root):
                return True
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            handle = os.open(root / f"tensorboard-{digest}.lock", flags, 0o600)
        except OSError:
            return True  # without the lock it may be read twice; that is better than not at all
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            return False
        self._locks[folder] = handle
        return True

    def leave(self, folder: Path) -> None:
        """Leave a run to others."""
        handle = self._locks.pop(folder, None)
        if handle is not None:
            os.close(handle)

    def close(self) -> None:
        """Leave all runs to others."""
        for folder in list(self._locks):
            self.leave(folder)
