"""The processes of a machine, kept between passes over ``/proc`` so that a pass is cheap.

A process is read once when it is first seen (stat, command line, program, the launcher's variables
in its environment). While it is young it is looked at again in every pass, because it may call
``exec`` or set its title; later only some are, in turn, against late titles, and those whose folder
is another one than before: their pid was used again. ``lineage`` is kept from the first sight:
parents die, and children stay children.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from ray_sentinel.masking import mask_argv
from ray_sentinel.progress.discovery.environment import ROLE_VARIABLE, launch_variables, rank_from
from ray_sentinel.progress.proc.proc_stat import TICK, Key, Stat, read_stat
from ray_sentinel.progress.proc.process_memory import Own, ProcessMemory
from ray_sentinel.progress.rank.own_process import MAX_DEPTH

SETTLE_SECONDS = 10.0
"""Seconds after its start within which a process may still exec, or set its title; later it is read
seldom."""
SLICES = 4
"""How many passes it takes to look at every settled process again; on machines with many processes
it takes more."""
AT_ONCE = 100
"""About how many settled processes are read again in one pass."""
MAX_ARGUMENTS = 64
"""Most arguments of a command line that are kept: what identifies a rank stands at its beginning.
"""
_NO_INTERPRETERS = frozenset({"bash", "sh", "dash", "zsh", "tini", "srun", "orted", "sleep", "env"})


class Process(msgspec.Struct, kw_only=True):
    """One process as first seen, and as it calls itself now."""

    pid: int
    start: int
    parent: int
    command: str
    """The kernel's name of its main thread, at most 15 characters."""
    arguments: tuple[str, ...] = ()
    program: str = ""
    """The base name of its executable; empty where we may not look."""
    environ: dict[str, str] = {}
    """The launcher's variables that it started with."""
    interpreter: bool = False
    """Whether it runs Python."""
    users: frozenset[int] = frozenset()
    """The numbers of its real, effective and saved users; empty if they are not known."""
    lineage: tuple[Key, ...] = ()
    """Its ancestors, the nearest first."""
    first_seen: float = 0.0
    settled: bool = False
    inode: int = 0
    """The inode of its folder, which the listing of ``/proc`` tells. It changes when the pid is
    used again; where it changes for other reasons, the process's stat is read once more than
    needed."""
    masked: str | None = None
    """The text of ``shown``, once somebody has asked for it."""

    @property
    def key(self) -> Key:
        """Identifies the process."""
        return (self.pid, self.start)

    @property
    def is_ours(self) -> bool:
        """Whether it is a process of the sentinel's, which is never a rank."""
        return bool(self.environ.get(ROLE_VARIABLE))

    @property
    def title(self) -> str:
        """Its command line, on one line, including secrets: must not leave this node."""
        return " ".join(self.arguments).strip()

    @property
    def shown(self) -> str:
        """The title with secrets masked: the only form that leaves the node."""
        # Masking takes 0.3 ms, and ranks are shown in every pass.
        if self.masked is None:
            self.masked = " ".join(mask_argv(self.arguments)).strip()
        return self.masked

    def descends_from(self, keys: Iterable[Key]) -> bool:
        """Whether one of ``keys`` is an ancestor."""
        return not set(keys).isdisjoint(self.lineage)


