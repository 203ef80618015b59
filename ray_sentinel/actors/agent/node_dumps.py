"""The flight recorders of this node's ranks: asked for side by side, read one at a time.

A rank is asked through its companion thread, or through PyTorch's watchdog where it did not attach.
What it wrote is read, reduced in a child (``capture.dump_reducer``) and dropped before the next one
is read: a node's answer is bounded, in bytes and in time, and so is what it costs to make it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, TimeoutError, as_completed
from functools import partial
from hashlib import blake2b

from ray_sentinel.actors.messages import (
    NCCL_PLACE,
    OTHERS_PLACE,
    Dump,
    DumpRequest,
    Dumps,
)
from ray_sentinel.capture.dump_reducer import DumpReducer
from ray_sentinel.capture.recorder_dumps import FoundDump, NoDumpError, Recorders, read_dump
from ray_sentinel.errors import SentinelError
from ray_sentinel.evidence.flight_recorder.reduced import Form, without_operations
from ray_sentinel.model.identity import ProcessId, Rank
from ray_sentinel.progress.ask import (
    POLL,
    NoAnswerError,
    RecorderDump,
    ask_flight_recorder,
    each_left_recorder,
    has_left_recorder,
)
from ray_sentinel.progress.record_view import RecordView

SECONDS = 8.5
"""Seconds for everything that is asked at once: dumps that are late are left out, and the others
are sent."""
RANK_SECONDS = 5.0
"""Seconds that one rank has to answer; PyTorch's watchdog checks once a second whether it is asked.
"""
LEAVE_SECONDS = 1.0
"""Seconds that a rank which an exception ends has to leave its recorders."""
_MOST_SEEN = 8192
"""Recorders and forms of which is remembered what was answered last."""

RecordOf = Callable[[int, int], RecordView | None]
Source = Callable[[], Iterator[tuple[int, RecorderDump]]]
"""A function that reads a rank's recorders, each with its place (``Dump.place``), when it is asked
for."""


class NodeDumps:
    """Reads the flight recorders of this node's ranks. Methods block; any thread may call."""

    def __init__(
        self,
        host: str,
        record_of: RecordOf,
        parallel: int,
        recorders: Recorders | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._host = host
        self._sleep = sleep
        self._record_of = record_of
        self.recorders = Recorders() if recorders is None else recorders
        self._pool = ThreadPoolExecutor(parallel, thread_name_prefix="ray-sentinel-dumps")
        self._reading = threading.Lock()
        self._seen: dict[tuple[ProcessId, Form, int], tuple[bytes, bytes]] = {}
        """Digests of a rank's dump, by its place, as it wrote it, and of a reduced form."""

    def gather(self, request: DumpRequest) -> Dumps:
        """The requested dumps; each rank without one is named, with the reason."""
        end = time.monotonic() + SECONDS
        known = dict(zip(request.ranks, request.known, strict=False))
        form: Form = "judged" if request.judged else "whole"
        asked = {self._pool.submit(self._find, rank): rank for rank in request.ranks}
        answer = _Answer(request.most_bytes)
        if not self._reading.acquire(timeout=SECONDS):
            answer.problems += [self._no(rank, "others are read") for rank in request.ranks]
            return answer.made()
        reducer, late = DumpReducer(), set(request.ranks)
        try:
            for source, rank in _as_they_come(asked, end):
                late.discard(rank)
                try:
                    if request.raw:
                        _add_raw(answer, rank, source.result())
                    else:
                        self._add(answer, rank, source.result(), form, known, reducer, end)
                except SentinelError as error:
                    answer.problems.append(self._no(rank, str(error)))
        finally:
            reducer.close()
            self._reading.release()
            for source in asked:
                source.cancel()
        late_by = f"it did not write one within {SECONDS:g} s"
        answer.problems += [self._no(rank, late_by) for rank in request.ranks if rank in late]
        # The turn is waited for however long that took, because nodes that are all slow must keep
        # their distance too.
        self._sleep(request.turn(answer.size))
        return answer.made()

    def close(self) -> None:
        """Start nothing new."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _no(self, rank: Rank, why: str) -> str:
        return f"rank {rank.id.rank} on {self._host}: no flight recorder: {why}"

    def _find(self, rank: Rank) -> Source:
        """Have the rank write its recorders. Raises SentinelError."""
        view = self._record_of(rank.process.pid, rank.process.start)
        try:
            if view is None:
                raise NoDumpError("it is not attached")
            return _asked(view)
        except SentinelError as error:
            try:
                return partial(_from_disk, self.recorders.find(rank, RANK_SECONDS))
            except SentinelError as second:
                raise NoDumpError(f"{error}; {second}") from second

    def _add(
        self,
        answer: _Answer,
        rank: Rank,
        source: Source,
        form: Form,
        known: Mapping[Rank, tuple[bytes, ...]],
        reducer: DumpReducer,
        end: float,
    ) -> None:
        """Add each recorder of the rank in its reduced form, or its digest alone where that is
        known. Raises SentinelError if there is none; if only one of them fails, that is a problem.
        """
        added, failed = False, None
        for place, dump in source():
            wrote, key = _digest(dump.data), (rank.process, form, place)
            sent = known[rank][place] if place < len(known.get(rank, ())) else b""
            small = b""
            try:
                if not sent or self._seen.get(key) != (wrote, sent):
                    small = reducer.reduce(dump.data, end - time.monotonic(), form)
                digest = answer.add_reduced(rank.id.rank, place, small, sent)
            except SentinelError as error:
                failed = failed or error
                continue
            added = True
            self._note_seen(key, (wrote, digest))
        if not added:
            raise failed or NoDumpError("it wrote nothing")
        if failed is not None:
            one = f"rank {rank.id.rank} on {self._host}: one of its flight recorders is left out"
            answer.problems.append(f"{one}: {failed}")

    def _note_seen(self, key: tuple[ProcessId, Form, int], digests: tuple[bytes, bytes]) -> None:
        self._seen.pop(key, None)
        self._seen[key] = digests
        while len(self._seen) > _MOST_SEEN:
            del self._seen[next(iter(self._seen))]


class _Answer:
    """Dumps up to a number of bytes."""

    def __init__(self, most: int) -> None:
        self.dumps: list[Dump] = []
        self.problems: list[str] = []
        self._most = self._room = most

    def add(self, dump: Dump) -> None:
        """Add a dump. Raises NoDumpError if there is no room for it."""
        if len(dump.data) > self._room:
            raise NoDumpError(
                f"its {len(dump.data)} bytes were left out: the node's answer would exceed "
                f"{self._most} bytes"
            )
        self._room -= len(dump.data)
        self.dumps.append(dump)

    def add_reduced(self, rank: int, place: int, data: bytes, known: bytes) -> bytes:
        """Add a reduced dump, and return the digest of what is sent. If the whole is too large,
        operations that went well are left out. Without ``data``, the dump is the ``known`` one.
        Raises NoDumpError if there is no room for it."""
        if len(data) > self._room:
            data = without_operations(data)
        digest = _digest(data) if data else known
        data = b"" if digest == known else data
        self.add(Dump(rank=rank, place=place, data=data, digest=digest))
        return digest

    @property
    def size(self) -> int:
        """Bytes of the dumps; one that is given by its digest alone counts as none."""
        return self._most - self._room

    def made(self) -> Dumps:
        """The message."""
        return Dumps(dumps=tuple(self.dumps), problems=tuple(self.problems))


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()


def _as_they_come(
    asked: Mapping[Future[Source], Rank], end: float
) -> Iterator[tuple[Future[Source], Rank]]:
    """The sources that are found before the monotonic time ``end``, as they come."""
    try:
        for source in as_completed(asked, timeout=max(0.0, end - time.monotonic())):
            yield source, asked[source]
    except TimeoutError:
        return  # the others are late


def _add_raw(answer: _Answer, rank: Rank, source: Source) -> None:
    for place, dump in source():
        answer.add(Dump(rank=rank.id.rank, place=place, data=dump.data, pickled=dump.pickled))


def _from_disk(found: FoundDump) -> Iterator[tuple[int, RecorderDump]]:
    data = read_dump(found)
    yield NCCL_PLACE, RecorderDump(data=data, pickled=data[:1] == b"\x80")


def _left(view: RecordView) -> Iterator[tuple[int, RecorderDump]]:
    # By kind, not by order: one rank's NCCL may have failed to write, and its peers' not.
    for dump in each_left_recorder(view):
        yield NCCL_PLACE if dump.pickled else OTHERS_PLACE, dump


def _asked(view: RecordView) -> Source:
    """The recorders of a rank that attached, even of one that ends while it is asked. Raises
    NoAnswerError."""

    def wait(seconds: float) -> None:
        time.sleep(seconds)
        if _raised(view):
            raise NoAnswerError("an exception ends it")

    if not _raised(view):
        try:
            ask_flight_recorder(view, RANK_SECONDS, sleep=wait)
        except NoAnswerError:
            if not _raised(view):
                raise
    end = time.monotonic() + LEAVE_SECONDS
    while not has_left_recorder(view):
        if time.monotonic() > end:
            raise NoAnswerError("an exception ended it, and it left none")
        time.sleep(POLL)
    return partial(_left, view)


def _raised(view: RecordView) -> bool:
    words = view.progress.last_words
    return words is not None and words.kind == "exception"
