"""Room for new files: the oldest of ours go where ``storage.max_bytes`` is exceeded.

Only what is known to be ours is counted, and only that is removed: an entry must have the exact
name of one of our formats, say which deployment made it, and belong to our user; that deployment is
our own, or over for certain (``lease``).

=================  ===========================================  ====================================
folder             entry                                        says who made it
=================  ===========================================  ====================================
bundles            ``<utc>-<kind>-<number>[-<n>]/``             its file ``.deployment``
bundles            ``.<bundle>.<deployment>.<pid>.part``, or    its name
                   ``.gone``: begun, half removed
events/            ``<deployment>/`` with segments              its name
history/           ``series-<utc>[-<n>].db`` and what SQLite    the lock beside it, which must be
                   has beside it, ``.damaged`` too              free
=================  ===========================================  ====================================

A bundle must also hold an ``incident.json`` that is one. It is renamed before it is removed, so
that one that is half removed is known for what it is. No symbolic link is ever followed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.actors.bundles.bundle import made_by, temporary_name
from ray_sentinel.actors.coordinator.event_log.log import is_log_file
from ray_sentinel.actors.lease import DEPLOYMENT, Lease, LeaseWatch
from ray_sentinel.clock import Clock
from ray_sentinel.private_files import read_private
from ray_sentinel.store.history.file import HISTORY_NAME, owner_of, remove_history

_BUNDLE = r"\d{8}T\d{6}Z-[a-z]+(?:-[a-z]+)*-\d{4,9}(?:-\d{1,3})?"
BUNDLE_NAME = re.compile(_BUNDLE, re.ASCII)
_TEMPORARY = re.compile(
    rf"\.(?P<bundle>{_BUNDLE})\.(?P<deployment>{DEPLOYMENT.pattern})\.(?P<pid>\d+)"
    r"\.(?P<what>part|gone)",
    re.ASCII,
)
_MOST_JSON = 64 << 20


class Prunable(NamedTuple):
    """Something of ours that can be removed as a whole."""

    path: Path
    deployment: str
    """The deployment that is said to have made it; empty where nothing says."""
    owner: int
    """The id of the user that owns it."""
    bytes: int
    modified: float
    remove: Callable[[], bool]
    """Removes it, and returns whether it is gone. Never raises."""
    is_ours: Callable[[], bool] = lambda: True
    """A further check that it is ours, apart because it takes longer."""


class Pruner:
    """Makes room in the folders of one deployment. Called by one thread.

    ``roots`` are its folders of bundles, of events and of history; None if there is none.
    """

    def __init__(
        self,
        deployment: str,
        max_bytes: int,
        clock: Clock,
        *,
        bundles: Path | None,
        events: Path | None,
        history: Path | None,
    ) -> None:
        self._deployment = deployment
        self.max_bytes = max_bytes
        self._readers = (
            (bundles, _bundles_in),
            (events, _logs_in),
            (history, _histories_in),
        )
        self._leases = {
            root: Lease(root, deployment) for root, _ in self._readers if root is not None
        }
        self._watches = {root: LeaseWatch(lease, clock) for root, lease in self._leases.items()}
        self.kept_bytes = 0
        """Bytes of what looks like ours, but belongs to a deployment that is not certainly over."""
        self._exceeded = False

    @property
    def notes(self) -> tuple[str, ...]:
        """Problems for people."""
        if not self._exceeded or not self.kept_bytes:
            return ()
        return (
            f"{self.kept_bytes / 1e6:.0f} MB in the log folder are of other deployments, or of "
            "earlier versions, of which it is not certain that they are over: they do not count "
            "towards storage.max_bytes and are kept; remove by hand what nobody needs",
        )

    def renew(self) -> None:
        """Renew the lease of this deployment, every ``lease.BEAT_SECONDS``."""
        for lease in self._leases.values():
            lease.renew()

    def close(self) -> None:
        """End the lease of this deployment: later ones may remove what it leaves."""
        for lease in self._leases.values():
            lease.end()

    def prune(self, keep: Collection[Path]) -> list[Path]:
        """Remove our oldest entries until ``max_bytes`` are not exceeded. Returns what was removed.

        Entries in ``keep`` count, but are never removed: open incidents, the log that is being
        written.
        """
        self.renew()
        ours: list[Prunable] = []
        self.kept_bytes = 0
        for root, read in self._readers:
            if root is not None:
                ours += self._ours_in(root, read)
        total = sum(entry.bytes for entry in ours)
        self._exceeded = total + self.kept_bytes > self.max_bytes
        if total <= self.max_bytes:
            return []
        ours = [entry for entry in ours if entry.path in keep or entry.is_ours()]
        total = sum(entry.bytes for entry in ours)
        removed = []
        for entry in sorted(ours, key=lambda entry: entry.modified):
            if total <= self.max_bytes:
                break
            if entry.path not in keep and entry.remove():
                total -= entry.bytes
                removed.append(entry.path)
        return removed

    def _ours_in(self, root: Path, read: Callable[[Path], Iterator[Prunable]]) -> list[Prunable]:
        watch, status = self._watches[root], self._leases[root].status()
        if status is None:
            return []  # whose files these are is unknown
        over = {name: watch.over(name) for name in watch.known()}
        found, left = [], set()
        for entry in read(root):
            left.add(entry.deployment)
            if entry.owner != status.st_uid:
                continue
            if entry.deployment == self._deployment or over.get(entry.deployment):
                found.append(entry)
            else:
                self.kept_bytes += entry.bytes
        for name in (name for name, is_over in over.items() if is_over and name not in left):
            watch.forget(name)
        return found


def _bundles_in(root: Path) -> Iterator[Prunable]:
    for path, info in _entries(root):
        if not stat.S_ISDIR(info.st_mode):
            continue
        if temporary := _TEMPORARY.fullmatch(path.name):
            if temporary["what"] == "part" and int(temporary["pid"]) == os.getpid():
                continue  # perhaps being written at this moment
            yield Prunable(
                path, temporary["deployment"], info.st_uid, size_of(path), info.st_mtime,
                partial(_remove, path),
            )  # fmt: skip
        elif BUNDLE_NAME.fullmatch(path.name):
            by = made_by(path)
            yield Prunable(
                path, by, info.st_uid, size_of(path), info.st_mtime,
                partial(_retire, path, by), partial(_is_incident, path / "incident.json"),
            )  # fmt: skip


def _logs_in(root: Path) -> Iterator[Prunable]:
    for path, info in _entries(root):
        if stat.S_ISDIR(info.st_mode) and DEPLOYMENT.fullmatch(path.name):
            yield Prunable(
                path, path.name, info.st_uid, size_of(path), info.st_mtime,
                partial(_remove_log, path),
            )  # fmt: skip


def _histories_in(root: Path) -> Iterator[Prunable]:
    parts: dict[str, list[os.stat_result]] = {}
    for path, info in _entries(root):
        if stat.S_ISREG(info.st_mode) and (match := HISTORY_NAME.fullmatch(path.name)):
            parts.setdefault(match["file"], []).append(info)
    for name, infos in parts.items():
        size, modified = sum(i.st_size for i in infos), max(i.st_mtime for i in infos)
        path = root / name
        yield Prunable(
            path, owner_of(path), infos[0].st_uid, size, modified,
            partial(remove_history, path),
        )  # fmt: skip


def _entries(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        with contextlib.suppress(OSError):
            yield folder / name, os.lstat(folder / name)


class IncidentHead(msgspec.Struct, frozen=True):
    """The fields that ``incident.json`` has in every version."""

    id: str
    rule: str
    state: str
    suspected_at: float


def _is_incident(path: Path) -> bool:
    try:
        msgspec.json.decode(read_private(path, _MOST_JSON), type=IncidentHead)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _retire(bundle: Path, deployment: str) -> bool:
    """Remove a bundle, renamed first, so that a half removed one is recognised as such."""
    gone = bundle.with_name(temporary_name(bundle.name, deployment, "gone"))
    _remove(gone)
    try:
        os.rename(bundle, gone)
    except OSError:
        return False
    return _remove(gone)


def _remove(folder: Path) -> bool:
    # It goes by descriptors and follows no link, not even one that appears meanwhile.
    shutil.rmtree(folder, ignore_errors=True)
    return not os.path.lexists(folder)


def _remove_log(folder: Path) -> bool:
    """A deployment's segments; and its folder if nothing else is in it."""
    gone = True
    for path, info in _entries(folder):
        if stat.S_ISREG(info.st_mode) and is_log_file(path.name):
            try:
                path.unlink()
            except OSError:
                gone = False
    with contextlib.suppress(OSError):
        folder.rmdir()
    return gone


def size_of(path: Path) -> int:
    """Bytes of all files below a folder. Links, and what vanishes meanwhile, do not count."""
    total = 0
    for below, info in _entries(path):
        if stat.S_ISDIR(info.st_mode):
            total += size_of(below)
        elif stat.S_ISREG(info.st_mode):
            total += info.st_size
    return total
