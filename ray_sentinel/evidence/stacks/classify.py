"""From one process's stacks, of one tool or of several, to what it is doing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.evidence.stacks.frames import meanings as m
from ray_sentinel.evidence.stacks.frames import reading as rd
from ray_sentinel.evidence.stacks.frames.informative_threads import (
    StackReader,
    event_loop,
    informative_thread,
    informative_tid,
    training_tid,
)
from ray_sentinel.evidence.stacks.frames.names import is_eval_loop
from ray_sentinel.evidence.stacks.frames.roles import (
    helper_process,
    is_helper,
    runs_coroutines,
    runs_event_loop,
    runs_method,
    trains,
)
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.progress import OVER, STOPPED
from ray_sentinel.model.stacks import Frame, StackFact, StackTrace, ThreadStack, Tool

T = TypeVar("T")

_PREFERRED: tuple[Tool, ...] = (
    "py-spy-native",
    "py-spy",
    "companion",
    "faulthandler",
    "cuda-gdb",
    "gdb",
    "kernel",
)
_OF_ALL = STOPPED | OVER
"""States that a process has as a whole; any other state is that of its main thread alone."""
_ONLY_HELPERS = "only libraries' own threads are there: the thread that trains is missing"
_COLLECTIVE_KERNEL = ("nccl", "rccl", "msccl", "deep_ep", "nvshmem", "symm_mem", "multimem")


def classify(
    trace: StackTrace, reader: StackReader | None = None, tid: int | None = None
) -> StackFact:
    """What one tool's stacks of one process show; ``tid`` is the thread that trains, if known."""
    reader = reader or StackReader()
    fact = StackFact(
        process=trace.process,
        rank=trace.rank,
        tool=trace.tool,
        at=trace.at,
        error=trace.error,
        state=trace.state,
        kernels=tuple(kernel.name for kernel in trace.kernels),
        kernels_listed=trace.kernels_listed,
        command=trace.command,
        helper=helper_process(trace),
    )
    thread = informative_thread(trace.threads, reader, tid)
    if thread is None:
        # Nothing is known of the host: the kernels tell where the process stands.
        if fact.kernels:
            return _with_device(msgspec.structs.replace(fact, activity="device-wait"))
        if any(other.frames for other in trace.threads) and not fact.error:
            return msgspec.structs.replace(fact, error=_ONLY_HELPERS)
        return fact
    reading = reader.read(thread.frames)
    waiters = _gil_waiters(trace, reader)
    meaning = reading.meaning
    fact = msgspec.structs.replace(
        fact,
        signature=reading.signature,
        activity=meaning.activity if meaning else "unknown",
        label=reading.label or _where(thread.frames),
        waits_for_others=meaning.waits if meaning else None,
        operation=reading.operation,
        thread=thread.name or (str(thread.tid) if thread.tid else ""),
        tid=thread.tid,
        users_code=rd.runs_users_code(thread.frames),
        users_place=rd.users_place(thread.frames),
        rests=_rests(trace, thread, reader),
        active=thread.active,
        state=_state(trace, thread),
        holds_gil=thread.holds_gil,
        gil_waiters=waiters,
        keeps_gil=_keeps_gil(thread, reading, waiters),
        runs_python=any(map(is_eval_loop, thread.frames[:1])),
        aborts=_aborts(trace),
        blocks=_of_places(reading.signature, trace.blocks),
    )
    return _with_device(fact)


def awaits_child(fact: StackFact) -> bool:
    """Whether a process waits for the end of one that it has started, or for what one may send: by
    a pipe, by a queue between processes, or as the next batch of a data loader."""
    return fact.label in (m.CHILD.label, m.FIFO.label, m.READ.label) or any(
        _BETWEEN_PROCESSES.search(place) for place in fact.signature[-1:]
    )


def awaits_network(fact: StackFact) -> bool:
    """Whether a process waits for the network, and so may wait for one that it has started."""
    return fact.label == m.NETWORK.label


def awaits_pool(fact: StackFact, traces: Sequence[StackTrace]) -> bool:
    """Whether a process waits for threads of its own, and one of them hands on what a pool of
    processes brings."""
    waits = fact.label in (m.EVENT.label, m.QUEUE.label, m.JOIN.label, m.FUTURE.label)
    if not waits and not rests_in_coroutines(fact, traces):
        return False
    frames = (frame for trace in traces for one in trace.threads for frame in one.frames)
    return any(frame.file.replace("\\", "/").endswith(_POOLS) for frame in frames)


def rests_in_coroutines(fact: StackFact, traces: Iterable[StackTrace]) -> bool:
    """Whether nothing runs in a process that has an event loop: its coroutines, if there are any,
    await something, which may be a program that one has started."""
    threads = (thread for trace in traces for thread in trace.threads)
    return fact.activity == "idle" and any(map(runs_event_loop, threads))


