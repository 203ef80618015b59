"""One node's share of an incident: samples all ranks, then traces a few of them in depth.

``sample`` takes one harmless look at every rank. ``capture`` does that too, and then runs the
intrusive tools against suspects and one waiter of each class, ``CaptureConfig.intrusive_at_once``
processes at a time. Neither writes a file nor raises for what a tool does: the contents of the
bundle's files are returned, and what went wrong is described in words. Both block: call them from a
thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec

from ray_sentinel.capture import guard
from ray_sentinel.capture.child_work import (
    KernelTables,
    answering_child_work,
    child_work,
    coroutines_child_work,
)
from ray_sentinel.capture.program_text import ProgramText
from ray_sentinel.capture.states import uses_cuda
from ray_sentinel.capture.timed_sleep import wakes_at
from ray_sentinel.capture.tracer import Traced, Tracer, all_tracers
from ray_sentinel.capture.tracers.kernel import trace_tasks
from ray_sentinel.config import CaptureConfig, safe_name
from ray_sentinel.evidence.stacks import (
    StackReader,
    awaits_child,
    awaits_network,
    awaits_pool,
    classify_process,
    informative_thread,
    rests_in_coroutines,
)
from ray_sentinel.masking import mask, mask_bytes
from ray_sentinel.model.identity import ProcessId, Rank
from ray_sentinel.model.stacks import StackFact, StackTrace
from ray_sentinel.progress.proc.proc_stat import read_schedstat

_PROGRAM_TEXT = ProgramText()

PROCESS_SECONDS = 60.0
"""Seconds for cuda-gdb on each process of a thorough capture, beyond ``CaptureConfig.deadline``."""
SAMPLE_DEADLINE = 8.0
"""Seconds to sample one process; usually it takes 20 ms."""


class CaptureOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What the tools returned for the processes of one node."""

    facts: tuple[StackFact, ...] = ()
    """One fact for each process, from all its tools together."""
    files: dict[str, bytes] = {}
    """Name → contents of the bundle's files."""
    problems: tuple[str, ...] = ()
    traced: tuple[Traced, ...] = ()
    """Every run of every tool: its time, the pause it caused, and what it left behind."""
    pauses: dict[str, float] = {}
    """"TOOL HOST PID" → seconds for which the process was stopped."""


def sample_processes(
    processes: Sequence[ProcessId], *, parallel: int = 8, deadline: float = SAMPLE_DEADLINE
) -> tuple[StackFact, ...]:
    """Sample each process, rank or not, as ``sample`` does; where its main thread waits for another
    thread, that one is sampled."""
    if not processes:
        return ()

    def trace_one(process: ProcessId) -> list[Traced]:
        return _harmless(process, deadline, follows=True)

    with ThreadPoolExecutor(min(parallel, len(processes)), "ray-sentinel-trace") as pool:
        found = list(pool.map(trace_one, processes))
    reader, tables = StackReader(follows=True), KernelTables()
    return tuple(_fact_of([run.trace for run in runs], reader, tables) for runs in found)


def _fact_of(traces: Sequence[StackTrace], reader: StackReader, tables: KernelTables) -> StackFact:
    """What the stacks of a process show, with what the kernel tells of its waits."""
    fact = classify_process(traces, reader)
    pid, children = fact.process.pid, None
    if awaits_child(fact) or awaits_pool(fact, traces):
        children = child_work(pid, fact.tid or pid, tables)
    elif awaits_network(fact):
        children = answering_child_work(pid, tables)
    elif rests_in_coroutines(fact, traces):
        children = coroutines_child_work(pid, tables)
    return _with_schedule(msgspec.structs.replace(fact, children=children))


def _with_schedule(fact: StackFact) -> StackFact:
    """The fact with how often its thread was put on a CPU, and until when it waits: the tools do
    not wake what they sample, so only a thread that runs has a higher number later."""
    pid, tid = fact.process.pid, fact.tid
    if tid is None or (found := read_schedstat(pid, tid)) is None:
        return fact
    return msgspec.structs.replace(
        fact,
        switches=found.switches,
        wanted=found.cpu_seconds + found.delay_seconds,
        ran=found.cpu_seconds,
        wakes_at=wakes_at(pid, tid),
    )


