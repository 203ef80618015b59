"""Records on disk of the processes that were started, so that a runner that follows a killed one
ends what that one left, and counts what cannot be ended (D state) instead of adding to it.

One small file for each process in a folder on a local disk. Its start time and the machine's boot
id distinguish a process from a later one with the same number.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

import msgspec

from ray_sentinel import signals
from ray_sentinel.bounded import Bounded
from ray_sentinel.collect.descent import below, kill_all
from ray_sentinel.kernel_files import boot_id
from ray_sentinel.progress.proc.proc_stat import Key, Stat, all_stats, read_stat
from ray_sentinel.progress.proc.process_memory import read_file
from ray_sentinel.whole_file import write_whole

log = logging.getLogger(__name__)

FAMILY_VARIABLE = "RAY_SENTINEL_FAMILY"
"""Environment variable whose value differs for each process that the runner starts. Children
inherit it, so a daemon that left session and parent behind is still recognised."""

PATIENCE = 0.5
"""Seconds that reading the environments of orphans, in parallel, may take."""
MOST_HANGING = 16
"""Most readers that may hang at one time; beyond that, no other process is read."""
SETTLED = 5.0
"""Seconds after its start in which a process may still change its environment by ``exec``."""
_MOST_KNOWN = 4096


class SpawnedGroup(msgspec.Struct, frozen=True):
    """A process group and session, identified by the pid and the start time of its leader (clock
    ticks since boot, field 22 of ``/proc/<pid>/stat``)."""

    pid: int
    start: int
    family: str = ""
    """The value of ``FAMILY_VARIABLE`` in all of its descendants, even those in sessions of their
    own."""


class ChildRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A collector's process and the groups that it started in addition to its own."""

    name: str
    boot_id: str
    leader: SpawnedGroup
    groups: tuple[SpawnedGroup, ...] = ()


class ChildRegistry:
    """The records in ``folder``; with None, none are kept. If the disk is full, only the record is
    lost."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._boot_id = boot_id()
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            except OSError as error:
                log.warning("%s: cannot be made: %s", folder, error.strerror)

    def write(self, name: str, leader: SpawnedGroup, groups: tuple[SpawnedGroup, ...] = ()) -> None:
        """Store the record of a process, or replace it when its groups have changed."""
        if self._folder is None:
            return
        record = ChildRecord(name=name, boot_id=self._boot_id, leader=leader, groups=groups)
        path = self._folder / str(leader.pid)
        try:
            write_whole(path, msgspec.json.encode(record))
        except OSError as error:
            log.warning("%s: cannot be written: %s", path, error.strerror)

    def remove(self, leader: SpawnedGroup) -> None:
        """Delete the record of a process that has ended with all its groups."""
        if self._folder is not None:
            with contextlib.suppress(OSError):
                (self._folder / str(leader.pid)).unlink()

    def leftovers(self) -> list[ChildRecord]:
        """What an earlier runner left running; records of ended processes are removed."""
        if self._folder is None or not self._folder.is_dir():
            return []
        found = []
        for path in sorted(path for path in self._folder.iterdir() if path.name.isdecimal()):
            try:
                record = msgspec.json.decode(path.read_bytes(), type=ChildRecord)
            except (OSError, ValueError, RecursionError):
                record = None
            if record is not None and record.boot_id == self._boot_id and remaining(record):
                found.append(record)
            else:
                with contextlib.suppress(OSError):
                    path.unlink()
        return found


def group_of(pid: int, family: str = "") -> SpawnedGroup:
    """The group led by the living process ``pid``."""
    stat = read_stat(pid)
    return SpawnedGroup(pid, stat.start if stat is not None else 0, family)


def members(group: SpawnedGroup) -> list[Key]:
    """The processes of the group, by pid: its session, all descendants of its leader, and all
    processes of its family that were left behind; zombies do not count.

    A collector's process is the subreaper of what it starts: while it lives, all of that descends
    from it, including daemons, and nobody's memory has to be read.
    """
    stats = all_stats()
    leader = stats.get(group.pid)
    mine = leader is not None and leader.start == group.start
    found: set[Key] = set()
    if mine or leader is None:
        found |= {s.key for s in stats.values() if group.pid in (s.group, s.session)}
    if mine:
        found |= below(group.pid, stats)
    if group.family and (leader is None or not mine or leader.state in "ZX"):
        for orphan in _orphans(group, stats):
            found |= {orphan, *below(orphan[0], stats)}
    return sorted(key for key in found if stats[key[0]].state not in "ZX")


def _orphans(group: SpawnedGroup, stats: Mapping[int, Stat]) -> list[Key]:
    """The members of the group's family whose ancestors have all ended.

    They are children of a process above us by now. So may ranks be: their environments lie behind
    a lock that a thread which hangs in the kernel may hold, and are read aside, each once.
    """
    adopters, pid = {1, os.getpid()}, os.getpid()
    while (stat := stats.get(pid)) is not None and stat.parent not in adopters:
        adopters.add(pid := stat.parent)
    asked = [
        stat.key
        for stat in stats.values()
        # What descends from it is younger. Ray's workers are titled by what they do.
        if stat.parent in adopters
        and stat.start >= group.start
        and stat.state not in "ZX"
        and not stat.command.startswith("ray::")
    ]
    return [key for key, family in _families.of(asked).items() if family == group.family]


class _Families:
    """Families of processes, by the environment that each was started with."""

    def __init__(self) -> None:
        self.reads: Bounded[Key, bytes] = Bounded(PATIENCE, MOST_HANGING)
        self._known: dict[Key, str] = {}
        self._first: dict[Key, float] = {}
        """When a process was seen first: until it runs its program it has its parent's
        environment."""
        self._lock = threading.Lock()

    def of(self, keys: Iterable[Key]) -> dict[Key, str]:
        """The family of each, empty for none; those that cannot be read are missing."""
        with self._lock:
            now, wanted = time.monotonic(), list(keys)
            unknown = [key for key in wanted if key not in self._known]
            found, _ = self.reads.run({key: partial(_environ, key[0]) for key in unknown})
            for key, data in found.items():
                family = _family(data)
                if family or now - self._first.setdefault(key, now) > SETTLED:
                    self._known[key] = family
                    self._first.pop(key, None)
            current = {key: _family(data) for key, data in found.items()}
            for table in (self._known, self._first):
                while len(table) > _MOST_KNOWN:
                    del table[next(iter(table))]
            return {key: current.get(key, self._known.get(key, "")) for key in wanted}


_families = _Families()


def _environ(pid: int) -> bytes:
    return read_file("/proc", pid, "environ") or b""


def _family(environ: bytes) -> str:
    mark = FAMILY_VARIABLE.encode() + b"="
    found = (item for item in environ.split(b"\0") if item.startswith(mark))
    return next(found, b"")[len(mark) :].decode("utf-8", "replace")


def remaining(record: ChildRecord) -> int:
    """How many of the record's processes still exist."""
    return len({key for group in (record.leader, *record.groups) for key in members(group)})


def kill(group: SpawnedGroup) -> None:
    """Send SIGKILL to all ``members`` of the group; to its leader last, because it identifies what
    it started."""
    with contextlib.suppress(PermissionError):
        # Stopped, it can start no more.
        signals.send(group.pid, group.start, signal.SIGSTOP)
    kill_all(lambda: [key for key in members(group) if key[0] != group.pid])
    with contextlib.suppress(PermissionError):
        signals.send(group.pid, group.start, signal.SIGKILL)