class ProcessTable:
    """All processes that we can see."""

    def __init__(self, proc: Path = Path("/proc"), memory: ProcessMemory | None = None) -> None:
        self._proc = str(proc)
        self._known: dict[int, Process] = {}
        self._pass = 0
        self._uptime: float | None = None
        self._memory = memory or ProcessMemory(proc)

    def refresh(self, now: float) -> Mapping[int, Process]:
        """Look once at ``/proc``; ``now`` is any clock's seconds. Raises OSError without /proc."""
        known = self._known
        self._uptime = self._read_uptime()
        with os.scandir(self._proc) as entries:
            pids = {int(entry.name): entry.inode() for entry in entries if entry.name.isdigit()}
        for pid in known.keys() - pids.keys():
            del known[pid]
        self._pass += 1
        slices = max(SLICES, len(pids) // AT_ONCE)
        turn = self._pass % slices
        changed: list[Process] = []
        # Parents first, mostly: children get higher pids, so lineages can build on one another.
        for pid in sorted(pids):
            process, inode = known.get(pid), pids[pid]
            left = process is not None and process.settled and process.inode == inode
            if left and pid % slices != turn:
                continue
            if (seen := self._refresh(pid, process, now)) is not None:
                changed.append(seen)
            if pid in known:
                known[pid].inode = inode
        self._settle(self._read(changed), now)
        return known

    def _refresh(self, pid: int, process: Process | None, now: float) -> Process | None:
        """The process, if what it says about itself may have changed."""
        stat = read_stat(pid, proc=self._proc)
        if stat is None:
            self._known.pop(pid, None)
            return None
        if process is None or process.start != stat.start:
            process = Process(
                pid=pid,
                start=stat.start,
                parent=stat.parent,
                command=stat.command,
                lineage=self._lineage(stat),
                first_seen=now,
            )
            self._known[pid] = process
            return process
        if stat.command != process.command:
            process.command, process.settled = stat.command, False
        return None if process.settled else process

    def _read(self, processes: Iterable[Process]) -> list[Process]:
        """Read what processes say about themselves; returns those that could be read in time."""
        asked = {process.key: process for process in processes}
        found = self._memory.own(asked)
        for key, own in found.items():
            _apply_own(asked[key], own)
        return [asked[key] for key in found]

    def _settle(self, processes: Iterable[Process], now: float) -> None:
        """Mark those that are old enough as settled: they are seldom read again."""
        settled = [
            process
            for process in processes
            if not process.settled and self._age(process, now) >= SETTLE_SECONDS
        ]
        unsure = {process.key: process for process in settled if _may_embed_python(process)}
        maps = self._memory.maps(unsure)
        for key, data in maps.items():
            unsure[key].interpreter = b"/libpython" in data
        for process in settled:
            process.settled = process.key not in unsure or process.key in maps

    def _age(self, process: Process, now: float) -> float:
        """Seconds since the process started, or if that is unknown, since it was first seen."""
        seen = now - process.first_seen
        return seen if self._uptime is None else max(seen, self._uptime - process.start * TICK)

    def _read_uptime(self) -> float | None:
        try:
            with open(f"{self._proc}/uptime", "rb") as file:
                return float(file.read().split()[0])
        except (OSError, ValueError, IndexError):
            return None

    def _lineage(self, stat: Stat) -> tuple[Key, ...]:
        above: list[Key] = []
        parent = stat.parent
        # Once the kernel's pids have wrapped around, parents may have higher ones than children.
        while len(above) < MAX_DEPTH:
            if (known := self._known.get(parent)) is not None:
                return (*above, known.key, *known.lineage)
            found = read_stat(parent, proc=self._proc) if parent > 1 else None
            if found is None:
                break
            above.append(found.key)
            parent = found.parent
        return tuple(above)


def _apply_own(process: Process, own: Own) -> None:
    """Record what a process says about itself now, and whose it is."""
    process.users = own.users or process.users
    if not own.line and process.arguments:
        # It is dying, its memory is gone: its earlier data still show whose exit this is.
        return
    line = (own.line or b"").rstrip(b"\0").split(b"\0")
    arguments = tuple(part.decode("utf-8", "replace") for part in line)[:MAX_ARGUMENTS]
    exec_happened = process.program not in ("", own.program)
    if (arguments, own.program) != (process.arguments, process.program):
        process.arguments, process.program, process.masked = arguments, own.program, None
        process.interpreter = _is_python(own.program, arguments)
    if not own.line:
        return
    found = launch_variables(own.environ or b"")
    # A process that sets its title writes over the memory its environment was read from.
    if exec_happened or len(found) >= len(process.environ):
        process.environ = found


def _may_embed_python(process: Process) -> bool:
    """Whether a process is a rank whose name does not show that it runs Python."""
    embeds = not process.interpreter and process.program not in _NO_INTERPRETERS
    return embeds and rank_from(process.environ) is not None


def _is_python(program: str, arguments: tuple[str, ...]) -> bool:
    name = program or os.path.basename(arguments[0] if arguments else "")
    return name.startswith(("python", "pypy"))
