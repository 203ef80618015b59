"""The processes of a machine, kept between passes over ``/proc`` so that a pass is cheap.

A process is read once when it is first seen (stat, command line, program, the launcher's variables
in its environment). While it is young it is looked at again in every pass, because it may call
``exec`` or set its title; later only some are, in turn, against reuse of their pids and late
titles. ``lineage`` is kept from the first sight: parents die, and children stay children.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from ray_sentinel.progress.environment import parse_environ, rank_from
from ray_sentinel.progress.proc_stat import TICK, Stat, parse_stat

SETTLE_SECONDS = 10.0
SLICES = 4
"""Passes in which every settled process is looked at again; more on machines with many."""
AT_ONCE = 100
"""Settled processes looked at in one pass, about."""
MAX_FILE = 1 << 20
"""Bytes read of a command line or an environment."""
MAX_ARGUMENTS = 64
_NO_INTERPRETERS = frozenset({"bash", "sh", "dash", "zsh", "tini", "srun", "orted", "sleep", "env"})

Key = tuple[int, int]
"""(pid, start): one process, whatever pids are used again."""


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
    """It runs Python."""
    lineage: tuple[Key, ...] = ()
    """Its ancestors, the nearest first."""
    hidden: bool = False
    """Its environment may not be read: it belongs to another user."""
    first_seen: float = 0.0
    settled: bool = False

    @property
    def key(self) -> Key:
        """What tells it from others."""
        return (self.pid, self.start)

    @property
    def title(self) -> str:
        """Its command line, on one line."""
        return " ".join(self.arguments).strip()

    def descends_from(self, keys: Iterable[Key]) -> bool:
        """Whether one of ``keys`` is an ancestor."""
        return not set(keys).isdisjoint(self.lineage)


class ProcessTable:
    """All processes that we can see."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = str(proc)
        self._known: dict[int, Process] = {}
        self._pass = 0
        self._uptime: float | None = None

    def refresh(self, now: float) -> Mapping[int, Process]:
        """Look once at ``/proc``; ``now`` is any clock's seconds. Raises OSError without /proc."""
        known = self._known
        self._uptime = self._read_uptime()
        pids = [int(name) for name in os.listdir(self._proc) if name.isdigit()]
        for pid in known.keys() - set(pids):
            del known[pid]
        self._pass += 1
        slices = max(SLICES, len(pids) // AT_ONCE)
        turn = self._pass % slices
        # Parents first, mostly: children get higher pids, so lineages can build on one another.
        for pid in sorted(pids):
            process = known.get(pid)
            if process is not None and process.settled and pid % slices != turn:
                continue
            self._look(pid, process, now)
        return known

    def _look(self, pid: int, process: Process | None, now: float) -> None:
        stat = self._stat(pid)
        if stat is None:
            self._known.pop(pid, None)
            return
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
            self._read(process)
        elif not process.settled or stat.command != process.command:
            process.command = stat.command
            self._read(process)
        if not process.settled and self._age(process, now) >= SETTLE_SECONDS:
            process.settled = True
            if not process.interpreter and rank_from(process.environ) is not None:
                process.interpreter = self._embeds_python(process)

    def _age(self, process: Process, now: float) -> float:
        """Seconds since the process started, or was first seen where that cannot be told."""
        seen = now - process.first_seen
        return seen if self._uptime is None else max(seen, self._uptime - process.start * TICK)

    def _read_uptime(self) -> float | None:
        try:
            with open(f"{self._proc}/uptime", "rb") as file:
                return float(file.read().split()[0])
        except (OSError, ValueError, IndexError):
            return None

    def _lineage(self, stat: Stat) -> tuple[Key, ...]:
        parent = self._known.get(stat.parent)
        if parent is None and stat.parent > 1:
            found = self._stat(stat.parent)
            return ((found.pid, found.start),) if found is not None else ()
        return (parent.key, *parent.lineage) if parent is not None else ()

    def _stat(self, pid: int) -> Stat | None:
        data = self._bytes(pid, "stat")
        try:
            return parse_stat(data) if data else None
        except ValueError:
            return None

    def _read(self, process: Process) -> None:
        line = self._bytes(process.pid, "cmdline") or b""
        arguments = tuple(
            part.decode("utf-8", "replace") for part in line.rstrip(b"\0").split(b"\0")
        )[:MAX_ARGUMENTS]
        program = self._program(process.pid)
        same = arguments == process.arguments and program == process.program
        if same and (process.environ or process.hidden):
            return
        process.arguments = arguments
        exec_happened = process.program not in ("", program)
        process.program = program
        process.interpreter = _is_python(program, arguments)
        if line:
            self._read_environ(process, exec_happened)

    def _read_environ(self, process: Process, exec_happened: bool) -> None:
        data = self._bytes(process.pid, "environ")
        process.hidden = data is None
        found = parse_environ(data or b"")
        # A process that sets its title writes over the memory its environment was read from.
        if exec_happened or len(found) >= len(process.environ):
            process.environ = found

    def _program(self, pid: int) -> str:
        try:
            return os.path.basename(os.readlink(f"{self._proc}/{pid}/exe"))
        except OSError:
            return ""

    def _embeds_python(self, process: Process) -> bool:
        if process.program in _NO_INTERPRETERS:
            return False
        return b"/libpython" in (self._bytes(process.pid, "maps") or b"")

    def _bytes(self, pid: int, name: str) -> bytes | None:
        """A file of a process; None where it is gone or not for us."""
        try:
            handle = os.open(f"{self._proc}/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            parts = []
            size = 0
            while size < MAX_FILE and (part := os.read(handle, 1 << 16)):
                parts.append(part)
                size += len(part)
            return b"".join(parts)
        except OSError:
            return None
        finally:
            os.close(handle)


def _is_python(program: str, arguments: tuple[str, ...]) -> bool:
    name = program or os.path.basename(arguments[0] if arguments else "")
    return name.startswith(("python", "pypy"))
