"""Following the event files of one folder as they grow and rotate.

A writer appends; a new file of a later writer, or of the same one, takes over. The place that was
read up to is kept for each file, and only what is new is read.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.evidence.event_files.events import EventRecord, MalformedEvent, parse_event
from ray_sentinel.evidence.event_files.records import HEADER, MAX_RECORD, scan

CHUNK = 1 << 20
"""Bytes read at once."""
MARK = "tfevents"
MOST_FOLDERS, DEPTH = 200, 6
"""Most folders that are found, and levels of folders that are searched for them."""
_NAME = re.compile(
    r"tfevents\.(?P<time>\d+)(?:\.(?P<host>.+?)(?:\.(?P<pid>\d+)\.(?P<number>\d+))?)?(?:\.v2)?$"
)


class FileName(msgspec.Struct, frozen=True, order=True):
    """``events.out.tfevents.<Unix seconds>.<host>[.<pid>.<number>][.v2]``; ordered by age."""

    time: int
    number: int
    host: str
    pid: str
    name: str


def parse_name(name: str) -> FileName | None:
    """The parts of an event file's name; None for any other file.

    >>> parse_name("events.out.tfevents.1700000000.node1.77.0").host
    'node1'
    """
    if MARK not in name:
        return None
    found = _NAME.search(name)
    if found is None:
        return FileName(0, 0, "", "", name)
    created, number = found["time"][:18], (found["number"] or "0")[:9]
    return FileName(int(created), int(number), found["host"] or "", found["pid"] or "", name)


class FollowedFile:
    """One event file and how far it was read."""

    def __init__(self, path: Path, attempt: int, host: str = "") -> None:
        self.path = path
        self.attempt = attempt
        self.host = host
        self.offset = 0
        self.corrupt = 0
        """Places where records were lost."""
        self.oversize = 0
        """Records that were too long to be read."""
        self.written: float | None = None
        """When it was last written to, in Unix seconds."""
        self.caught_up = False
        self.bad_tail = False
        """Whether its end is no valid record; a valid one may still follow."""
        self._seen = (-1, -1)
        self._lost = False

    def read(self) -> list[EventRecord]:
        """The next events, from one chunk at most; none if nothing is new. Raises OSError."""
        status = os.stat(self.path)
        seen = (status.st_size, status.st_mtime_ns)
        self.written = status.st_mtime
        if status.st_size < self.offset:
            # Cut or rewritten: what was counted before stays counted.
            self.offset = 0
        elif seen == self._seen:
            self.caught_up = True
            return []
        if status.st_size <= self.offset:
            self._seen, self.caught_up = seen, True
            return []
        return self._read(seen, status.st_size)

    def _read(self, seen: tuple[int, int], size: int) -> list[EventRecord]:
        handle = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            data = os.pread(handle, CHUNK, self.offset)
            found = scan(data)
            if not found.records and found.need > len(data):
                if found.need > MAX_RECORD:
                    return self._pass_over(found.consumed + found.need, size, seen)
                if self.offset + found.consumed + found.need <= size:
                    data = os.pread(handle, found.consumed + found.need, self.offset)
                    found = scan(data)
        finally:
            os.close(handle)
        at_end = self.offset + len(data) >= size
        consumed = found.consumed
        beyond = found.bad and not at_end
        # A stretch that goes on from the last chunk was counted when it began.
        self.corrupt += max(0, found.corrupt + beyond - self._lost)
        self._lost = beyond
        if beyond:
            consumed = max(consumed + 1, len(data) - HEADER + 1)
        waits = found.need > 0 and self.offset + consumed + found.need > size
        self.bad_tail = found.bad and at_end
        self.caught_up = at_end or waits
        # A corrupt end is read again each time: a network file system may show it late.
        self._seen = seen if self.caught_up and not self.bad_tail else (-1, -1)
        self.offset += consumed
        return self._parse(found.records)

    def _pass_over(self, length: int, size: int, seen: tuple[int, int]) -> list[EventRecord]:
        if self.offset + length > size:
            self._seen, self.caught_up = seen, True
        else:
            self.offset += length
            self.oversize += 1
        return []

    def _parse(self, records: list[bytes]) -> list[EventRecord]:
        events = []
        for record in records:
            try:
                events.append(parse_event(record))
            except MalformedEvent:
                self.corrupt += 1
        return events


class FollowedFolder:
    """The event files of one folder, oldest first: one run of a training."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files: dict[str, FollowedFile] = {}
        self.newest: FileName | None = None
        self._attempts = 0
        self._writers: dict[str, tuple[int, int]] = {}
        """Process → its attempt and the number of its last file."""
        self._listed = -1
        self._corrupt_in_gone = 0

    def scan(self) -> None:
        """Find new files. Raises OSError if the folder cannot be listed."""
        changed = os.stat(self.path).st_mtime_ns
        if changed == self._listed:
            return
        names = [parse_name(name) for name in os.listdir(self.path)]
        for name in sorted(found for found in names if found is not None):
            if name.name not in self.files:
                self.files[name.name] = FollowedFile(
                    self.path / name.name, self._attempt(name), name.host
                )
                self.newest = max(name, self.newest or name)
        gone = self.files.keys() - {name.name for name in names if name is not None}
        for old in gone:
            self._corrupt_in_gone += self.files.pop(old).corrupt
        # The clock of a file system is coarse: a folder that has just changed may change unseen.
        settled = time.time_ns() - changed > 2_000_000_000
        self._listed = changed if settled else -1

    def _attempt(self, name: FileName) -> int:
        """Counts the processes that wrote, from 0, in the order in which they began.

        A process numbers its files from 0 on. In a restarted container the training may have the
        same pid as before: file numbers that begin again at 0 show that it is another process.
        """
        writer = f"{name.host} {name.pid}" if name.pid else name.name
        attempt, last = self._writers.get(writer, (-1, -1))
        if name.number <= last or attempt < 0:
            attempt, self._attempts = self._attempts, self._attempts + 1
        self._writers[writer] = (attempt, name.number)
        return attempt

    @property
    def written(self) -> float:
        """When any of the files was last written to, as of the last look; 0 before the first."""
        return max((file.written or 0.0 for file in self.files.values()), default=0.0)

    @property
    def caught_up(self) -> bool:
        """Whether all that is in the files has been read."""
        return all(file.caught_up for file in self.files.values())

    @property
    def corrupt(self) -> int:
        """Places where records were lost, in all files; a corrupt end counts."""
        return self._corrupt_in_gone + sum(
            file.corrupt + file.bad_tail for file in self.files.values()
        )


def event_folders(root: Path) -> list[Path]:
    """The folders at or below ``root`` that hold event files, in order; no links are followed."""
    found = []
    level = [root]
    for _ in range(DEPTH):
        below: list[Path] = []
        for folder in level:
            holds = False
            for entry in _entries(folder):
                if entry.is_dir(follow_symlinks=False):
                    below.append(Path(entry.path))
                holds |= MARK in entry.name
            if holds:
                found.append(folder)
        level = sorted(below)[: MOST_FOLDERS * 10]
    return sorted(found)[:MOST_FOLDERS]


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []
