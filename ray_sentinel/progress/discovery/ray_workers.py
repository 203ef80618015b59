"""Finds ranks that run in Ray's workers, as tasks or actors, without ``attach()``.

Ray starts a worker before it knows what will run there, so nothing in the environment that the
process started with says that it is a rank; and some versions of Ray write the process's title over
it. So Ray is asked which actors exist, and the rank is taken from the process:

- Ray Train's log has run and rank (``train_log``);
- else the present environment has them (``live_environ``): ``RANK`` and its like, as set by the
  caller of ``init_process_group``;
- else, where threads show that the process is in a process group, ranks are counted in the order of
  their bundles, names or starts (``RayWorker.order``), which is noted in ``problems``.

What is known about a process is kept until it is idle again or ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.bounded import Bounded
from ray_sentinel.kernel_files import kernel_text
from ray_sentinel.progress.discovery.environment import (
    ROLE_VARIABLE,
    ToldRank,
    attempt_from,
    gpus_from,
    job_from,
    rank_from,
)
from ray_sentinel.progress.discovery.launchers import is_launcher
from ray_sentinel.progress.discovery.live_environ import LiveEnviron
from ray_sentinel.progress.discovery.ranks import Claim
from ray_sentinel.progress.discovery.train_log import has_log, read_words
from ray_sentinel.progress.proc.proc_stat import MAX_THREADS, Key, read_schedstat, task_ids
from ray_sentinel.progress.proc.processes import Process

# What the threads of a Ray worker show: whether it is in a process group, and which one trains.

_GROUP_THREADS = ("pt_gloo_", "pt_nccl_", "pt_ucc_", "gloo_tcp_loop")
"""Beginnings of the names that PyTorch gives to the threads of its process groups
(``c10::setThreadName``)."""


def thread_names(pid: int, proc: Path = Path("/proc")) -> dict[int, str]:
    """The kernel's names of a process's threads, by thread id; empty if it is gone."""
    tids = task_ids(pid, proc)[:MAX_THREADS]
    names = {tid: kernel_text(proc / str(pid) / "task" / str(tid) / "comm") for tid in tids}
    return {tid: name for tid, name in names.items() if name}


def in_process_group(names: Mapping[int, str]) -> bool:
    """Whether PyTorch has opened a process group in the process with these threads."""
    return any(name.startswith(_GROUP_THREADS) for name in names.values())


class TrainingThread:
    """The thread that trains in a Ray Train worker, whose main thread serves the controller.

    A thread that Python or Ray starts carries its creator's name. Of those other than the main
    thread, it is the one that ever used most CPU time between two looks: while training hangs,
    Ray's own threads go on and eventually exceed its total.
    """

    def __init__(self) -> None:
        self._used: dict[int, float] = {}
        self._most: dict[int, float] = {}
        """The most CPU seconds that each thread used between two looks; what it had used when first
        seen counts as one look's."""

    def find(self, pid: int, names: Mapping[int, str], proc: Path = Path("/proc")) -> int:
        """The thread id among the threads ``names`` of process ``pid``; 0 if there is none."""
        used: dict[int, float] = {}
        for tid, name in names.items():
            if tid == pid or name != names.get(pid):
                continue
            if (sched := read_schedstat(pid, tid, proc)) is not None:
                used[tid] = sched.cpu_seconds
        self._most = {
            tid: max(self._most.get(tid, 0.0), seconds - self._used.get(tid, 0.0))
            for tid, seconds in used.items()
        }
        self._used = used
        return max(self._most, key=lambda tid: self._most[tid], default=0)


YOUNG_SECONDS = 60.0
"""Seconds for which a new worker is looked at in every pass; after that every ``SELDOM_SECONDS``.
"""
SELDOM_SECONDS = 5.0
TRAIN_LOG_SECONDS = 15.0
"""Seconds that a process group may exist before Ray Train's log has a line about its rank."""

LOG_SECONDS = 0.5
"""Seconds to read such a log; a file that hangs is not read again before the first read returns."""

_TITLE = re.compile(r"^ray::(?!IDLE)\w")
_TRAIN = re.compile(r"^ray::(RayTrainWorker|_RayTrainWorker)")


class RayWorker(msgspec.Struct, frozen=True, kw_only=True):
    """An actor's process, as Ray describes it."""

    pid: int
    group: str
    """Name of the group of actors to which it belongs: the same for all ranks of a job."""
    attempt: int = 0
    order: int = 0
    """Its place among the actors of the group, counted from 0."""
    size: int = 1
    """How many actors of the group are alive."""


class _Known(msgspec.Struct, kw_only=True):
    """What is known of one worker so far."""

    since: float
    next_look: float = 0.0
    grouped_at: float | None = None
    """When it was first seen in a process group."""
    claim: Claim | None = None
    thread: TrainingThread = msgspec.field(default_factory=TrainingThread)
    training_tid: int = 0
    thread_due: float = 0.0


