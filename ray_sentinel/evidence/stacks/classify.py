"""From one process's stacks, of one tool or of several, to what it is doing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from ray_sentinel.evidence.stacks import reading as rd
from ray_sentinel.evidence.stacks.meanings import GIL, Delegate
from ray_sentinel.evidence.stacks.roles import (
    helper_process,
    is_helper,
    trains,
    works_in_pool,
)
from ray_sentinel.model.identity import ProcessId
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
_SEES_PYTHON: frozenset[Tool] = frozenset(("py-spy-native", "py-spy", "companion", "faulthandler"))
_COLLECTIVE_KERNEL = ("nccl", "rccl", "msccl", "deep_ep", "nvshmem", "symm_mem", "multimem")


_NOBODY = 0


class Reader:
    """Reads stacks, each distinct one once: the ranks of a job repeat a few thousand.

    Frames are remembered by identity first (the parsers share equal stacks), then by value.
    """

    def __init__(self) -> None:
        # The frames are kept with the answer, so that their id stays theirs.
        self._by_id: dict[int, tuple[rd.Reading, tuple[Frame, ...]]] = {}
        self._by_value: dict[tuple[Frame, ...], rd.Reading] = {}
        self._scores: dict[tuple[str, int, Delegate], int] = {}

    def read(self, frames: tuple[Frame, ...]) -> rd.Reading:
        """The reading of ``frames``."""
        known = self._by_id.get(id(frames))
        if known is not None:
            return known[0]
        found = self._by_value.get(frames)
        if found is None:
            found = self._by_value[frames] = rd.read(frames)
        self._by_id[id(frames)] = (found, frames)
        return found

    def best(
        self, threads: Sequence[ThreadStack], delegate: Delegate
    ) -> tuple[int, ThreadStack | None]:
        """The thread besides the main one that does the work, and how sure; the first of equals."""
        scores = self._scores
        top, chosen = _NOBODY, None
        for thread in threads:
            score = scores.get((thread.name, id(thread.frames), delegate))
            if score is None:
                score = self._score(thread, delegate)
            if score > top and not thread.main:
                top, chosen = score, thread
        return top, chosen

    def _score(self, thread: ThreadStack, delegate: Delegate) -> int:
        reading = self.read(thread.frames)
        if thread.main:
            return _NOBODY
        if not thread.frames or is_helper(thread):
            score = _NOBODY
        else:
            score = _explains(reading, thread, delegate)
        self._scores[thread.name, id(thread.frames), delegate] = score
        return score

    def gil_waiters(self, threads: Sequence[ThreadStack]) -> int:
        """How many threads wait for the GIL."""
        count = 0
        for thread in threads:
            known = self._by_id.get(id(thread.frames))
            reading = known[0] if known is not None else self.read(thread.frames)
            if reading.meaning is GIL:
                count += 1
        return count


def classify(trace: StackTrace, reader: Reader | None = None, tid: int | None = None) -> StackFact:
    """What one tool's stacks of one process say; ``tid`` is the thread that trains, if known."""
    reader = reader or Reader()
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
    thread = telling_thread(trace.threads, reader, tid)
    if thread is None:
        return _with_device(fact)
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
        active=thread.active,
        state=fact.state or thread.state,
        holds_gil=thread.holds_gil,
        gil_waiters=waiters,
        keeps_gil=_keeps_gil(thread, reading, waiters),
    )
    return _with_device(fact)


def classify_process(traces: Sequence[StackTrace], reader: Reader | None = None) -> StackFact:
    """What several tools' stacks of one process, of one round, say together.

    The tool that explains most decides what the process does; its place in the code is taken from
    py-spy where there is one, for that is what two rounds have in common.
    Raises ValueError without a trace.
    """
    if not traces:
        raise ValueError("no traces of the process")
    reader = reader or Reader()
    ordered = sorted(traces, key=lambda trace: _PREFERRED.index(trace.tool))
    tid = _training_tid(ordered, reader)
    facts = [classify(trace, reader, tid) for trace in ordered]
    return facts[0] if len(facts) == 1 else _combined(ordered, facts, reader, tid)


def _training_tid(traces: Sequence[StackTrace], reader: Reader) -> int | None:
    """The thread that trains, where it is not the main one and a tool that sees Python says so."""
    for trace in traces:
        if trace.tool in _SEES_PYTHON:
            thread = telling_thread(trace.threads, reader)
            if thread is not None and not thread.main and trains(thread):
                return thread.tid
    return None


