"""The writer in the rank: one struct write per step, no lock, no call to anything outside.

    identity = who.resolve()                          # or a RankIdentity of one's own
    writer = ProgressWriter.open(identity)            # never raises unless strict=True
    with writer.phase("load"):
        ...
    for n, batch in enumerate(data):
        ...
        writer.step(n, loss=loss)                     # at the end of step n
    writer.close()                                    # or at exit, by itself

``open`` makes and maps the record; ``lifecycle.watch_over(writer)`` adds last words, fork safety
and the companion thread. Whatever goes wrong later, the training never sees it: a writer that is
closed, forked or never got a file writes into a scratch buffer of its own.
"""

from __future__ import annotations

import logging
import math
import mmap
import os
import struct
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, SupportsFloat

import msgspec

from ray_sentinel.masking import mask
from ray_sentinel.progress import record
from ray_sentinel.progress.directory import RecordError, candidates
from ray_sentinel.progress.identity import RankIdentity, encode
from ray_sentinel.progress.rank import record_file
from ray_sentinel.progress.rank.notes import ExitNote, Note, clip

log = logging.getLogger(__name__)

MAX_NAME = 48
"""Most bytes of the name of a scalar or a phase."""
MAX_WORDS = 640
"""Most bytes of last words."""
MOST_SAID = 16 << 10
"""Most characters of an exception's text in which secrets are looked for; the rest is cut off
anyway."""
TRAIN = "train"
"""The phase in which steps are taken; begins with the first step where none is declared."""


class Phase:
    """The phase lasts as long as the ``with`` block; see ``ProgressWriter.phase``."""

    __slots__ = ("_name", "_token", "_writer")

    def __init__(self, writer: ProgressWriter, name: str) -> None:
        self._writer, self._name = writer, name

    def __enter__(self) -> Phase:
        self._token = self._writer.begin_phase(self._name)
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.end_phase(self._token)


