"""Deaths in Ray jobs: joins what the control store, the agents and the kernel report about each,
and finds which was the first cause.

Ray ends all actors of a driver that ends, and all that an actor has made when it ends. So only the
first death in a job can be to blame, and only if nobody intended it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from ray_sentinel.engine.verdicts.exits import SIGHUP, SIGINT, SIGNAL_NAMES, SIGTERM, raised_in
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.progress import Snapshot
from ray_sentinel.model.ray_calls import RayCalls
from ray_sentinel.model.ray_deaths import DeathCause, RayDeath

MOST = 2000
"""Most deaths, and most exits of one node, that are remembered."""
FORGET_SECONDS = 300.0
"""Seconds for which a death or an exit is remembered."""
WAIT_SECONDS = 3.0
"""Seconds for which an exit of a rank that is a Ray actor waits for its cause."""
JOIN_SECONDS = 1.5
"""Seconds for which a death waits for its node's report."""
LOSS_SECONDS = 2.5
"""Seconds for which the death of an actor waits for its driver's, which may follow."""
NOTICE_SECONDS = 15.0
"""Seconds within which Ray notices the end of a process, also on a busy machine."""
BEFORE_SECONDS = 30.0
"""Seconds before a driver's end within which a failure may have caused it."""
CLOCKS_SECONDS = 1.0
"""Seconds by which the clocks of two nodes, and the flushing of Ray's tables, may differ."""
ASKED = frozenset({SIGHUP, SIGINT, SIGTERM})
"""Signals by which somebody ends a program."""
_BY_SHELL = 128
"""What a program that ends because of a signal may add to the signal's number in its exit status.
"""
UNEXPECTED: frozenset[DeathCause] = frozenset(
    {"exception", "constructor", "signal", "exited", "oom-kernel", "oom-ray", "runtime-env"}
)
"""Causes that nobody intended, and that follow from no other end."""

KILLED = "killed by SIG"
"""The beginning of the detail of a death whose signal is known."""
IN_PEACE = "exited with status 0"
"""The detail of an actor that left by ``sys.exit(0)``, possibly because it had finished."""

Place = tuple[str, int]
"""Node id and pid."""
EndedRank = tuple[str, ProcessId]
"""Node id and process."""


class SeenExit(msgspec.Struct, frozen=True):
    """The end of a process as the agent of its node saw it. ``at`` is on the coordinator's
    clock."""

    at: float
    code: int | None
    signal: int | None
    start: int = 0
    """The start of the process, as in its ``ProcessId``."""
    raised: str = ""
    """The exception by which a driver ended, if its output shows it."""


class ToldDeath(msgspec.Struct, kw_only=True):
    """A death as the control store reported it, and when the report arrived."""

    death: RayDeath
    told_at: float