def _combined(
    traces: Sequence[StackTrace], facts: Sequence[StackFact], reader: Reader, tid: int | None
) -> StackFact:
    levels = [_level(trace, reader, tid) for trace in traces]
    best = max(range(len(facts)), key=lambda i: (levels[i], -i))
    base, chosen = next((f for f in facts if f.signature), facts[0]), facts[best]
    # The kernel's side alone is not what was asked for: why there is no more must be said.
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
        state=_first(*(fact.state for fact in facts)),
        kernels=device.kernels if device else (),
        kernels_listed=device.kernels_listed if device else None,
        helper=_first(*(fact.helper for fact in facts)),
        command=_first(*(fact.command for fact in facts)),
        error="" if usable else "; ".join(dict.fromkeys(f.error for f in facts if f.error)),
    )
    return _with_device(fact)


def telling_thread(
    threads: Sequence[ThreadStack], reader: Reader, tid: int | None = None
) -> ThreadStack | None:
    """The thread whose place is the rank's place: the main one, unless it only waits for another.

    The autograd engine, Ray's training thread and a pool's worker are found that way. Where the
    thread ``tid`` is known to train, it stands for the main one, and no other is the rank's.
    """
    if tid is not None:
        training = next((thread for thread in threads if thread.tid == tid), None)
        return training and _at_work(threads, training, reader)
    main = next((thread for thread in threads if thread.main and thread.frames), None)
    if main is not None:
        return _at_work(threads, main, reader)
    _, best = reader.best(threads, "actor")
    return best or next((thread for thread in threads if thread.frames), None)


def _at_work(threads: Sequence[ThreadStack], main: ThreadStack, reader: Reader) -> ThreadStack:
    """Where ``main`` only waits for another thread's work: that thread."""
    reading = reader.read(main.frames)
    if reading.meaning is None or not reading.meaning.delegates:
        return _gil_holder(threads, main, reading)
    _, best = reader.best(threads, reading.meaning.delegates)
    return best or main


def _explains(reading: rd.Reading, thread: ThreadStack, delegate: Delegate) -> int:
    """How well a thread explains what its main thread waits for; 0: not at all.

    A thread in a collective, at the device or in a checkpoint always does. One that sleeps or runs
    unknown code may be anybody's, unless the main thread is known to wait for a thread like it.
    """
    meaning = reading.meaning
    if meaning is not None and meaning.activity == "idle":
        return 0
    score = 5 if meaning is not None and meaning.level >= 3 else 0
    if delegate == "pool" and works_in_pool(thread.frames):
        return max(score, 3)
    if delegate == "actor":
        return max(score, 4 if trains(thread) else 2 if meaning is None else 1)
    return score


def _gil_holder(
    threads: Sequence[ThreadStack], main: ThreadStack, reading: rd.Reading
) -> ThreadStack:
    """Who keeps the GIL, where the main thread waits for it and a tool says who has it."""
    if reading.meaning is None or reading.meaning.activity != "gil-wait":
        return main
    return next((t for t in threads if t.holds_gil and t.frames), main)


def _gil_waiters(trace: StackTrace, reader: Reader) -> int:
    if trace.tool in ("py-spy", "companion", "faulthandler", "kernel"):
        return 0  # without native frames nobody is seen to wait for it
    return reader.gil_waiters(trace.threads)


def _keeps_gil(thread: ThreadStack, reading: rd.Reading, waiters: int) -> bool:
    """Whether a thread has the GIL without running Python.

    Told by py-spy (it owns the GIL and is idle), or by others that wait for the GIL while this one
    is in C, in no call of CPython's that lets the GIL go.
    """
    if reading.meaning and (reading.meaning.waits or reading.meaning.activity == "gil-wait"):
        return False
    if rd.lets_gil_go(thread.frames):
        return False
    if thread.holds_gil and thread.active is False:
        return True
    return waiters > 0 and thread.holds_gil is not False and reading.native_leaf


def _level(trace: StackTrace, reader: Reader, tid: int | None) -> int:
    thread = telling_thread(trace.threads, reader, tid)
    return reader.read(thread.frames).level if thread else -1


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
    """A phrase for a stack that no row knows: its innermost Python frame, else the innermost."""
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
    """Traces grouped by process, in the order in which the processes were first met."""
    found: dict[ProcessId, list[StackTrace]] = {}
    for trace in traces:
        found.setdefault(trace.process, []).append(trace)
    return found