_BETWEEN_PROCESSES = re.compile(
    r" \((.*/)?(multiprocessing/connection|torch/utils/data/dataloader)\.py:"
)
"""Places in which a process waits for what another one may send."""
_POOLS = ("multiprocessing/pool.py", "concurrent/futures/process.py", "loky/process_executor.py")
"""Files whose functions run in threads of a process that has a pool of others."""


def classify_process(traces: Sequence[StackTrace], reader: StackReader | None = None) -> StackFact:
    """What several tools' stacks of one process, from one round, show together.

    The tool that explains most decides what the process does; its place in the code is taken from
    py-spy if possible, because that is what two rounds have in common. Raises ValueError without a
    trace.
    """
    if not traces:
        raise ValueError("no traces of the process")
    reader = reader or StackReader()
    ordered = sorted(traces, key=lambda trace: _PREFERRED.index(trace.tool))
    tid = training_tid(ordered, reader)
    # The kernel's stacks show no frame of Python: which thread's place is the process's, other
    # tools tell.
    seen = tid if tid is not None else informative_tid(ordered, reader)
    facts = [classify(trace, reader, seen if trace.tool == "kernel" else tid) for trace in ordered]
    if _at_prompt(ordered, reader):
        meaning = m.PROMPT
        return msgspec.structs.replace(
            _combined(ordered, facts, reader, tid),
            activity=meaning.activity,
            label=meaning.label,
            waits_for_others=meaning.waits,
            users_code=False,
            error="",
        )
    fact = facts[0] if len(facts) == 1 else _combined(ordered, facts, reader, tid)
    if not reader.follows:
        return fact
    return _with_others(_of_event_loop(fact, ordered, reader), ordered)


def _with_others(fact: StackFact, traces: Iterable[StackTrace]) -> StackFact:
    """The fact with whether the user's code runs in other threads than the telling one, too: they
    may bring what another process awaits."""
    # If it is not the main thread that tells, that waits for the one that does.
    others = (
        thread
        for trace in traces
        for thread in trace.threads
        if not thread.main and thread.tid != fact.tid and not is_helper(thread)
    )
    beside = any(rd.runs_users_code(thread.frames) for thread in others)
    return msgspec.structs.replace(fact, users_code_beside=beside) if beside else fact


def _of_event_loop(fact: StackFact, traces: Iterable[StackTrace], reader: StackReader) -> StackFact:
    """The fact of a Ray worker whose main thread runs nothing, with its event loop as the thread
    that tells: whether that is put on a CPU shows whether any of its coroutines gets further."""
    found = (event_loop(trace.threads, fact.tid, reader) for trace in traces)
    loop = next((thread for thread in found if thread is not None), None)
    if loop is None or fact.activity != "idle":
        return fact
    return msgspec.structs.replace(fact, tid=loop.tid, thread=loop.name)


def _at_prompt(traces: Iterable[StackTrace], reader: StackReader) -> bool:
    """Whether an interpreter waits for a person to type: its main thread runs no code of Python,
    and polls or reads. An interpreter that is about to end polls nothing."""
    bare = polls = False
    for trace in traces:
        main = next((thread for thread in trace.threads if thread.main), None)
        if main is None or trace.error:
            continue
        if trace.tool in ("py-spy", "py-spy-native"):
            bare = main.active is not True and all(frame.native for frame in main.frames)
        elif trace.tool == "kernel":
            polls = reader.read(main.frames).meaning in (m.POLL, m.FIFO, m.READ)
    return bare and polls


def _rests(trace: StackTrace, telling: ThreadStack, reader: StackReader) -> bool:
    main = next((thread for thread in trace.threads if thread.main), None)
    if main is None or telling.main or trains(telling):
        return False
    if runs_method(telling) or runs_coroutines(telling):
        return False  # while a coroutine runs, no other of the actor's gets further
    meaning = reader.read(main.frames).meaning
    return meaning is not None and meaning.activity == "idle"


def _state(trace: StackTrace, thread: ThreadStack) -> str:
    """The state of one thread according to the scheduler, which is seldom that of the process."""
    if trace.state in _OF_ALL:
        return trace.state
    return thread.state or (trace.state if thread.main else "")


