"""The agent's reader of all records on the machine, whether their writers run, hang or are dead.

Records are read with ``pread``, not mapped: a file that somebody truncates would kill a reader that
maps it. Files are opened without following links, and count only if they belong to the owner of
their folder; a file that is not a record of ours is reported once and left alone.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

from ray_sentinel.progress import record
from ray_sentinel.progress.directory import SHARED_MEMORY, SUFFIX, candidates, temporary_name
from ray_sentinel.progress.discovery.environment import RECORD_DIR_VARIABLE
from ray_sentinel.progress.proc.mounts import MountTable
from ray_sentinel.progress.rank.own_process import boot_number, pid_namespace
from ray_sentinel.progress.record_view import RecordView, UnreadableRecordError, parse
from ray_sentinel.progress.requests import ANSWERS, answer_name

MAX_OPEN = 512
"""Most records open at one time; those of dead processes are closed, so this limits the living
ones."""
MOST_OF_OTHERS = 256
"""Most records of other users that are open at one time: anybody can make any number of them. In a
folder of theirs, eight times as many files are looked at, as a record has answers beside it."""
MOST_NAMES = 4 * 8 * MOST_OF_OTHERS
"""Most files in all folders of other users that are looked at in one scan: each rank of theirs may
name a folder."""
MOST_NEW = 4 * MOST_OF_OTHERS
"""Most files of other users that are opened for the first time in one scan; the others have their
turn in the next ones."""
MOST_SAID = 3
"""Most files in folders of other users that are reported; see ``ownership.MOST_SAID``."""
CLOCK_STEP = 0.1
"""Seconds by which the wall clock must move against the monotonic one to be followed."""
ROOT_LOOKS_EVERY = 5
"""Scans between two searches for other users' folders, where we are root, and for folders that are
gone."""
EMPTY_LOOKS = 60
"""Scans after which an empty folder that no rank names is no longer read: each run may have its
own."""

_PASSING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Errors of our own process, which say nothing about the file."""


