"""Which of a process's threads shows where its rank is: the informative one."""

from __future__ import annotations

from collections.abc import Sequence

from ray_sentinel.evidence.stacks.frames import reading as rd
from ray_sentinel.evidence.stacks.frames.meanings import GIL, RAY, TASKLESS, Delegate
from ray_sentinel.evidence.stacks.frames.roles import (
    is_helper,
    of_engine,
    runs_event_loop,
    runs_method,
    trains,
    works_in_pool,
)
from ray_sentinel.model.stacks import Frame, StackTrace, ThreadStack, Tool

_SEES_PYTHON: frozenset[Tool] = frozenset(("py-spy-native", "py-spy", "companion", "faulthandler"))
_NOBODY = 0


class StackReader:
    """Reads stacks, each distinct one once: the ranks of a job have a few thousand.

    Frames are remembered by identity first (the parsers share equal stacks), then by value.
    """

    def __init__(self, *, follows: bool = False) -> None:
        """``follows``: if the main thread waits for some other thread, and only one of the others
        runs user code, that one is informative. For a rank, which waits for other ranks and not for
        its own threads, this would pick a logger's thread."""
        self.follows = follows
        # The frames are kept with the answer, so that their id stays theirs.
        self._by_id: dict[int, tuple[rd.StackReading, tuple[Frame, ...]]] = {}
        self._by_value: dict[tuple[Frame, ...], rd.StackReading] = {}
        self._scores: dict[tuple[str, int, Delegate], int] = {}

    def read(self, frames: tuple[Frame, ...]) -> rd.StackReading:
        """The meaning of ``frames``."""
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
        """The thread other than the main one that does the work, and how certain that is; the first
        in a tie."""
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


def training_tid(traces: Sequence[StackTrace], reader: StackReader) -> int | None:
    """The thread that trains, if it is not the main one and a tool that sees Python shows it."""
    for trace in traces:
        if trace.tool in _SEES_PYTHON:
            thread = informative_thread(trace.threads, reader)
            if thread is not None and not thread.main and trains(thread):
                return thread.tid
    return None


def informative_tid(traces: Sequence[StackTrace], reader: StackReader) -> int | None:
    """The informative thread, if it is not the main one and a tool that sees Python shows it."""
    for trace in traces:
        if trace.tool in _SEES_PYTHON and trace.threads:
            thread = informative_thread(trace.threads, reader)
            return None if thread is None or thread.main else thread.tid
    return None


def informative_thread(
    threads: Sequence[ThreadStack], reader: StackReader, tid: int | None = None
) -> ThreadStack | None:
    """The thread whose place is the rank's place: the main one, unless it only waits for another.

    The autograd engine, Ray's training thread and a pool's worker are found that way. If the thread
    ``tid`` is known to train, it takes the place of the main one, and no other is the rank's.
    """
    if tid is not None:
        training = next((thread for thread in threads if thread.tid == tid), None)
        return training and _at_work(threads, training, reader)
    main = next((thread for thread in threads if thread.main and thread.frames), None)
    if main is not None:
        return _at_work(threads, main, reader)
    _, best = reader.best(threads, "actor")
    return best or next((t for t in threads if t.frames and not is_helper(t)), None)


def event_loop(
    threads: Sequence[ThreadStack], telling: int | None, reader: StackReader
) -> ThreadStack | None:
    """The thread with the event loop of a Ray worker's coroutines, where the main thread, which is
    ``telling``, runs nothing; None if there are several: any of them may get further."""
    main = next((thread for thread in threads if thread.main), None)
    if main is None or main.tid != telling or reader.read(main.frames).meaning is not TASKLESS:
        return None
    found = [thread for thread in threads if not thread.main and runs_event_loop(thread)]
    return found[0] if len(found) == 1 else None


def _at_work(threads: Sequence[ThreadStack], main: ThreadStack, reader: StackReader) -> ThreadStack:
    """Where ``main`` only waits for another thread's work: that thread."""
    reading = reader.read(main.frames)
    if reading.meaning is None or not reading.meaning.delegates:
        return _gil_holder(threads, main, reading)
    _, best = reader.best(threads, reading.meaning.delegates)
    if best is None and reader.follows and reading.meaning.delegates in ("thread", "pool"):
        best = _only_worker(threads, reader)
    return best or main


def _only_worker(threads: Sequence[ThreadStack], reader: StackReader) -> ThreadStack | None:
    """The one thread besides the main one that runs code of the user's, and does not itself wait
    for another thread, as a queue's consumer without work does; None if there are several. One that
    waits for Ray is at work elsewhere."""
    found = []
    for thread in threads:
        meaning = reader.read(thread.frames).meaning
        # Every function of Ray's that the user calls passes through code of Ray's own threads.
        helps = thread.main or (is_helper(thread) and meaning is not RAY)
        if helps or not rd.runs_users_code(thread.frames):
            continue
        if meaning is None or not meaning.delegates:
            found.append(thread)
    return found[0] if len(found) == 1 else None


def _explains(reading: rd.StackReading, thread: ThreadStack, delegate: Delegate) -> int:
    """How well a thread explains what its main thread waits for; 0: not at all.

    A thread in a collective, at the device or in a checkpoint always does. One that sleeps or runs
    unknown code may belong to anything, unless the main thread is known to wait for a thread like
    it.
    """
    meaning = reading.meaning
    if meaning is not None and meaning.activity == "idle":
        return 0
    score = 6 if meaning is not None and meaning.level >= 3 else 0
    if (delegate == "pool" and works_in_pool(thread)) or (
        delegate == "engine" and of_engine(thread)
    ):
        return max(score, 3)
    if delegate == "actor":
        return max(score, _serves_calls(reading, thread))
    return score


def _serves_calls(reading: rd.StackReading, thread: ThreadStack) -> int:
    """``_explains`` for a thread in which an actor may run its calls while its main thread is
    idle."""
    if trains(thread) or runs_method(thread):
        return 5
    if rd.runs_users_code(thread.frames):
        waits = reading.meaning is not None and reading.meaning.delegates
        return 3 if waits else 4
    return 2 if reading.meaning is None else 1


def _gil_holder(
    threads: Sequence[ThreadStack], main: ThreadStack, reading: rd.StackReading
) -> ThreadStack:
    """Who keeps the GIL, where the main thread waits for it and a tool says who has it."""
    if reading.meaning is None or reading.meaning.activity != "gil-wait":
        return main
    return next((t for t in threads if t.holds_gil and t.frames), main)
