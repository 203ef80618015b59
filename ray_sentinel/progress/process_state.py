"""What ``/proc`` shows of a rank at one moment, and how long it has stood still.

A healthy rank costs five small files. Its threads are walked only where something may be wrong: its
stamp is old, its training thread has not been on a CPU for a while, or it is stopped or blocked.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from ray_sentinel.model.progress import ProcessState
from ray_sentinel.progress.cgroup import Freezer
from ray_sentinel.progress.interpreter import (
    STALE_AFTER,
    Scheduling,
    ThreadSample,
    interpreter_state,
)
from ray_sentinel.progress.proc_stat import SchedStat, Stat, parse_schedstat, parse_stat
from ray_sentinel.progress.processes import Key

WALK_AFTER = 2.0
"""Seconds without a CPU after which a rank's threads are looked at."""
MAX_THREADS = 2048
"""Threads walked of one process."""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """A process's state and how long its training thread has not been given a CPU (seconds)."""

    state: ProcessState
    quiet_seconds: float


class _Memory(msgspec.Struct, kw_only=True):
    """What is remembered of a process from look to look; times are monotonic seconds."""

    looked_at: float = 0.0
    cpu_seconds: float = 0.0
    """Of all threads."""
    moved: tuple[int, float, int] = (0, -1.0, -1)
    """The training thread's tid, CPU seconds and switches."""
    moved_at: float = 0.0
    companion: ThreadSample | None = None
    delays: dict[int, float] = {}
    """Seconds spent waiting for a CPU, by thread."""


class _Walk(msgspec.Struct, kw_only=True):
    runnable: int = 0
    blocked: list[tuple[int, str]] = []
    delays: dict[int, float] = {}


