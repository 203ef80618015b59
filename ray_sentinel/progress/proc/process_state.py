"""The state of a rank in ``/proc`` at one moment, and for how long it has not changed.

A healthy rank costs a few small files. Its threads are all looked at only while its stamp is old.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path

import msgspec

from ray_sentinel.model.progress import HELD, InterpreterState, ProcessState
from ray_sentinel.progress.proc.cgroup import ControlGroups, is_frozen
from ray_sentinel.progress.proc.interpreter import (
    STALE_AFTER,
    Scheduling,
    ThreadSample,
    interpreter_state,
    not_waited,
    waited,
)
from ray_sentinel.progress.proc.proc_stat import (
    MAX_THREADS,
    Key,
    Stat,
    read_schedstat,
    read_small,
    read_stat,
    task_ids,
)
from ray_sentinel.progress.record import STAMP_INTERVAL

QUIET_SECONDS = 2.0
"""Seconds without a CPU after which a freezer or a tracer is looked for."""
WINDOW = 0.8
"""Least seconds between the samples that are compared, if there are such: over a shorter time, a
busy machine looks like one that gives no CPU at all."""
APART = 0.2
"""Least seconds between two samples that are kept."""
LOOKS = 8
"""How many samples are kept: more than a window of them."""


class SchedulerState(msgspec.Struct, frozen=True, kw_only=True):
    """A process's state and how long its training thread has not been given a CPU (seconds)."""

    state: ProcessState
    quiet_seconds: float


class _Look(msgspec.Struct, frozen=True):
    """One look at a process: when (monotonic seconds), its CPU time so far, its threads by tid."""

    at: float
    cpu_seconds: float
    threads: dict[int, ThreadSample]


class _Memory(msgspec.Struct, kw_only=True):
    """What is kept about a process from one poll to the next; times are monotonic seconds."""

    looks: deque[_Look] = msgspec.field(default_factory=lambda: deque(maxlen=LOOKS))
    """The last samples, oldest first, at least ``APART`` seconds apart."""
    moved: tuple[int, float, int] = (0, -1.0, -1)
    """The training thread's tid, CPU seconds and switches."""
    moved_at: float = 0.0
    stamp: float = 0.0
    stamped_switches: int | None = None
    """How often the companion had been put on a CPU when this stamp was first seen."""
    counted: float = 0.0
    """Seconds, from when the stamp after this one was due until the last look, for which no thread
    waited for a CPU."""

    def before(self, now: float) -> _Look | None:
        """The newest look that is a ``WINDOW`` old, or the oldest; None at first sight."""
        old = [look for look in self.looks if now - look.at >= WINDOW]
        return old[-1] if old else self.looks[0] if self.looks else None

    def add(self, look: _Look, counted: float) -> None:
        """Remember a look and what counts until it, unless another was taken just before it."""
        if not self.looks or look.at - self.looks[-1].at >= APART:
            self.looks.append(look)
            self.counted = counted


class _Sight(msgspec.Struct, frozen=True, kw_only=True):
    """What one sample of a process showed."""

    stat: Stat
    thread: ThreadSample | None
    """The thread that trains."""
    sleeps: int
    """How often the training thread went to sleep by itself."""
    companion: ThreadSample | None
    threads: dict[int, ThreadSample]
    """By tid; all of them where the stamp is old, else the two above."""
    quiet: float
    """Seconds since the training thread was last seen to move."""
    suspicious: bool
    """Whether something may be wrong."""
    frozen: bool