class RayRanks:
    """Finds ranks among the workers of one raylet at each poll."""

    def __init__(
        self,
        own_raylet: int | None,
        proc: Path = Path("/proc"),
        environ_of: Callable[[int], Mapping[str, str] | None] | None = None,
    ) -> None:
        """``own_raylet`` is the raylet's pid; ``environ_of`` reads a process's live variables."""
        self._raylet = own_raylet
        self._proc = proc
        self._environ_of = environ_of or LiveEnviron(proc).read
        self._known: dict[Key, _Known] = {}
        self._guessed: set[str] = set()
        """Groups of workers whose guessed ranks were already reported."""
        self.problems: list[str] = []
        self._logs: Bounded[str, tuple[ToldRank | None, bool]] = Bounded(LOG_SECONDS, most=1)

    def _train_words(self, pid: int) -> tuple[ToldRank | None, bool]:
        """What Ray Train's log says about a process, and whether there is a log for it. The log is
        in the folder of the process's output, which may hang."""

        def read() -> tuple[ToldRank | None, bool]:
            words = read_words(pid, self._proc)
            return words, words is not None or has_log(pid, self._proc)

        return self._logs.run({"log": read})[0].get("log", (None, False))

    def claims(
        self,
        workers: Iterable[RayWorker],
        table: Mapping[int, Process],
        attached: Collection[Key],
        now: float,
    ) -> tuple[Claim, ...]:
        """The ranks among the processes, except those in ``attached``; ``now`` is monotonic."""
        told = {worker.pid: worker for worker in workers}
        candidates = {
            process.key: process for process in table.values() if self._may_be_rank(process)
        }
        self._guessed &= {worker.group for worker in told.values()}
        self._known = {key: known for key, known in self._known.items() if key in candidates}
        found = []
        for key, process in candidates.items():
            if key in attached:
                continue
            known = self._known.setdefault(key, _Known(since=now))
            if known.claim is None and now >= known.next_look:
                young = now - known.since < YOUNG_SECONDS
                known.next_look = now + (0.0 if young else SELDOM_SECONDS)
                known.claim = self._decide(process, known, told.get(process.pid), table, now)
            if known.claim is not None:
                found.append(known.claim)
        return tuple(found)

    def training_tid(self, process: Process, now: float) -> int:
        """The id of the thread that trains, if it is not the main one; otherwise 0."""
        known = self._known.get(process.key)
        if known is None or _TRAIN.match(process.title) is None:
            return 0
        if now >= known.thread_due:
            known.thread_due = now + SELDOM_SECONDS
            names = thread_names(process.pid, self._proc)
            known.training_tid = known.thread.find(process.pid, names, self._proc)
        return known.training_tid

    def _may_be_rank(self, process: Process) -> bool:
        return (
            _TITLE.match(process.title) is not None
            and not is_launcher(process)
            and not process.is_ours
            # If it had a rank from the start, it is found like any other process.
            and rank_from(process.environ) is None
            and (self._raylet is None or any(pid == self._raylet for pid, _ in process.lineage))
        )

    def _decide(
        self,
        process: Process,
        known: _Known,
        worker: RayWorker | None,
        table: Mapping[int, Process],
        now: float,
    ) -> Claim | None:
        environ = self._environ_of(process.pid) or {}
        if environ.get(ROLE_VARIABLE):
            known.next_look = math.inf  # one of our own actors
            return None
        grouped = in_process_group(thread_names(process.pid, self._proc))
        if grouped and known.grouped_at is None:
            known.grouped_at = now
        words, begun = self._train_words(process.pid)
        if words is not None:
            return _claim(process, environ, worker, words)
        # While Train sets its workers up their title is that of a task, which may have any name.
        of_train = _TRAIN.match(process.title) or begun
        early = known.grouped_at is None or now - known.grouped_at < TRAIN_LOG_SECONDS
        if of_train and early:
            return None
        if (told := rank_from(environ)) is not None:
            # A worker keeps the variables of the last task that set them; an actor that started
            # its ranks as processes of their own has set them for these.
            ranked = grouped or (worker is not None and not _has_ranks_below(process, table))
            return _claim(process, environ, worker, told) if ranked else None
        if worker is None or worker.size < 2 or not grouped:
            return None
        self._note_guessed(worker.group)
        return _claim(process, environ, worker, ToldRank(source="ray", rank=worker.order))

    def _note_guessed(self, group: str) -> None:
        if group in self._guessed:
            return
        self._guessed.add(group)
        self.problems.append(
            f"{group}: nothing tells which rank is which; they are numbered in the order "
            "of their bundles, names or starts, which may not be theirs (set RANK in os.environ, "
            "or call attach(rank=...))"
        )


def _claim(
    process: Process,
    environ: Mapping[str, str],
    worker: RayWorker | None,
    told: ToldRank,
) -> Claim:
    group = worker.group if worker is not None else ""
    by_environ = rank_from(environ)
    if by_environ is not None:
        size = by_environ.world_size or told.world_size
    else:
        size = told.world_size or (worker.size if worker is not None else None)
    return Claim(
        pid=process.pid,
        start=process.start,
        job=environ.get("RAY_SENTINEL_JOB", "") or told.job or job_from(environ) or group,
        rank=told.rank,
        attempt=attempt_from(environ) or (worker.attempt if worker is not None else 0),
        world_size=size,
        local_rank=told.local_rank,
        gpus=gpus_from(environ),
        source="ray",
    )


def _has_ranks_below(process: Process, table: Mapping[int, Process]) -> bool:
    return any(
        process.key in other.lineage and other.interpreter and rank_from(other.environ) is not None
        for other in table.values()
    )
