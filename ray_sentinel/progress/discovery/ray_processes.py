"""What Ray's workers and drivers on a node do, as their titles and the scheduler show it.

Ray writes into a worker's title what runs there: "ray::Rollout.generate" during a call,
"ray::Rollout" between two calls, "ray::IDLE" between two tasks (``setproctitle`` in Ray's
``_raylet.pyx``). So the begin and end of a call are visible without the program's cooperation.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from ray_sentinel.model.identity import Node, ProcessId
from ray_sentinel.model.progress import UNCOUNTED, RayExit, RayProcess, may_be_restless
from ray_sentinel.progress.exits import ExitWatch
from ray_sentinel.progress.last_output import LastOutput
from ray_sentinel.progress.proc import pidfd
from ray_sentinel.progress.proc.proc_stat import Key, read_schedstat, read_stat
from ray_sentinel.progress.proc.process_memory import memory_files
from ray_sentinel.progress.proc.processes import Process

MOST = 512
"""Most processes of one node that are reported: drivers, then workers that have run anything, by
pid."""
BUSY = 0.2
"""Share of a core from which a process is at work in threads beside its main one; Ray's own threads
use a hundredth."""
ZOMBIE = "Z"
"""State of a process that has ended, and that its parent has not asked for."""
MOST_TITLE = 200
"""Most characters of a title; the rest is cut off."""
TOLD_SECONDS = 20.0
"""Seconds for which an exit is reported again and again, because a report may be lost."""
_PREFIX = b"ray::"


class _Seen(msgspec.Struct, kw_only=True):
    title: str
    since: float
    moved_at: float
    switches: int = -1
    wanted: float = 0.0
    """Seconds that its main thread has run or waited for a CPU."""
    queued_at: float = 0.0
    """The earliest time since which its main thread may have been waiting for a CPU, if it is
    waiting."""
    busy_since: float | None = None
    busy_wanted: float = 0.0
    """The value of ``wanted`` at ``busy_since``."""
    cpu_seconds: float = 0.0
    at: float = 0.0
    state: str = ""


class RayProcessWatch:
    """Remembers the last look at each process. Called by one thread."""

    def __init__(
        self,
        own_raylet: int | None,
        exits: ExitWatch,
        outputs: LastOutput,
        proc: Path = Path("/proc"),
    ) -> None:
        self._raylet, self._exits, self._proc = own_raylet, exits, str(proc)
        self._outputs = outputs
        """The outputs of the drivers."""
        self._seen: dict[Key, _Seen] = {}
        self._told: dict[Key, ProcessId] = {}
        """Processes whose exits are waited for."""
        self._ended: list[RayExit] = []
        self._unread: set[Key] = set()
        """Processes that have ended, and whose last output has not been read yet."""

    def exits(self, now: float) -> tuple[RayExit, ...]:
        """How reported processes ended in the last ``TOLD_SECONDS``."""
        for ended in self._exits.drain():
            process = self._told.pop(ended.key, None)
            if process is not None:
                code, signal = pidfd.describe(ended.status)
                self._ended.append(RayExit(process=process, at=ended.at, code=code, signal=signal))
                self._unread.add(ended.key)
        self._ended = [one for one in self._ended if now - one.at < TOLD_SECONDS][-MOST:]
        self._ended = [self._with_output(one) for one in self._ended]
        return tuple(self._ended)

    def _with_output(self, ended: RayExit) -> RayExit:
        """The exit with what the process wrote last, once its file has answered."""
        key = (ended.process.pid, ended.process.start)
        if key not in self._unread or (output := self._outputs.read(key)) is None:
            return ended
        self._unread.discard(key)
        return msgspec.structs.replace(ended, last_output=output)

    def poll(
        self,
        node: Node,
        table: Mapping[int, Process],
        drivers: Collection[tuple[str, int]],
        now: float,
        engines: Mapping[Key, str] | None = None,
    ) -> tuple[RayProcess, ...]:
        """The workers below this node's raylet that have run anything, and those of ``drivers``
        (address and pid) that are on this machine. ``now`` is the agent's time; ``engines`` are the
        inference engines below processes."""
        here = {pid for address, pid in drivers if address == node.address}
        titled = {p.key: p for p in table.values() if self._is_worker(p)}
        # What a worker forks, such as a data loader, has its title, and keeps it for ever.
        workers = [p for p in titled.values() if titled.keys().isdisjoint(p.lineage)]
        # Ray starts workers before they are needed: they must not displace others.
        workers.sort(key=self._has_never_run)
        chosen = list(
            itertools.islice((*(table[pid] for pid in sorted(here & table.keys())), *workers), MOST)
        )
        titles = memory_files((p.pid for p in chosen if p.pid not in here), "cmdline", self._proc)
        self._seen = {p.key: self._seen[p.key] for p in chosen if p.key in self._seen}
        self._unread &= {(one.process.pid, one.process.start) for one in self._ended}
        self._outputs.forget({*self._told, *self._unread})
        self._outputs.note([p.key for p in chosen if p.pid in here])
        found = []
        for process in chosen:
            title = "" if process.pid in here else _title(titles.get(process.pid))
            if title is None or (title == "IDLE" and process.key not in self._seen):
                continue
            seen = self._poll_one(process, title, now)
            if seen.state == ZOMBIE:
                continue  # its end has been reported, or it was never seen alive
            identity = ProcessId(node.host, process.pid, process.start)
            self._told[process.key] = identity
            self._exits.watch(process.key)
            found.append(
                RayProcess(
                    process=identity,
                    title=seen.title,
                    since=seen.since,
                    moved_at=seen.moved_at,
                    state=seen.state,
                    busy_since=seen.busy_since,
                    engine=(engines or {}).get(process.key, ""),
                )
            )
        return tuple(found)

    def close(self) -> None:
        """Stop waiting for exits."""
        self._exits.close()

    def _is_worker(self, process: Process) -> bool:
        return (
            bool(process.arguments)
            and process.arguments[0].startswith("ray::")
            and not process.is_ours
            and (self._raylet is None or any(pid == self._raylet for pid, _ in process.lineage))
        )

    def _has_never_run(self, process: Process) -> bool:
        """Whether the process has never run anything, as far as the table of processes knows, which
        reads titles seldom."""
        return process.key not in self._seen and process.arguments[0].rstrip() == "ray::IDLE"

    def _poll_one(self, process: Process, title: str, now: float) -> _Seen:
        seen = self._seen.setdefault(process.key, _Seen(title=title, since=now, moved_at=now))
        if seen.title != title:
            seen.title, seen.since, seen.moved_at = title, now, now
        main = read_schedstat(process.pid, proc=self._proc)
        stat = read_stat(process.pid, proc=self._proc)
        if main is None or stat is None:
            return seen  # it has ended
        used = stat.cpu_seconds
        busy = used - seen.cpu_seconds > BUSY * (now - seen.at) > 0.0
        if main.switches != seen.switches or (busy and seen.at):
            seen.moved_at = now
        if stat.state != "R":
            seen.queued_at = now
        elif main.switches != seen.switches:
            seen.queued_at = max(seen.at, now - UNCOUNTED)
        # On a crowded machine, Ray's workers, which are nice, wait for seconds.
        uncounted = max(UNCOUNTED, now - seen.queued_at)
        wanted = main.cpu_seconds + main.delay_seconds
        if not may_be_restless(wanted - seen.wanted, now - seen.at, uncounted) or not seen.at:
            seen.busy_since = None
        elif seen.busy_since is None:
            seen.busy_since, seen.busy_wanted = seen.at, seen.wanted
        elif not may_be_restless(wanted - seen.busy_wanted, now - seen.busy_since, uncounted):
            seen.busy_since = None
        seen.switches, seen.wanted, seen.cpu_seconds, seen.at = main.switches, wanted, used, now
        seen.state = stat.state
        return seen


def _title(line: bytes | None) -> str | None:
    """Ray's title for a worker; None if that is not known.

    >>> _title(b"ray::Rollout.generate\\0\\0"), _title(b"ray::preprocess()"), _title(b"python")
    ('Rollout.generate', 'preprocess', None)
    """
    text = (line or b"").split(b"\0", 1)[0]
    if not text.startswith(_PREFIX):
        return None
    title = text.removeprefix(_PREFIX).decode("utf-8", "replace").strip()
    return title.removesuffix("()")[:MOST_TITLE]