class StateReader:
    """Reads the states of ranks, look after look."""

    def __init__(self, proc: Path = Path("/proc"), freezer: Freezer | None = None) -> None:
        self._proc = str(proc)
        self._freezer = Freezer(proc) if freezer is None else freezer
        self._memory: dict[Key, _Memory] = {}

    def forget(self, alive: set[Key]) -> None:
        """Forget all processes but these."""
        for key in self._memory.keys() - alive:
            del self._memory[key]

    def read(
        self,
        key: Key,
        now: float,
        *,
        stepping_tid: int = 0,
        companion_tid: int = 0,
        stamp: float = 0.0,
    ) -> Reading | None:
        """The state of process ``key`` at ``now`` (CLOCK_MONOTONIC seconds, as ``stamp`` is).

        ``stepping_tid`` is the thread that trains, where it is known; else the main thread is
        taken for it. None where the process is gone or the pid has passed on to another.
        """
        pid, start = key
        stat = self._stat(f"{pid}/stat")
        if stat is None or stat.start != start:
            return None
        memory = self._memory.setdefault(key, _Memory(moved_at=now))
        tid = stepping_tid or pid
        thread = self._schedstat(pid, tid) or self._schedstat(pid, pid)
        wchan = self._text(f"{pid}/task/{tid}/wchan")
        quiet = self._quiet(memory, stat, thread, tid, now)
        age = now - stamp if stamp else None
        suspicious = (
            quiet >= WALK_AFTER
            or stat.state in ("D", "T", "t")
            or (age is not None and age >= STALE_AFTER)
        )
        walk = self._walk(pid) if suspicious else _Walk()
        if thread is not None:
            walk.delays.setdefault(tid, thread.delay_seconds)
        frozen = suspicious and self._freezer.is_frozen(pid, wchan)
        companion = self._companion(pid, companion_tid, now, look=suspicious)
        interpreter = interpreter_state(
            age,
            stat.state,
            companion,
            memory.companion,
            _scheduling(memory, walk, stat, now),
            frozen=frozen,
        )
        memory.looked_at, memory.cpu_seconds = now, stat.cpu_seconds
        memory.companion, memory.delays = companion, walk.delays
        return Reading(
            state=ProcessState(
                state=stat.state,
                wchan=wchan,
                cpu_seconds=stat.cpu_seconds,
                main_cpu_seconds=thread.cpu_seconds if thread else 0.0,
                main_switches=thread.switches if thread else 0,
                threads=stat.threads,
                runnable_threads=walk.runnable if suspicious else int(stat.state == "R"),
                rss_bytes=stat.rss_bytes,
                io_bytes=self._io(pid),
                frozen=frozen,
                blocked_threads=tuple(walk.blocked),
                interpreter=interpreter,
                tracer_pid=self._tracer(pid) if suspicious else 0,
            ),
            quiet_seconds=quiet,
        )

    def _quiet(
        self, memory: _Memory, stat: Stat, thread: SchedStat | None, tid: int, now: float
    ) -> float:
        cpu = thread.cpu_seconds if thread else stat.cpu_seconds
        moved = (tid, cpu, thread.switches if thread else 0)
        if moved != memory.moved:
            memory.moved, memory.moved_at = moved, now
        return max(0.0, now - memory.moved_at)

    def _companion(self, pid: int, tid: int, now: float, *, look: bool) -> ThreadSample | None:
        """The companion thread; with its state only where something is to be judged by it."""
        sched = self._schedstat(pid, tid) if tid else None
        if not tid or (sched is None and not look):
            return None
        stat = self._stat(f"{pid}/task/{tid}/stat") if look else None
        if look and stat is None:
            return None
        return ThreadSample(
            at=now,
            state=stat.state if stat else "",
            wchan=self._text(f"{pid}/task/{tid}/wchan") if look else "",
            delay_seconds=sched.delay_seconds if sched else None,
            switches=sched.switches if sched else None,
        )

    def _walk(self, pid: int) -> _Walk:
        walk = _Walk()
        try:
            tids = [int(name) for name in os.listdir(f"{self._proc}/{pid}/task")]
        except OSError:
            return walk
        for tid in tids[:MAX_THREADS]:
            stat = self._stat(f"{pid}/task/{tid}/stat")
            if stat is None:
                continue
            if stat.state == "R":
                walk.runnable += 1
            elif stat.state == "D":
                walk.blocked.append((tid, self._text(f"{pid}/task/{tid}/wchan")))
            sched = self._schedstat(pid, tid)
            if sched is not None:
                walk.delays[tid] = sched.delay_seconds
        return walk

    def _tracer(self, pid: int) -> int:
        for line in self._text(f"{pid}/status").splitlines():
            if line.startswith("TracerPid:"):
                return int(line.split()[1])
        return 0

    def _io(self, pid: int) -> int:
        total = 0
        for line in self._text(f"{pid}/io").splitlines():
            name, _, value = line.partition(":")
            if name in ("rchar", "wchar"):
                total += int(value)
        return total

    def _stat(self, name: str) -> Stat | None:
        data = self._bytes(name)
        try:
            return parse_stat(data) if data else None
        except ValueError:
            return None

    def _schedstat(self, pid: int, tid: int) -> SchedStat | None:
        data = self._bytes(f"{pid}/task/{tid}/schedstat")
        try:
            return parse_schedstat(data) if data else None
        except ValueError:
            return None

    def _text(self, name: str) -> str:
        text = (self._bytes(name) or b"").decode("utf-8", "replace").strip()
        # The kernel writes 0 for "not waiting" and for "not for you to know".
        return "" if text == "0" else text

    def _bytes(self, name: str) -> bytes | None:
        try:
            handle = os.open(f"{self._proc}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            return os.read(handle, 1 << 16)
        except OSError:
            return None
        finally:
            os.close(handle)


def _scheduling(memory: _Memory, walk: _Walk, stat: Stat, now: float) -> Scheduling | None:
    if not memory.delays or now <= memory.looked_at:
        return None
    before = memory.delays
    waits = [delay - before[tid] for tid, delay in walk.delays.items() if tid in before]
    return Scheduling(
        seconds=now - memory.looked_at,
        longest_delay=max(waits, default=0.0),
        cpu_seconds=stat.cpu_seconds - memory.cpu_seconds,
    )
