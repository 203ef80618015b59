"""The embedded history of a deployment: what agents send, for jobs without a Prometheus.

The whole job is in a file in ``log_dir/history``, which ``diagnose`` reads, even after the job has
ended. It is written from the engine's telemetry, which holds the last half hour: a log folder that
is full or hangs costs only the newest part of the file, and when it answers again, what telemetry
still holds is written.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

from ray_sentinel.actors.messages import HistoryRequest
from ray_sentinel.bounded import Bounded
from ray_sentinel.clock import Clock
from ray_sentinel.engine.telemetry.series import KEPT_SECONDS, HostRow
from ray_sentinel.model.exposition import series_text
from ray_sentinel.model.samples import SeriesKey
from ray_sentinel.store.history.file import HistoryFile
from ray_sentinel.store.history.keys import parse_key
from ray_sentinel.store.history.writer import MAX_BYTES, RowPacker, Rows, history_image

log = logging.getLogger(__name__)

RECENT_BYTES = 64 << 20
"""Most bytes of the series of the last half hour."""
VALUES_PER_SECOND = 0.75 * RECENT_BYTES / 8 / KEPT_SECONDS
"""Values that may arrive in a second: 3,500. A value takes 8 bytes; a quarter of the room is left
for what surrounds the values."""
SHORTEST, LONGEST = 5.0, 30.0
"""Seconds between two values of a series, in a small cluster and in a large one."""
MOST_SERIES = 600
"""Most series of one node; with very many nodes, each has fewer."""
MOST_TEXTS = 200_000
"""Most keys whose text is remembered."""
SAVE_SECONDS = 2.0
"""Seconds between two writes to the file: this much is lost if the coordinator is killed."""
RETRY_SECONDS = 15.0
"""Seconds until the next attempt after the file could not be written."""
IMAGE_SECONDS = 20.0
"""Seconds to copy the file; after that the last half hour is given instead."""
CLOSE_SECONDS = 20.0
"""Seconds that a hanging write is waited for at the end."""
FILE_SHARE = 0.125
"""The file's share of the space that all our files may take."""
IMAGE_BYTES = 64 << 20
"""Most bytes of a copy for someone who cannot read the file; a larger history is thinned for it."""


def wanted(nodes: int) -> HistoryRequest:
    """What each of this many nodes may send so that half an hour of it fits.

    >>> wanted(4), wanted(1000).seconds
    (HistoryRequest(series=600, seconds=5.0), 30.0)
    """
    seconds = min(max(nodes * MOST_SERIES / VALUES_PER_SECOND, SHORTEST), LONGEST)
    most = VALUES_PER_SECOND * seconds / max(nodes, 1)
    return HistoryRequest(series=min(MOST_SERIES, int(most)), seconds=seconds)


RowSource = Callable[[dict[str, float], float, float], Iterable[HostRow]]
"""A function like ``EngineLoop.rows``."""


class HistoryKeeper:
    """Writes what agents sent. Call ``save_when_due`` every second on a thread of its own, because
    a log folder that hangs must delay nothing else."""

    def __init__(
        self,
        folder: Path | None,
        clock: Clock,
        rows: RowSource,
        request: Callable[[], HistoryRequest],
        *,
        begin: float = -math.inf,
        owner: str = "",
        max_bytes: int = 2 << 30,
    ) -> None:
        """``rows`` gives what agents sent, ``request`` what of it is wanted. What they sent until
        ``begin`` is in the file of an earlier coordinator. ``owner`` is the deployment,
        ``max_bytes`` what all our files may take."""
        self._clock, self._source, self._request = clock, rows, request
        most = min(MAX_BYTES, int(FILE_SHARE * max_bytes))
        self.file = HistoryFile(folder, owner, most) if folder is not None else None
        self._lock = threading.Lock()
        self._until: dict[str, float] = {}
        """The time up to which the file has what each node sent, by node."""
        self._begin = begin
        self._texts: dict[SeriesKey, str] = {}
        self._packer = RowPacker()
        self._save_at = 0.0
        self._file_before: Path | None = None
        self._writing = threading.Lock()
        self._imaging: Bounded[str, bytes] = Bounded(IMAGE_SECONDS, most=1)

    @property
    def path(self) -> Path | None:
        """The current file, if there is one."""
        return self.file.path if self.file is not None else None

    @property
    def files(self) -> tuple[Path, ...]:
        """All files in use."""
        return self.file.files if self.file is not None else ()

    @property
    def notes(self) -> tuple[str, ...]:
        """Problems for people."""
        return (*filter(None, (self.file.problem,)), *self.file.notes) if self.file else ()

    def recent(self) -> list[tuple[float, str, dict[str, float]]]:
        """(Time, host, values) of what agents sent in the last half hour."""
        return list(self._named_rows({}, -math.inf))

    def _rows(self, until: dict[str, float], begin: float) -> list[Rows]:
        """What agents sent after ``until``, which is moved forward."""
        told = self._named_rows(until, begin)
        with self._lock:
            return [row for moment in told for row in self._packer.pack(*moment)]

    def _named_rows(
        self, until: dict[str, float], begin: float
    ) -> Iterator[tuple[float, str, dict[str, float]]]:
        wanted = self._request()
        if not wanted.series:
            return
        for moment, host, values in self._source(until, begin, wanted.seconds):
            named = ((self._text(key), value) for key, value in values.items())
            there = ((text, value) for text, value in named if text)
            yield moment, host, dict(islice(there, wanted.series))

    def _text(self, key: SeriesKey) -> str:
        """The key as it is in the file; empty for one that is not a series."""
        text = self._texts.get(key)
        if text is None:
            text = series_text(key.name, key.labels)
            try:
                name, _ = parse_key(text)
            except ValueError as error:
                log.warning("a series is not kept: %s", error)
                name = ""
            if len(self._texts) >= MOST_TEXTS:
                self._texts.clear()
            text = self._texts[key] = text if name else ""
        return text

    def image(self) -> bytes:
        """A history file of the current samples. Raises OSError."""
        whole = self.file.history if self.file is not None else None
        if whole is not None:
            with self._lock:
                until, begin = dict(self._until), self._begin
            newest = self._rows(until, begin)
            images, failed = self._imaging.run(
                {"image": lambda: history_image(newest, IMAGE_BYTES, of=whole)}
            )
            if not failed:
                return images["image"]
            # The file hangs, was closed, or was found damaged meanwhile.
            log.warning("%s: %s", self.path, failed["image"])
        return history_image(self._rows({}, -math.inf), IMAGE_BYTES)

    def save_when_due(self) -> None:
        """Write what is not in the file yet, if it is time."""
        now = self._clock.monotonic()
        if now >= self._save_at:
            with self._writing:
                self._save_at = now + RETRY_SECONDS
                if self.save():
                    self._save_at = now + SAVE_SECONDS

    def save(self) -> bool:
        """Write what is not in the file yet; False if it cannot be written now.

        What fails, whatever it raises, is written the next time, as far back as telemetry reaches.
        """
        if self.file is None:
            return True
        with self._lock:
            until, begin = dict(self._until), self._begin
        if not self.file.put(self._rows(until, begin), self._clock.now()):
            return False
        before, self._file_before = self._file_before, self.file.path
        if before is not None and before != self.file.path:
            until, begin = {}, -math.inf  # another file, which gets the last half hour
        with self._lock:
            self._until, self._begin = until, begin
        return True

    def close(self) -> None:
        """Write what is there, if the log folder answers."""
        if self.file is not None and self._writing.acquire(timeout=CLOSE_SECONDS):
            try:
                self.save()
                self.file.close()
            finally:
                self._writing.release()