class RayDeathBook(msgspec.Struct, kw_only=True, dict=True):
    """All known deaths. Only the engine changes it. Times are on the coordinator's clock."""

    told: dict[str, ToldDeath] = {}
    """Deaths by their id: actor or job, pid, and the call that failed."""
    exits: dict[str, dict[int, SeenExit]] = {}
    """Exits by node id and pid."""
    addresses: dict[str, str] = {}
    """The id of each node, by its address."""
    oom: dict[str, dict[int, float]] = {}
    """Processes that the kernel killed for memory, by node id and pid, and when."""
    members: dict[str, dict[int, str]] = {}
    """The jobs of all actors that were seen alive, by node id and pid."""
    ended: dict[str, float] = {}
    """Jobs whose drivers have ended, and when that was reported."""
    spared: dict[str, dict[int, int]] = {}
    """Ranks that stay excused although the evidence for it was dropped: the start of the process,
    as in its ``ProcessId``, by node id and pid."""

    def __post_init__(self) -> None:
        self._index()

    def _index(self) -> None:
        """Index the deaths of actors by place: each end of a rank is looked up there."""
        self._actors: dict[Place, list[RayDeath]] = {}
        for one in self.told.values():
            self._note(one.death)

    def _note(self, death: RayDeath) -> None:
        if death.what == "actor":
            self._actors.setdefault((death.node, death.pid), []).append(death)

    def apply_table(self, table: RayCalls) -> None:
        """Record who lives, and in which job."""
        for actor in table.actors:
            if actor.pid and actor.node:
                self.members.setdefault(actor.node, {})[actor.pid] = actor.job

    def apply(self, snapshot: Snapshot, now: float, offset: float) -> None:
        """Record what a node's agent saw; ``offset`` converts its clock to ours."""
        node = snapshot.node.id
        self.addresses[snapshot.node.address] = node
        for ended in snapshot.ray_exits:
            known = self.exits.setdefault(node, {})
            pid = ended.process.pid
            at = min(now, ended.at + offset)
            if len(known) < MOST or pid in known:
                raised = raised_in(ended.last_output)
                known[pid] = SeenExit(at, ended.code, ended.signal, ended.process.start, raised)
        for event in snapshot.events:
            pid_text = event.attributes.get("pid", "") if event.kind == "kernel.oom" else ""
            if pid_text.isdecimal() and now - event.time - offset < WAIT_SECONDS * 10:
                self.oom.setdefault(node, {})[int(pid_text)] = min(now, event.time + offset)

    def record_deaths(self, deaths: Iterable[RayDeath], now: float) -> None:
        """Record deaths; known ones change nothing."""
        for death in deaths:
            # A call that failed in an actor is reported in addition to that actor's own end, maybe
            # later.
            key = f"{death.what} {death.id} {death.pid} {death.method}"
            if key not in self.told and len(self.told) < MOST:
                self.told[key] = ToldDeath(death=death, told_at=now)
                self._note(death)
            if death.what == "driver":
                self.ended.setdefault(death.job, now)

    def advance(
        self, now: float, jobs: Iterable[str], counted: Callable[[], Iterable[EndedRank]]
    ) -> None:
        """Drop what ended long ago, and members of jobs that are no longer in ``jobs``. For the
        ends in ``counted``, which still matter, it keeps whether they are excused."""
        edge = now - FORGET_SECONDS
        times = [one.told_at for one in self.told.values()]
        times += self.ended.values()
        times += [one.at for exits in self.exits.values() for one in exits.values()]
        times += [at for killed in self.oom.values() for at in killed.values()]
        if any(at < edge for at in times):
            self._forget(edge, counted())
        there = set(jobs) | self.ended.keys()
        for node, pids in list(self.members.items()):
            if any(job not in there for job in pids.values()):
                self.members[node] = {pid: job for pid, job in pids.items() if job in there}

    def _forget(self, edge: float, counted: Iterable[EndedRank]) -> None:
        """Drop what was reported or seen before ``edge``."""
        spared: dict[str, dict[int, int]] = {}
        for node, process in counted:
            if self.spares(node, process):
                spared.setdefault(node, {})[process.pid] = process.start
        self.spared = spared
        self.told = {key: one for key, one in self.told.items() if one.told_at >= edge}
        self.ended = {job: at for job, at in self.ended.items() if at >= edge}
        for node, exits in list(self.exits.items()):
            self.exits[node] = {pid: one for pid, one in exits.items() if one.at >= edge}
        for node, killed in list(self.oom.items()):
            self.oom[node] = {pid: at for pid, at in killed.items() if at >= edge}
        self._index()

    def of_job(self, job: str, now: float) -> list[RayDeath]:
        """All deaths of a job that need not wait for another witness, oldest first."""
        ended_at = self.ended.get(job)
        if ended_at is not None and now - ended_at < JOIN_SECONDS:
            return []
        wait = JOIN_SECONDS if ended_at is not None else LOSS_SECONDS
        found = [
            self._joined(one.death)
            for one in self.told.values()
            if one.death.job == job and now - one.told_at >= wait
        ]
        return sorted(found, key=_when)

    def of_process(self, place: Place) -> RayDeath | None:
        """The last actor that ran in this process, by its pid."""
        found = (self._joined(death) for death in reversed(self._actors.get(place, ())))
        return next((one for one in found if one.cause != "exception"), None)

    def unnoticed(self, node: str, pid: int, now: float) -> str:
        """How a process ended that Ray must have noticed by now, as its agent saw it; empty if it
        saw no such end."""
        seen = self.exits.get(node, {}).get(pid)
        if seen is None or now - seen.at < NOTICE_SECONDS:
            return ""
        if seen.signal is not None:
            return f"was {KILLED}{_signal_name(seen.signal)}"
        return "has ended" if seen.code is None else f"exited with status {seen.code}"

    def is_waiting(self, place: Place, ended_at: float, now: float) -> bool:
        """Whether the cause of a process's end may still be reported."""
        node, pid = place
        # Ray's table may be older than the process, and the agent saw that Ray had started it.
        ours = pid in self.members.get(node, {}) or pid in self.exits.get(node, {})
        return ours and now - ended_at < WAIT_SECONDS and self.of_process(place) is None

    def spares(self, node: str, process: ProcessId) -> bool:
        """Whether a process is excused: it ended because another did, or somebody ended it on
        purpose; or the driver of its job had ended and Ray reported nothing about it."""
        if self.spared.get(node, {}).get(process.pid) == process.start:
            return True
        death = self.of_process((node, process.pid))
        if death is not None:
            return death.is_echo or death.is_intended
        return self.members.get(node, {}).get(process.pid, "") in self.ended

    def _joined(self, death: RayDeath) -> RayDeath:
        """The death, completed by what the node's agent and the kernel report: they saw it, Ray did
        not."""
        node = death.node or self.addresses.get(death.address, "")
        seen = self.exits.get(node, {}).get(death.pid)
        if death.cause in ("signal", "unknown", "exited") and death.pid in self.oom.get(node, {}):
            return _with(death, "oom-kernel", "the kernel killed it for memory", "kernel log")
        unclear = death.what == "driver" and death.cause == "exception" and not death.is_proven
        if unclear and seen is not None and seen.raised:
            return _with(death, "exception", seen.raised, "output")
        if unclear and (seen is None or not _asked_to_end(seen)):
            # With Ray's excepthook a driver ends with status 1 after Ctrl-C too.
            return _with(death, "unknown", death.detail, death.witness)
        if seen is None:
            return death
        signal = seen.signal
        if death.what == "driver" and _asked_to_end(seen):
            named = SIGNAL_NAMES.get(signal or (seen.code or 0) - _BY_SHELL, "a signal")
            return _with(death, "stopped", f"ended by {named}", "pidfd")
        # A signal that comes after it had left Ray (a crash as the interpreter ends) was no cause.
        failed = death.what == "driver" and death.cause == "finished" and bool(seen.code)
        known = death.cause not in ("signal", "unknown") or death.detail.startswith(KILLED)
        if known and not failed:
            return death
        if signal is not None:
            return _with(death, "signal", f"{KILLED}{_signal_name(signal)}", "pidfd")
        if seen.code is not None:
            return _with(death, "exited", f"exited with status {seen.code}", "pidfd")
        return death