class ProgressWriter:
    """One rank's record, open for writing. Use it from one thread: the one that trains."""

    def __init__(self, identity: RankIdentity, *, strict: bool = False) -> None:
        """A writer without a file; see ``open``."""
        self.identity = identity
        self.strict = strict
        self.path: Path | None = None
        """The record's file; None where it could not be made."""
        self.problems: tuple[str, ...] = ()
        """What went wrong so far, for people."""
        self.directory = -1
        """A descriptor of the record's folder; -1 without a file."""
        self._map: mmap.mmap | None = None
        self._buffer: mmap.mmap | bytearray = bytearray(record.SIZE)
        self._scalars = memoryview(self._buffer)[
            record.SCALARS_OFFSET : record.SCALARS_OFFSET + record.SCALARS.size
        ].cast("d")
        self._names: dict[str, int] = {}
        self._count = 0
        self._step = -1
        self._mark = math.nan
        self._phases: list[tuple[str, float]] = []
        self._sequences: dict[record.DoubleBuffer, int] = {}
        self._complained: set[str] = set()

    @classmethod
    def open(
        cls,
        identity: RankIdentity,
        folders: Sequence[Path] | None = None,
        *,
        strict: bool = False,
    ) -> ProgressWriter:
        """Make this process's record and map it.

        ``folders`` are tried in order; by default ``directory.candidates()``. With ``strict`` a
        record that cannot be made raises RecordError, and a wrong argument of ``step`` its own
        error; else the writer works without a file, and ``problems`` says why.
        """
        writer = cls(identity, strict=strict)
        try:
            made = record_file.make(identity, candidates() if folders is None else folders)
        except RecordError as error:
            if strict:
                raise
            writer._complain("open", str(error))
            return writer
        writer._attach(made)
        return writer

    def _attach(self, made: record_file.RecordFile) -> None:
        mapped = mmap.mmap(made.handle, record.SIZE)
        os.close(made.handle)
        self.path, self.directory, self._map = made.path, made.directory, mapped
        self._swap(mapped)
        self.identify(self.identity)
        for problem in made.problems:
            self._complain(problem, f"progress record: {problem}; it is at {made.path} instead")

    @property
    def attached(self) -> bool:
        """Whether there is a record that others can read."""
        return self._map is not None

    @property
    def steps_recorded(self) -> int:
        """How many steps were counted so far, automatically or by calls."""
        return self._count

    def step(self, n: int | None = None, /, **scalars: SupportsFloat) -> None:
        """Step ``n`` has ended. Without ``n``, the step after the last one (from 1).

        ``scalars`` are kept by name, at most 16 names in a record's life; a tensor on a device
        is read, and so waits for the device. Never raises unless strict.
        """
        now = time.monotonic()
        self._count = count = self._count + 1
        if n is None:
            n = 1 if self._step < 0 else self._step + 1
        try:
            _PACK_STEP(
                self._buffer,
                _STEPS_OFFSET + count % _STEPS * _STEP_SIZE,
                count,
                n,
                now,
                now - self._mark,
                count,
            )
            self._step = n
        except (struct.error, TypeError, OverflowError) as error:
            self._odd_step(n, error)
        except ValueError:
            # Another thread closed the record between two instructions of this one.
            return
        self._mark = now
        if count == 1:
            self._first_step()
        if scalars:
            self._write_scalars(scalars)

    def _first_step(self) -> None:
        _store_number(self._buffer, record.STEPPING_TID_OFFSET, threading.get_native_id())
        if not self._phases:
            self._note_phase()

    def _odd_step(self, n: Any, error: Exception) -> None:
        """Handle a step number that is not a machine integer: keep what it means, if anything."""
        if self.strict:
            raise error
        self._count -= 1
        try:
            number = int(n)
        except (TypeError, ValueError, OverflowError, RuntimeError):
            number = max(self._step, 0) + 1
        if not -(1 << 63) <= number < 1 << 63:
            number = max(self._step, 0) + 1
        self._complain("step", f"step({n!r:.80}) is not an integer; taken for {number}")
        self.step(number)

    def _write_scalars(self, scalars: dict[str, SupportsFloat]) -> None:
        names, values = self._names, self._scalars
        for name, value in scalars.items():
            index = names.get(name)
            try:
                if index is None:
                    self._new_scalar(name, float(value))
                else:
                    values[index] = float(value)
            except (TypeError, ValueError, OverflowError, RuntimeError) as error:
                if self.strict:
                    raise
                self._complain(f"scalar {name}", f"step({name}=...) is no number: {error}")

    def _new_scalar(self, name: str, value: float) -> None:
        if len(self._names) >= record.MAX_SCALARS:
            self._complain(
                "scalars", f"only {record.MAX_SCALARS} scalars are kept; {name!r} and later are not"
            )
            return
        self._scalars[len(self._names)] = value
        self._names[name] = len(self._names)
        shown = [clip(known, MAX_NAME) for known in self._names]
        self._store(record.NAMES, msgspec.msgpack.encode(shown))

    def phase(self, name: str) -> Phase:
        """``with writer.phase("checkpoint"): ...``; phases nest, and the innermost is shown.

        Time spent in a declared phase does not count into the seconds of a step.
        """
        return Phase(self, name)

    def begin_phase(self, name: str) -> tuple[str, float]:
        """Enter a phase; the returned token goes to ``end_phase``. For callbacks in pairs."""
        token = (str(name), time.monotonic())
        self._phases.append(token)
        self._note_phase()
        return token

    def end_phase(self, token: tuple[str, float]) -> None:
        """Leave the phase, wherever it is in the nesting; unknown tokens are ignored."""
        if token not in self._phases:
            return
        innermost = self._phases[-1] == token
        self._phases.remove(token)
        name, since = token
        now = time.monotonic()
        if name != TRAIN and all(outer == TRAIN for outer, _ in self._phases):
            # The step that it interrupted goes on as if the phase had taken no time.
            self._mark += now - max(since, self._mark)
        if innermost:
            self._note_phase()

    def _note_phase(self) -> None:
        usual = TRAIN if self._count else ""
        name = self._phases[-1][0] if self._phases else usual
        note = Note(name=clip(name, MAX_NAME), since=time.monotonic())
        self._store(record.PHASE, msgspec.msgpack.encode(note))

    def identify(self, identity: RankIdentity) -> None:
        """Store the rank's identity again, if it became known after ``open``."""
        self.identity = identity
        self._store(record.IDENTITY, encode(identity))

    def last_words(self, kind: Literal["exit", "exception", "detach"], text: str = "") -> None:
        """Store how the rank ends. The last words of an exception are not overwritten at exit."""
        if record.WORDS in self._sequences and kind != "exception":
            return
        # Masked here, before the text is cut: half a secret is hard to recognise.
        words = ExitNote(
            at=time.monotonic(), kind=kind, text=clip(mask(text[:MOST_SAID]), MAX_WORDS)
        )
        self._store(record.WORDS, msgspec.msgpack.encode(words))

    def stamp(self) -> None:
        """Record that the interpreter runs; called by the companion thread."""
        record.STAMP.pack_into(self._buffer, record.STAMP_OFFSET, time.monotonic())

    def set_number(self, offset: int, value: int) -> None:
        """Store one of the record's single numbers (``record.*_OFFSET``)."""
        _store_number(self._buffer, offset, value)

    def number(self, offset: int) -> int:
        """One of the record's single numbers."""
        return int(record.NUMBER.unpack_from(self._buffer, offset)[0])

    def close(self) -> None:
        """Close the record; the file stays until a reader has seen the process end."""
        if self._map is not None:
            self.last_words("detach")
            self.abandon()

    def abandon(self) -> None:
        """Write nothing from now on, and leave the record as it is. Also for a forked child."""
        mapped, self._map = self._map, None
        self._swap(bytearray(record.SIZE))
        if mapped is not None:
            mapped.close()
        if self.directory >= 0:
            os.close(self.directory)
            self.directory = -1

    def _swap(self, buffer: mmap.mmap | bytearray) -> None:
        scalars = memoryview(buffer)[
            record.SCALARS_OFFSET : record.SCALARS_OFFSET + record.SCALARS.size
        ].cast("d")
        self._scalars, old = scalars, self._scalars
        self._buffer = buffer
        old.release()

    def _store(self, block: record.DoubleBuffer, data: bytes) -> None:
        sequence = self._sequences.get(block, 0) + 1
        self._sequences[block] = sequence
        try:
            record.store(self._buffer, block, sequence, data)
        except ValueError as error:
            if self.strict:
                raise
            self._complain(f"block {block.offset}", f"progress record: {error}")

    def _complain(self, key: str, message: str) -> None:
        """Log a message once."""
        if key not in self._complained:
            self._complained.add(key)
            self.problems = (*self.problems, message)
            log.warning("%s", message)


_PACK_STEP = record.STEP.pack_into
_STEPS_OFFSET, _STEPS, _STEP_SIZE = record.STEPS_OFFSET, record.STEPS, record.STEP.size


def _store_number(buffer: mmap.mmap | bytearray, offset: int, value: int) -> None:
    record.NUMBER.pack_into(buffer, offset, value)