def _harmless(process: ProcessId, deadline: float, *, follows: bool = False) -> list[Traced]:
    """The Python stacks, and what the informative thread and the main one wait in."""
    python = guard.trace(all_tracers()["py-spy"], process, deadline)
    telling = informative_thread(python.trace.threads, StackReader(follows=follows))
    tids = {process.pid, telling.tid if telling is not None else None}
    return [python, trace_tasks(process, deadline, {tid for tid in tids if tid is not None})]


def sample(
    ranks: Sequence[Rank], *, parallel: int = 8, deadline: float = SAMPLE_DEADLINE
) -> CaptureOutcome:
    """Sample each rank without stopping it: Python stacks, and what its threads wait in."""

    def trace_one(rank: Rank) -> list[Traced]:
        return _harmless(rank.process, deadline)

    return _outcome(ranks, _parallel(ranks, trace_one, parallel), files=False)


def capture(
    suspects: Sequence[Rank],
    waiters: Sequence[Rank] = (),
    others: Sequence[Rank] = (),
    config: CaptureConfig | None = None,
    *,
    thorough: bool = False,
) -> CaptureOutcome:
    """Harmless tools on all, then the intrusive ones on suspects and waiters, suspects first.

    ``config.deadline`` is for all intrusive tools on this node together: one tool on one process
    gets a third of it, but at least 10 s and never more than what is left. ``thorough``: cuda-gdb,
    if it is configured, on all, each for ``PROCESS_SECONDS``.
    """
    config = config or CaptureConfig()
    everyone = _unique((*suspects, *waiters, *others))
    tracers = all_tracers()
    harmless = [tracer for tracer in tracers.values() if not tracer.intrusive]

    def trace_one(rank: Rank) -> list[Traced]:
        return [guard.trace(tracer, rank.process, SAMPLE_DEADLINE) for tracer in harmless]

    found = _parallel(everyone, trace_one, config.samples_at_once)
    chosen = [tracers[name] for name in intrusive_tools(config) if name in tracers]
    thorough = thorough and config.cuda_gdb
    if config.intrusive_at_once:
        sparing = [tracer for tracer in chosen if not (thorough and tracer.name == "cuda-gdb")]
        deeper = run_intrusive(_unique((*suspects, *waiters)), sparing, config)
        for process, results in deeper.items():
            found[process] += results
        if thorough:
            for process, results in _trace_everywhere(everyone, config).items():
                found[process] += results
    return _outcome(everyone, found, files=True, skipped=thorough)


def intrusive_tools(config: CaptureConfig) -> list[str]:
    """Names of the intrusive tools, in the order in which they run."""
    wanted = {"py-spy-native": config.native, "gdb": config.gdb, "cuda-gdb": config.cuda_gdb}
    return [name for name, use in wanted.items() if use]


def _trace_everywhere(
    ranks: Sequence[Rank], config: CaptureConfig
) -> dict[ProcessId, list[Traced]]:
    """Run cuda-gdb on each process, however long the others took."""
    tracer = all_tracers()["cuda-gdb"]
    missing = tracer.available()

    def trace_one(rank: Rank) -> list[Traced]:
        if missing:
            return [guard.skipped(tracer, rank.process, missing, absent=True)]
        if uses_cuda(rank.process.pid) is False:
            why = "cuda-gdb: not run: the process has no NVIDIA device open"
            return [guard.skipped(tracer, rank.process, why)]
        return [guard.trace(tracer, rank.process, PROCESS_SECONDS)]

    return _parallel(ranks, trace_one, config.intrusive_at_once)


