"""The embedded history of a deployment: what agents send, for jobs without a Prometheus.

The last half hour is in memory, the whole job in a file in ``log_dir/history``, which ``diagnose``
reads, also when the job has ended. Memory comes first: a log folder that is full or hangs costs the
file's newest part only, and when it answers again, what memory still has is written after it.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from pathlib import Path

from ray_sentinel.actors.messages import HistoryRequest
from ray_sentinel.bounded import Bounded
from ray_sentinel.clock import Clock
from ray_sentinel.store.history import MAX_BYTES, MEMORY_SECONDS, History
from ray_sentinel.store.history_file import HistoryFile

log = logging.getLogger(__name__)

MEMORY_BYTES = 64 << 20
"""Of the series in memory."""
VALUES_PER_SECOND = 0.75 * MEMORY_BYTES / 8 / MEMORY_SECONDS
"""3,500. A value is 8 bytes; a quarter is left for what is around them."""
SHORTEST, LONGEST = 5.0, 30.0
"""Seconds between two values of a series, in a small cluster and in a large one."""
MOST_SERIES = 600
"""Of one node, at most; of very many nodes, fewer of each."""
MOST_WAITING = 20_000
"""Reports that were not written yet, all nodes' together; the oldest go first."""
SAVE_SECONDS = 2.0
"""Between two writes: what a killed coordinator loses."""
RETRY_SECONDS = 15.0
"""After the file could not be written."""
IMAGE_SECONDS = 20.0
"""For a copy of the file; memory's half hour is given after that."""
CLOSE_SECONDS = 20.0
"""That a write which hangs is waited for at the end."""
FILE_SHARE = 0.125
"""Of what all our files may take."""
IMAGE_BYTES = 64 << 20
"""Of a copy for one who cannot read the file; a larger history is thinned for it."""


def wanted(nodes: int) -> HistoryRequest:
    """What so many nodes may send so that half an hour of it fits.

    >>> wanted(4), wanted(1000).seconds
    (Wanted(series=600, seconds=5.0), 30.0)
    """
    seconds = min(max(nodes * MOST_SERIES / VALUES_PER_SECOND, SHORTEST), LONGEST)
    most = VALUES_PER_SECOND * seconds / max(nodes, 1)
    return HistoryRequest(series=min(MOST_SERIES, int(most)), seconds=seconds)


class HistoryKeeper:
    """Takes what agents send; call ``step`` every second and ``save_when_due`` on another thread:
    a log folder that hangs must not hold up what is kept in memory."""

    def __init__(
        self, folder: Path | None, clock: Clock, *, owner: str = "", max_bytes: int = 2 << 30
    ) -> None:
        """``owner`` is the deployment, ``max_bytes`` what all our files may take."""
        self._clock = clock
        self.history = History(max_bytes=MEMORY_BYTES)
        most = min(MAX_BYTES, int(FILE_SHARE * max_bytes))
        self.file = HistoryFile(folder, owner, most) if folder is not None else None
        self._waiting: deque[tuple[float, str, dict[str, float]]] = deque(maxlen=MOST_WAITING)
        self._lock = threading.Lock()
        self._unsaved: tuple[float, float] | None = None
        """The first and the last moment of rows that are not in the file."""
        self._save_at = 0.0
        self._file_before: Path | None = None
        self._writing = threading.Lock()
        self._imaging: Bounded[str, bytes] = Bounded(IMAGE_SECONDS, most=1)

    @property
    def path(self) -> Path | None:
        """The file, where there is one."""
        return self.file.path if self.file is not None else None

    @property
    def files(self) -> tuple[Path, ...]:
        """All files in use."""
        return self.file.files if self.file is not None else ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What people should know."""
        return (*filter(None, (self.file.problem,)), *self.file.notes) if self.file else ()

    def take(self, host: str, series: dict[str, float]) -> None:
        """What a node says of now. Returns at once."""
        if series:
            self._waiting.append((self._clock.now(), host, series))

    def step(self) -> None:
        """Keep what was taken."""
        while True:
            try:
                moment, host, series = self._waiting.popleft()
            except IndexError:  # empty, or another thread was faster
                return
            try:
                self.history.append(moment, host, series)
            except ValueError as error:
                log.warning("what %s sends is not kept: %s", host, error)
                continue
            self._owe((moment, moment))

    def image(self) -> bytes:
        """A history file of what is kept now. Raises OSError."""
        self.step()
        with self._lock:
            unsaved = self._unsaved
        whole = self.file.history if self.file is not None else None
        if whole is None:
            return self.history.image(IMAGE_BYTES)
        newest = self.history.rows(*unsaved) if unsaved is not None else []
        images, failed = self._imaging.run({"image": lambda: whole.image(IMAGE_BYTES, newest)})
        if failed:
            # It hangs, was closed or found damaged meanwhile; memory takes less room, too.
            log.warning("%s: %s", self.path, failed["image"])
            return self.history.image(IMAGE_BYTES)
        return images["image"]

    def save_when_due(self) -> None:
        """Write what is not in the file yet, if it is time."""
        now = self._clock.monotonic()
        if now >= self._save_at:
            with self._writing:
                self._save_at = now + RETRY_SECONDS
                if self.save():
                    self._save_at = now + SAVE_SECONDS

    def save(self) -> bool:
        """Write what is not in the file yet; False where it cannot be written now.

        What fails, whatever it raises, is owed again: the next time has it all, as far back as
        memory reaches.
        """
        if self.file is None:
            return True
        with self._lock:
            span, self._unsaved = self._unsaved, None
        written = False
        try:
            rows = self.history.rows(*span) if span is not None else []
            written = self.file.put(rows, self._clock.now())
        finally:
            if span is not None and not written:
                self._owe(span)
        if not written:
            return False
        if self.file.path != self._file_before:
            self._begin()
        return True

    def _begin(self) -> None:
        """Memory and a file that was just opened get what they lack of the last half hour."""
        assert self.file is not None
        first, self._file_before = self._file_before is None, self.file.path
        if first:
            # What the one before us kept that was killed a moment ago.
            self.history.put(self.file.recent(self._clock.now() - MEMORY_SECONDS))
        else:
            self._owe((float("-inf"), float("inf")))

    def close(self) -> None:
        """Keep and write what is there, if the log folder answers."""
        self.step()
        if self.file is not None and self._writing.acquire(timeout=CLOSE_SECONDS):
            try:
                self.save()
                self.file.close()
            finally:
                self._writing.release()
        self.history.close()

    def _owe(self, span: tuple[float, float]) -> None:
        with self._lock:
            ends = (*span, *(self._unsaved or ()))
            self._unsaved = (min(ends), max(ends))