class StateReader:
    """Reads the states of ranks at each poll."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = str(proc)
        self._groups = ControlGroups("freezer", proc)
        self._memory: dict[Key, _Memory] = {}

    def forget(self, alive: set[Key]) -> None:
        """Drop all processes but these."""
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
    ) -> SchedulerState | None:
        """The state of process ``key`` at ``now`` (CLOCK_MONOTONIC seconds, as ``stamp`` is).

        ``stepping_tid`` is the thread that trains, where it is known; else the main thread is
        taken for it. None if the process is gone or the pid has passed on to another.
        """
        pid, start = key
        stat = read_stat(pid, proc=self._proc)
        if stat is None or stat.start != start:
            return None
        memory = self._memory.setdefault(key, _Memory(moved_at=now))
        sight = self._see(stat, memory, now, stepping_tid or pid, companion_tid, stamp)
        interpreter = _judge(sight, memory, now, companion_tid, stamp)
        return SchedulerState(state=self._state(sight, interpreter), quiet_seconds=sight.quiet)

    def _see(
        self, stat: Stat, memory: _Memory, now: float, tid: int, companion_tid: int, stamp: float
    ) -> _Sight:
        """Sample the process and, if its stamp is old, all of its threads."""
        pid = stat.pid
        thread = self._thread(pid, tid, now) or self._thread(pid, pid, now)
        quiet = _quiet(memory, stat, thread, tid, now)
        late = stamp != 0 and now - stamp >= STALE_AFTER
        suspicious = late or quiet >= QUIET_SECONDS or stat.state in HELD
        threads = self._threads(pid, now) if late else {}
        frozen = suspicious and is_frozen(self._groups, pid, thread.wchan if thread else "")
        companion = self._thread(pid, companion_tid, now) if companion_tid else None
        for seen, number in ((thread, tid), (companion, companion_tid)):
            if seen is not None:
                threads[number] = seen
        return _Sight(
            stat=stat,
            thread=thread,
            sleeps=self._number(f"{pid}/task/{tid}/status", "voluntary_ctxt_switches"),
            companion=companion,
            threads=threads,
            quiet=quiet,
            suspicious=suspicious,
            frozen=frozen,
        )

    def _state(self, sight: _Sight, interpreter: InterpreterState) -> ProcessState:
        stat, thread = sight.stat, sight.thread
        return ProcessState(
            state=stat.state,
            wchan=thread.wchan if thread else "",
            cpu_seconds=stat.cpu_seconds,
            main_cpu_seconds=(thread.cpu_seconds if thread else None) or 0.0,
            main_switches=(thread.switches if thread else None) or 0,
            main_sleeps=sight.sleeps,
            threads=stat.threads,
            rss_bytes=stat.rss_bytes,
            io_bytes=self._io(stat.pid),
            frozen=sight.frozen,
            interpreter=interpreter,
            tracer_pid=self._number(f"{stat.pid}/status", "TracerPid") if sight.suspicious else 0,
        )

    def _thread(self, pid: int, tid: int, now: float) -> ThreadSample | None:
        stat = read_stat(pid, tid, self._proc)
        if stat is None:
            return None
        sched = read_schedstat(pid, tid, self._proc)
        return ThreadSample(
            at=now,
            state=stat.state,
            wchan=self._text(f"{pid}/task/{tid}/wchan"),
            cpu_seconds=sched.cpu_seconds if sched else stat.cpu_seconds,
            delay_seconds=sched.delay_seconds if sched else None,
            switches=sched.switches if sched else None,
        )

    def _threads(self, pid: int, now: float) -> dict[int, ThreadSample]:
        tids = task_ids(pid, self._proc)[:MAX_THREADS]
        found = {tid: self._thread(pid, tid, now) for tid in tids}
        return {tid: thread for tid, thread in found.items() if thread is not None}

    def _number(self, name: str, key: str) -> int:
        """A number from a file in the form of ``status``; 0 if it is not there."""
        for line in self._text(name).splitlines():
            found, _, value = line.partition(":")
            if found == key and value.strip().isdigit():
                return int(value)
        return 0

    def _io(self, pid: int) -> int:
        total = 0
        for line in self._text(f"{pid}/io").splitlines():
            name, _, value = line.partition(":")
            if name in ("rchar", "wchar"):
                total += int(value)
        return total

    def _text(self, name: str) -> str:
        try:
            text = read_small(f"{self._proc}/{name}").decode("utf-8", "replace").strip()
        except OSError:
            return ""
        # The kernel writes 0 both for "not waiting" and for "you may not know".
        return "" if text == "0" else text


def _judge(
    sight: _Sight, memory: _Memory, now: float, companion_tid: int, stamp: float
) -> InterpreterState:
    """Whether the interpreter runs, judged by this look and earlier ones; remembers this one."""
    look = _Look(now, sight.stat.cpu_seconds, sight.threads)
    before = memory.before(now)
    runs = _runs(memory, sight.companion, stamp)
    counted = memory.counted
    if memory.looks:
        counted += _counted(look, memory.looks[-1], stamp, companion_tid)
    state = interpreter_state(
        now - stamp if stamp else None,
        sight.stat.state,
        sight.companion,
        before.threads.get(companion_tid) if before else None,
        _scheduling(look, before, stamp, companion_tid) if before else None,
        runs=runs,
        counted=counted,
        frozen=sight.frozen,
    )
    memory.add(look, counted)
    return state


def _quiet(memory: _Memory, stat: Stat, thread: ThreadSample | None, tid: int, now: float) -> float:
    cpu = thread.cpu_seconds if thread else None
    switches = thread.switches if thread else None
    moved = (tid, stat.cpu_seconds if cpu is None else cpu, switches or 0)
    if moved != memory.moved:
        memory.moved, memory.moved_at = moved, now
    return max(0.0, now - memory.moved_at)


def _runs(memory: _Memory, companion: ThreadSample | None, stamp: float) -> int | None:
    """How often the companion got a CPU since its stamp was first seen."""
    switches = companion.switches if companion is not None else None
    if stamp != memory.stamp:
        memory.stamp, memory.stamped_switches, memory.counted = stamp, switches, 0.0
    if switches is None or memory.stamped_switches is None:
        return None
    return switches - memory.stamped_switches


def _scheduling(look: _Look, before: _Look, stamp: float, companion_tid: int) -> Scheduling | None:
    """What happened between two looks, restricted to the time after the next stamp was due."""
    seconds = look.at - max(before.at, stamp + STAMP_INTERVAL)
    if seconds <= 0:
        return None
    waits = [waited(now, then) or 0.0 for now, then in _in_both(look, before, companion_tid)]
    used = look.cpu_seconds - before.cpu_seconds
    return Scheduling(waited_share=max(waits, default=0.0) / seconds, cpu_share=used / seconds)


def _counted(look: _Look, before: _Look, stamp: float, companion_tid: int) -> float:
    """Seconds between two looks, and since the next stamp was due, for which no thread waited for
    a CPU. What a thread ran before counts as not run since."""
    early = max(0.0, stamp + STAMP_INTERVAL - before.at)
    spans = [not_waited(now, then) for now, then in _in_both(look, before, companion_tid)]
    return max(0.0, min(spans, default=0.0) - early)


def _in_both(
    look: _Look, before: _Look, companion_tid: int
) -> list[tuple[ThreadSample, ThreadSample]]:
    """The threads that both looks show, now and then, but for the companion."""
    return [
        (thread, before.threads[tid])
        for tid, thread in look.threads.items()
        if tid != companion_tid and tid in before.threads
    ]