def run_intrusive(
    ranks: Sequence[Rank], tracers: Sequence[Tracer], config: CaptureConfig
) -> dict[ProcessId, list[Traced]]:
    """Run the intrusive tools one after the other on each process, until the node's time is up."""
    missing = {tracer.name: tracer.available() for tracer in tracers}
    end = time.monotonic() + config.deadline

    def trace_one(rank: Rank) -> list[Traced]:
        results = []
        for tracer in tracers:
            left = end - time.monotonic()
            if missing[tracer.name]:
                result = guard.skipped(tracer, rank.process, missing[tracer.name], absent=True)
            elif tracer.name == "cuda-gdb" and uses_cuda(rank.process.pid) is False:
                # It would stop the process for seconds, and find nothing that gdb does not.
                continue
            elif left < 1.0:
                used_up = f"the {config.deadline:g} s of this node were used up"
                result = guard.skipped(tracer, rank.process, f"{tracer.name}: not run: {used_up}")
            else:
                # One tool that hangs must not use up the time of all the others.
                result = guard.trace(
                    tracer, rank.process, min(left, max(10.0, config.deadline / 3))
                )
            results.append(result)
        return results

    return _parallel(ranks, trace_one, config.intrusive_at_once)


def _parallel(
    ranks: Sequence[Rank], trace_one: Callable[[Rank], list[Traced]], parallel: int
) -> dict[ProcessId, list[Traced]]:
    if not ranks:
        return {}
    with ThreadPoolExecutor(min(parallel, len(ranks)), "ray-sentinel-trace") as pool:
        return dict(zip((rank.process for rank in ranks), pool.map(trace_one, ranks), strict=True))


def _unique(ranks: Iterable[Rank]) -> list[Rank]:
    return list({rank.process: rank for rank in ranks}.values())


def _outcome(
    ranks: Sequence[Rank],
    found: dict[ProcessId, list[Traced]],
    *,
    files: bool,
    skipped: bool = False,
) -> CaptureOutcome:
    """``skipped``: there is also a file for each tool that was not run, which says why."""
    reader = StackReader()
    facts: list[StackFact] = []
    problems: dict[str, None] = {}
    contents: dict[str, bytes] = {}
    found = _PROGRAM_TEXT.add(found)
    for rank in _unique(ranks):
        runs = [
            msgspec.structs.replace(run, trace=msgspec.structs.replace(run.trace, rank=rank.id))
            for run in found[rank.process]
        ]
        facts.append(classify_process([run.trace for run in runs], reader))
        problems |= dict.fromkeys(_problems(rank, runs))
        if files:
            contents |= _files(rank, runs, skipped)
    every = tuple(run for runs in found.values() for run in runs)
    return CaptureOutcome(
        facts=tuple(facts),
        files=contents,
        problems=tuple(problems),
        traced=every,
        pauses={
            f"{run.tool} {run.trace.process.host} {run.trace.process.pid}": run.paused
            for run in every
            if run.paused is not None
        },
    )


def _problems(rank: Rank, runs: Iterable[Traced]) -> list[str]:
    where = f"rank {rank.id.rank} ({rank.process.host} pid {rank.process.pid})"
    said: list[str] = []
    for run in runs:
        # Kernel stacks are an extra that only root has; a missing tool is reported once for the
        # node, not once for each rank.
        if run.problem and run.tool != "kernel":
            said.append(run.problem if run.absent else f"{where}: {run.problem}")
        if run.continued:
            said.append(f"{where}: {run.tool} had left it stopped; it was continued")
    return said


def _files(rank: Rank, runs: Sequence[Traced], skipped: bool) -> dict[str, bytes]:
    """The runs' outputs by file name."""
    host = safe_name(rank.process.host) or "unknown"
    tracers = all_tracers()
    named: dict[str, bytes] = {}
    for run in runs:
        if run.raw.strip():
            named[f"{tracers[run.tool].prefix}_{host}_{rank.process.pid}.txt"] = mask_bytes(run.raw)
        elif run.problem and (skipped or not run.skipped):
            name = f"{tracers[run.tool].prefix}_{host}_{rank.process.pid}.txt"
            named.setdefault(name, f"# {mask(run.problem)}\n".encode())
    return named