def _signal_name(signal: int) -> str:
    return SIGNAL_NAMES.get(signal, f"SIG {signal}").removeprefix("SIG")


def _asked_to_end(seen: SeenExit) -> bool:
    if seen.signal is not None:
        return seen.signal in ASKED
    # Ray's driver turns SIGTERM into an exit with the signal's number.
    return seen.code is not None and seen.code in {SIGTERM, *(_BY_SHELL + one for one in ASKED)}


def _with(death: RayDeath, cause: DeathCause, detail: str, witness: str) -> RayDeath:
    return msgspec.structs.replace(death, cause=cause, detail=detail, witness=witness)


def _when(death: RayDeath) -> float:
    return death.at


def first_cause(deaths: Iterable[RayDeath]) -> RayDeath | None:
    """The death that ended the job or is a loss to it: the first that nobody intended; None if
    there is none. ``deaths`` are all of one job, oldest first."""
    deaths = list(deaths)
    driver = next((death for death in deaths if death.what == "driver"), None)
    others = [
        death
        for death in deaths
        if death.what != "driver" and death.cause in UNEXPECTED and not death.restarts
    ]
    if driver is None or driver.cause in ("finished", "unknown"):
        # The program learned what failed in a call, and went on.
        lost = (one for one in others if one.cause != "exception" and one.detail != IN_PEACE)
        return next(lost, None)
    if driver.cause not in UNEXPECTED:
        return None
    if driver.cause == "exception":
        late = driver.at + CLOCKS_SECONDS
        near = [one for one in others if driver.at - BEFORE_SECONDS <= one.at <= late]
        if near:
            return near[0]
    return driver
