"""Which processes we have started, on disk: so that a runner that comes after one that was killed
ends what that one left, and counts what cannot be ended (D state) instead of adding to it.

One small file per process in a folder on a local disk. A process is told apart from a later one of
the same number by its start time and the machine's boot id.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from pathlib import Path

import msgspec

from ray_sentinel.kernel_files import boot_id
from ray_sentinel.progress.proc_stat import Stat, parse_stat
from ray_sentinel.whole_file import write_whole

log = logging.getLogger(__name__)

FAMILY_VARIABLE = "RAY_SENTINEL_FAMILY"
"""Differs for each process that the runner starts. Children inherit it: a daemon that left session
and parent behind is known by it."""


class Group(msgspec.Struct, frozen=True):
    """A process group and session, named by the pid of its leader and that one's start time (clock
    ticks since boot, field 22 of ``/proc/<pid>/stat``)."""

    pid: int
    start: int
    family: str = ""
    """Value of ``FAMILY_VARIABLE`` in all that descends from it, also in sessions of their own."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A collector's process and the groups that it started beside its own."""

    name: str
    boot_id: str
    leader: Group
    groups: tuple[Group, ...] = ()


class Ledger:
    """The records in ``folder``; None keeps none. A full disk costs the record, nothing else."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._boot_id = boot_id()
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            except OSError as error:
                log.warning("%s: cannot be made: %s", folder, error.strerror)

    def write(self, name: str, leader: Group, groups: tuple[Group, ...] = ()) -> None:
        """Note a process, or its groups anew."""
        if self._folder is None:
            return
        record = Record(name=name, boot_id=self._boot_id, leader=leader, groups=groups)
        path = self._folder / str(leader.pid)
        try:
            write_whole(path, msgspec.json.encode(record))
        except OSError as error:
            log.warning("%s: cannot be written: %s", path, error.strerror)

    def remove(self, leader: Group) -> None:
        """The process and its groups have ended."""
        if self._folder is not None:
            with contextlib.suppress(OSError):
                (self._folder / str(leader.pid)).unlink()

    def leftovers(self) -> list[Record]:
        """What an earlier runner left running; records of what has ended are removed."""
        if self._folder is None or not self._folder.is_dir():
            return []
        found = []
        for path in sorted(self._folder.iterdir()):
            try:
                record = msgspec.json.decode(path.read_bytes(), type=Record)
            except (OSError, msgspec.DecodeError):
                record = None
            if record is not None and record.boot_id == self._boot_id and remaining(record):
                found.append(record)
            else:
                with contextlib.suppress(OSError):
                    path.unlink()
        return found


def group_of(pid: int, family: str = "") -> Group:
    """The group that the living process ``pid`` leads."""
    stat = _stat(pid)
    return Group(pid, stat.start if stat is not None else 0, family)


def members(group: Group) -> list[int]:
    """The pids of the group, its session and its family that are there; the dead unreaped do not
    count."""
    return sorted({*_in_session(group), *_in_family(group)})


def _in_family(group: Group) -> list[int]:
    if not group.family:
        return []
    mark = f"{FAMILY_VARIABLE}={group.family}".encode()
    found = []
    for name in os.listdir("/proc"):
        stat = _stat(int(name)) if name.isdigit() else None
        # Descendants are younger. To read an environment takes the process's memory lock, which a
        # thread of a training that hangs in the kernel may hold: none of those is asked.
        if stat is None or stat.state in "ZX" or stat.start < group.start:
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                variables = file.read()
        except OSError:
            continue  # gone, or another user's and so not of this family
        if mark in variables.split(b"\0"):
            found.append(int(name))
    return found


def _in_session(group: Group) -> list[int]:
    leader = _stat(group.pid)
    if leader is not None and leader.start != group.start:
        return []  # the number is another's by now
    try:
        os.killpg(group.pid, 0)
    except ProcessLookupError:
        if leader is None:
            return []
    except PermissionError:
        pass  # members that changed their user are members all the same
    found = []
    for name in os.listdir("/proc"):
        stat = _stat(int(name)) if name.isdigit() else None
        if stat is not None and group.pid in (stat.group, stat.session) and stat.state not in "ZX":
            found.append(int(name))
    return found


def remaining(record: Record) -> int:
    """How many of the record's processes are still there."""
    return len({pid for group in (record.leader, *record.groups) for pid in members(group)})


def kill(group: Group) -> None:
    """SIGKILL the group and whatever else is in its session."""
    for pid in members(group):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _stat(pid: int) -> Stat | None:
    """None where there is no such process."""
    try:
        return parse_stat(Path(f"/proc/{pid}/stat").read_bytes())
    except (OSError, ValueError):
        return None
