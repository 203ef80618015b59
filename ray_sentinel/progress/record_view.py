"""A reader's view of one record, updated from two copies of its bytes."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec

from ray_sentinel.model.progress import LastWords, Progress
from ray_sentinel.progress import record
from ray_sentinel.progress.identity import RankIdentity, decode
from ray_sentinel.progress.rank.notes import ExitNote, Note

_NAMES = msgspec.msgpack.Decoder(list[str])
_NOTE = msgspec.msgpack.Decoder(Note)
_WORDS = msgspec.msgpack.Decoder(ExitNote)


class UnreadableRecordError(Exception):
    """The file is not a record, or one of another version; the message says which."""


def parse(data: bytes) -> record.RecordHeader:
    """Check and unpack a header. Raises UnreadableRecordError."""
    if len(data) < record.SIZE:
        raise UnreadableRecordError(f"{len(data)} bytes, where a record has {record.SIZE}")
    header = record.RecordHeader._make(record.HEADER.unpack_from(data))
    if header.magic != record.MAGIC:
        raise UnreadableRecordError("does not begin as a record does")
    if header.version != record.VERSION:
        raise UnreadableRecordError(
            f"is of version {header.version}, and this is a reader of version {record.VERSION}: "
            "use the same release of ray-sentinel in the rank and in the agent"
        )
    return header


class RecordView(msgspec.Struct, kw_only=True, eq=False):
    """One record, open for reading."""

    path: Path
    handle: int
    """The descriptor of the open file; -1 once it is closed for good."""
    header: record.RecordHeader
    owner: int
    """The file's user id."""
    inode: int = 0
    identity: RankIdentity | None = None
    """Which rank wrote it; None until the writer has stored it, which takes microseconds."""
    progress: Progress = Progress()
    companion_tid: int = 0
    stepping_tid: int = 0
    """The thread that calls ``step()``; 0 before the first call."""
    stamp: float = 0.0
    """CLOCK_MONOTONIC seconds of the companion's last stamp; 0 where there is none."""
    stepped: float = 0.0
    """CLOCK_MONOTONIC seconds of the end of the last step; 0 where there is none."""
    watchdog: bool = False
    this_boot: bool = True
    this_namespace: bool = True
    sequences: dict[record.DoubleBuffer, int] = {}
    names: list[str] = []
    note: Note | None = None
    words: ExitNote | None = None

    @property
    def key(self) -> tuple[int, int]:
        """(pid, start) of its writer."""
        return (self.header.pid, self.header.start)

    @property
    def detached(self) -> bool:
        """Whether the writer detached while its process lived on."""
        return self.words is not None and self.words.kind == "detach"

    @property
    def last_sign(self) -> float:
        """CLOCK_MONOTONIC seconds when the writer was last known to live."""
        spoken = self.words.at if self.words is not None else 0.0
        return max(self.stamp, self.stepped, spoken, self.header.made_monotonic)

    def update(self, first: bytes, second: bytes, offset: float) -> None:
        """Apply what two copies agree on; ``offset`` is Unix minus monotonic seconds.

        What is torn in this look keeps its earlier value. Raises UnreadableRecordError if a
        complete block is not what a writer of this version stores.
        """
        try:
            self._update_blocks(first, second)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise UnreadableRecordError(f"holds what no writer stores: {error}") from error
        self.stamp = record.STAMP.unpack_from(first, record.STAMP_OFFSET)[0]
        self.companion_tid = _number(first, record.COMPANION_TID_OFFSET)
        self.stepping_tid = _number(first, record.STEPPING_TID_OFFSET)
        self.watchdog = bool(_number(first, record.WATCHDOG_OFFSET))
        self.progress = self._progress(first, second, offset)

    def _update_blocks(self, first: bytes, second: bytes) -> None:
        for block in (record.IDENTITY, record.PHASE, record.WORDS, record.NAMES):
            loaded = record.load(first, second, block)
            if loaded is None or loaded[0] == self.sequences.get(block):
                continue
            sequence, data = loaded
            if block is record.IDENTITY:
                self.identity = decode(data)
            elif block is record.PHASE:
                self.note = _NOTE.decode(data)
            elif block is record.WORDS:
                self.words = _WORDS.decode(data)
            else:
                self.names = _NAMES.decode(data)
            self.sequences = {**self.sequences, block: sequence}

    def _progress(self, first: bytes, second: bytes, offset: float) -> Progress:
        steps = sorted(record.load_steps(first, second))
        last = steps[-1] if steps else None
        if last is not None and math.isfinite(last.ended):
            self.stepped = last.ended
        values = record.SCALARS.unpack_from(first, record.SCALARS_OFFSET)
        seconds = tuple(step.seconds for step in steps if _is_duration(step.seconds))
        return Progress(
            step=last.step if last else None,
            step_ended_at=_moment(last.ended, offset) if last else None,
            step_seconds=last.seconds if last and _is_duration(last.seconds) else None,
            recent_step_seconds=seconds,
            steps_recorded=last.calls if last else 0,
            phase=self.note.name if self.note else "",
            phase_since=_moment(self.note.since, offset) if self.note else None,
            scalars=dict(zip(self.names[: record.MAX_SCALARS], values, strict=False)),
            companion_tid=self.companion_tid or None,
            last_words=self._last_words(offset),
            attached_at=_moment(self.header.made_monotonic, offset),
        )

    def _last_words(self, offset: float) -> LastWords | None:
        words = self.words
        if words is None:
            return None
        at = _moment(words.at, offset)
        return None if at is None else LastWords(time=at, kind=words.kind, text=words.text)


def _number(data: bytes, offset: int) -> int:
    return int(record.NUMBER.unpack_from(data, offset)[0])


def _is_duration(seconds: float) -> bool:
    return math.isfinite(seconds) and seconds >= 0


def _moment(monotonic: float, offset: float) -> float | None:
    return monotonic + offset if math.isfinite(monotonic) else None