def _combined(
    traces: Sequence[StackTrace], facts: Sequence[StackFact], reader: StackReader, tid: int | None
) -> StackFact:
    levels = [_level(trace, reader, tid) for trace in traces]
    best = max(range(len(facts)), key=lambda i: (levels[i], -i))
    base, chosen = next((f for f in facts if f.signature), facts[0]), facts[best]
    # Kernel stacks alone are not what was requested: the reason for that must be given.
    usable = any(fact.signature and fact.tool != "kernel" for fact in facts)
    device = next((fact for fact in facts if fact.kernels_listed is not None), None)
    fact = msgspec.structs.replace(
        base,
        activity=chosen.activity,
        label=chosen.label or base.label,
        waits_for_others=chosen.waits_for_others,
        operation=_first(
            chosen.operation, *(f.operation for f in facts if f.activity == chosen.activity)
        ),
        rank=_known(fact.rank for fact in facts),
        active=_known(fact.active for fact in facts),
        holds_gil=True if any(f.holds_gil for f in facts) else _known(f.holds_gil for f in facts),
        gil_waiters=max(fact.gil_waiters for fact in facts),
        keeps_gil=any(fact.keeps_gil for fact in facts),
        runs_python=any(fact.runs_python for fact in facts),
        aborts=any(fact.aborts for fact in facts),
        blocks=_of_places(base.signature, *(trace.blocks for trace in traces)),
        state=_first(*(fact.state for fact in facts)),
        kernels=device.kernels if device else (),
        kernels_listed=device.kernels_listed if device else None,
        helper=_first(*(fact.helper for fact in facts)),
        command=_first(*(fact.command for fact in facts)),
        error="" if usable else "; ".join(dict.fromkeys(f.error for f in facts if f.error)),
    )
    return _with_device(fact)


def _of_places(
    signature: Iterable[str], *blocks: Mapping[str, tuple[str, ...]]
) -> dict[str, tuple[str, ...]]:
    known = {place: around for trace in blocks for place, around in trace.items()}
    return {place: known[place] for place in signature if place in known}


def _gil_waiters(trace: StackTrace, reader: StackReader) -> int:
    if trace.tool in ("py-spy", "companion", "faulthandler", "kernel"):
        return 0  # without native frames nobody is seen to wait for it
    return reader.gil_waiters(trace.threads)


def _aborts(trace: StackTrace) -> bool:
    """Whether any thread, the watchdog's mostly, aborts a communicator."""
    return any(
        frame.native and "ommAbort" in frame.function
        for one in trace.threads
        for frame in one.frames
    )


def _keeps_gil(thread: ThreadStack, reading: rd.StackReading, waiters: int) -> bool:
    """Whether a thread has the GIL without running Python.

    Told by py-spy (it owns the GIL and is idle), or by others that wait for the GIL while this one
    is in C, not in a call of CPython that releases the GIL.
    """
    if reading.meaning and (reading.meaning.waits or reading.meaning.activity == "gil-wait"):
        return False
    if rd.lets_gil_go(thread.frames):
        return False
    if thread.holds_gil and thread.active is False:
        return True
    return waiters > 0 and thread.holds_gil is not False and reading.native_leaf


def _level(trace: StackTrace, reader: StackReader, tid: int | None) -> int:
    thread = informative_thread(trace.threads, reader, tid)
    return reader.read(thread.frames).level if thread else -1


def with_kernels(fact: StackFact, kernels: tuple[str, ...]) -> StackFact:
    """The fact of a sampled process, with the kernels that a debugger has listed on its device."""
    return _with_device(msgspec.structs.replace(fact, kernels=kernels, kernels_listed=True))


def _with_device(fact: StackFact) -> StackFact:
    """Let the kernels on the device say whether a wait for it is a wait for others."""
    if not fact.kernels or fact.activity not in ("device-wait", "unknown", "compute"):
        return fact
    collective = [name for name in fact.kernels if is_collective_kernel(name)]
    if collective:
        operation = rd.operation_name(collective[0])
        return msgspec.structs.replace(
            fact,
            waits_for_others=True,
            operation=fact.operation or operation,
            label=f"on the device in {operation or 'a collective'}",
        )
    if fact.activity != "device-wait":
        return fact
    return msgspec.structs.replace(
        fact, waits_for_others=False, label=f"waiting for the kernel {fact.kernels[0][:120]}"
    )


def is_collective_kernel(name: str) -> bool:
    """Whether a device kernel belongs to a communication library."""
    lowered = name.lower()
    return any(word in lowered for word in _COLLECTIVE_KERNEL) or lowered.startswith(
        ("all_reduce", "cross_device_reduce", "allreduce_fusion", "vllm::cross_device")
    )


def _where(frames: tuple[Frame, ...]) -> str:
    """A phrase for a stack that no row matches: its innermost Python frame, else the innermost
    frame."""
    frame = next((frame for frame in frames if not frame.native), frames[0] if frames else None)
    if frame is None:
        return ""
    where = f" ({frame.file}:{frame.line})" if frame.line else ""
    return f"in {frame.function[:120]}{where}"


def _first(*texts: str) -> str:
    return next((text for text in texts if text), "")


def _known(values: Iterable[T | None]) -> T | None:
    return next((value for value in values if value is not None), None)


def by_process(traces: Iterable[StackTrace]) -> dict[ProcessId, list[StackTrace]]:
    """Traces grouped by process, in the order in which the processes first appear."""
    found: dict[ProcessId, list[StackTrace]] = {}
    for trace in traces:
        found.setdefault(trace.process, []).append(trace)
    return found