class RecordReader:
    """Keeps records open, so that reading one again takes microseconds."""

    def __init__(
        self,
        folders: Iterable[Path] | None = None,
        *,
        proc: Path = Path("/proc"),
        monotonic: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        """``folders`` hold the records; by default those that writers use."""
        self._fixed = None if folders is None else tuple(folders)
        self._more: dict[Path, int] = {}
        """Folders that ranks were told to use, each with the scan in which such a rank was last
        seen."""
        self._monotonic, self._now = monotonic, now
        self._boot, self._namespace = boot_number(proc), pid_namespace(proc)
        # Files by their full names, not as paths, which cost ten times as much: there may be
        # thousands that others made, and they are compared in each scan.
        self._views: dict[str, RecordView] = {}
        self._opened = {True: 0, False: 0}
        """How many are open: of root and our own user, and of others."""
        self._foreign: set[str] = set()
        """Folders of other users, which only root reads."""
        self._only_of: dict[Path, frozenset[int]] = {}
        """Folders that only ranks of other users name, and those users: their records must lie in
        folders of their own, as we may read any."""
        self._room = MOST_NAMES
        """How many more files of other users' folders are looked at in this scan."""
        self._new = MOST_NEW
        """How many more of these files are opened for the first time in this scan."""
        self._said = 0
        self._bad: set[str] = set()
        self._put_off: set[str] = set()
        """Files that are not read for a reason of our own, which was reported."""
        self._looks = 0
        self._found: tuple[Path, ...] = ()
        self._mounts = MountTable(proc)
        self._left: set[Path] = set()
        """Folders that are not searched, which was reported."""
        self._offset = now() - monotonic()
        self.problems: list[str] = []
        """Things found that are no records of ours; the caller reads and clears this."""

    def also(self, folders: Iterable[tuple[Path, frozenset[int]]]) -> None:
        """Search these folders too, unless the folders were given: a rank was told to use them.
        With each come the users of that rank, if it is not of users whom we trust."""
        if self._fixed is not None:
            return
        for folder, users in folders:
            # One rank of ours is enough, also if it has ended.
            known = self._only_of.get(folder, users)
            self._only_of[folder] = known | users if known and users else frozenset()
            self._more[folder] = self._looks

    def folders(self) -> tuple[Path, ...]:
        """The folders that are searched now."""
        if self._looks % ROOT_LOOKS_EVERY == 0:
            self._found = tuple(candidates()) if self._fixed is None else self._fixed
            used = (item for item in self._more.items() if self._used(*item))
            self._more = dict(used)
            self._only_of = {folder: self._only_of[folder] for folder in self._more}
            if self._fixed is None and os.geteuid() == 0:
                self._found = tuple(dict.fromkeys((*self._found, *_folders_of_users())))
        self._looks += 1
        return tuple(filter(self._answers, dict.fromkeys((*self._found, *self._more))))

    def _answers(self, folder: Path) -> bool:
        """Whether the folder can be searched without hanging: any rank may name any folder."""
        why = self._mounts.why_not(folder)
        if why and folder not in self._left:
            self._left.add(folder)
            self.problems.append(
                f"{folder}: {why}: records there are not read; unset {RECORD_DIR_VARIABLE}, or let "
                "it name a folder in memory or on a local disk"
            )
        return not why

    def _used(self, folder: Path, named: int) -> bool:
        """Whether the folder exists and, if no rank names it any more, holds records of a run."""
        lately = self._looks - named <= EMPTY_LOOKS
        if self._mounts.why_not(folder):
            return lately
        return os.path.lexists(folder) and (lately or any(self._names(folder)))

    def scan(self) -> tuple[RecordView, ...]:
        """All records as they are now. Bad files are named in ``problems``, once."""
        offset = self._now() - self._monotonic()
        if abs(offset - self._offset) > CLOCK_STEP:
            # Otherwise the offset is kept, so that times in Unix seconds stay equal to the last bit
            # between two scans.
            self._offset = offset
        present: set[str] = set()
        self._room, self._new = MOST_NAMES, MOST_NEW
        for folder in self.folders():
            present.update(self._names(folder))
        for path in self._views.keys() - present:
            self.rest(self._views.pop(path))
        self._bad &= present
        self._put_off &= present
        views = (self._view(path) for path in sorted(present - self._bad))
        return tuple(view for view in views if view is not None)

    def _names(self, folder: Path) -> Iterator[str]:
        within = str(folder)
        try:
            status = os.lstat(within)
            trusted = _is_trusted(status.st_uid)
            users = self._only_of.get(folder) if folder not in self._found else None
            if users and status.st_uid not in users:
                return
            if not stat.S_ISDIR(status.st_mode) or not (trusted or os.geteuid() == 0):
                return
            if trusted:
                names = os.listdir(within)
            else:
                with os.scandir(within) as entries:
                    most = min(8 * MOST_OF_OTHERS, self._room)
                    names = [entry.name for entry in islice(entries, most)]
                self._room -= len(names)
        except OSError:
            return
        (self._foreign.discard if trusted else self._foreign.add)(within)
        for name in names:
            if name.endswith(SUFFIX) and not name.startswith("."):
                yield os.path.join(within, name)

    def _view(self, path: str) -> RecordView | None:
        view = self._views.get(path)
        try:
            if view is not None and os.lstat(path).st_ino != view.inode:
                # The process attached again: another file has the name now.
                self.rest(self._views.pop(path))
                view = None
            if view is None:
                trusted = os.path.dirname(path) not in self._foreign
                if self._opened[trusted] >= (MAX_OPEN if trusted else MOST_OF_OTHERS):
                    return None
                if not trusted:
                    self._new -= 1
                    if self._new < 0:
                        return None
                view = self._open_record(path)
            if view.handle >= 0:
                self._read(view)
        except (UnreadableRecordError, OSError) as error:
            if view is not None:
                self.rest(view)
                self._views.pop(path, None)
            self._refuse(path, error)
            return None
        return view

    def _refuse(self, path: str, error: UnreadableRecordError | OSError) -> None:
        if isinstance(error, FileNotFoundError):
            return
        why = error.strerror if isinstance(error, OSError) else str(error)
        if not isinstance(error, OSError) or error.errno not in _PASSING:
            self._bad.add(path)
            if os.path.dirname(path) in self._foreign:
                self._said += 1
                if self._said > MOST_SAID:
                    return
            self.problems.append(f"{path}: {why}; it is left alone")
        elif path not in self._put_off:
            self._put_off.add(path)
            self.problems.append(f"{path}: {why}; it is looked at again")

    def _open_record(self, path: str) -> RecordView:
        # O_NONBLOCK: a FIFO of that name must not hold us.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        handle = os.open(path, flags)
        try:
            view = self._check(path, handle)
        except (UnreadableRecordError, OSError):
            os.close(handle)
            raise
        self._views[path] = view
        self._opened[_is_trusted(view.owner)] += 1
        return view

    def _check(self, path: str, handle: int) -> RecordView:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableRecordError("no regular file")
        if (
            status.st_uid != os.lstat(os.path.dirname(path)).st_uid
            and status.st_uid != os.geteuid()
        ):
            raise UnreadableRecordError(f"belongs to user {status.st_uid}, not to its folder's")
        header = parse(os.pread(handle, record.SIZE, 0))
        return RecordView(
            path=Path(path),
            handle=handle,
            header=header,
            owner=status.st_uid,
            inode=status.st_ino,
        )

    def _read(self, view: RecordView) -> None:
        first = os.pread(view.handle, record.SIZE, 0)
        second = os.pread(view.handle, record.SIZE, 0)
        if len(first) < record.SIZE or len(second) < record.SIZE:
            raise UnreadableRecordError(f"shorter than {record.SIZE} bytes")
        view.update(first, second, self._offset)
        # If either is hidden, this cannot be determined, and a living rank's record must not be
        # taken for a leftover of an earlier boot.
        view.this_boot = view.header.boot == self._boot or 0 in (view.header.boot, self._boot)
        view.this_namespace = view.header.pid_namespace == self._namespace

    def read_again(self, view: RecordView) -> None:
        """Read what was written since the last scan, if the record is still open."""
        if view.handle >= 0:
            with contextlib.suppress(UnreadableRecordError, OSError):  # what was read last stays
                self._read(view)

    def rest(self, view: RecordView) -> None:
        """Close a record that will not change any more; its last content is kept."""
        if view.handle >= 0:
            os.close(view.handle)
            view.handle = -1
            self._opened[_is_trusted(view.owner)] -= 1

    def remove(self, view: RecordView) -> None:
        """Delete a dead process's record and answers. Missing files are not an error.

        Raises OSError if they may not be deleted.
        """
        self.rest(view)
        for answer in ANSWERS:
            name = answer_name(view.path.name, answer)
            view.path.with_name(name).unlink(missing_ok=True)
            # Files in shared memory take memory: this is half a flight recorder of a rank that was
            # killed meanwhile.
            view.path.with_name(temporary_name(name, view.header.pid)).unlink(missing_ok=True)
        view.path.unlink(missing_ok=True)
        self._views.pop(str(view.path), None)

    def close(self) -> None:
        """Close all files."""
        for view in self._views.values():
            self.rest(view)
        self._views.clear()


def _is_trusted(uid: int) -> bool:
    return uid in (0, os.geteuid())


def _folders_of_users() -> list[Path]:
    """The folder of each user's writers in shared memory: each has one, named by its number."""
    found = []
    for path in SHARED_MEMORY.glob("ray_sentinel-*"):
        with contextlib.suppress(OSError):
            if path.name == f"ray_sentinel-{os.lstat(path).st_uid}":
                found.append(path)
    return sorted(found)
