"""The embedded history of a deployment: what agents send, kept in memory, copied into a file.

The last half hour of each node's key series, for jobs without a Prometheus of their own. The copy
in ``log_dir/history`` is what ``diagnose`` reads, also when the job has ended.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from pathlib import Path

from ray_sentinel.actors.messages import Wanted
from ray_sentinel.clock import Clock
from ray_sentinel.errors import InputError
from ray_sentinel.store.history import MEMORY_SECONDS, History

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
SAVE_SECONDS = 10.0
SAVE_BYTES_PER_SECOND = 1 << 20
"""A large history is copied more rarely: this much, on average."""


def wanted(nodes: int) -> Wanted:
    """What so many nodes may send so that half an hour of it fits.

    >>> wanted(4), wanted(1000).seconds
    (Wanted(series=600, seconds=5.0), 30.0)
    """
    seconds = min(max(nodes * MOST_SERIES / VALUES_PER_SECOND, SHORTEST), LONGEST)
    most = VALUES_PER_SECOND * seconds / max(nodes, 1)
    return Wanted(series=min(MOST_SERIES, int(most)), seconds=seconds)


class HistoryKeeper:
    """Takes what agents send; call ``step`` every second and ``save_when_due`` on another thread:
    a log folder that hangs must not hold up what is kept in memory."""

    def __init__(self, folder: Path | None, clock: Clock) -> None:
        self._clock = clock
        self.history = History(max_bytes=MEMORY_BYTES)
        self.path: Path | None = None
        if folder is not None:
            stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(clock.now()))
            self._go_on(folder)
            self.path = folder / f"series-{stamp}.db"
        self._waiting: deque[tuple[float, str, dict[str, float]]] = deque(maxlen=MOST_WAITING)
        self._taken = self._saved = 0
        self._save_at = 0.0
        self.problem = ""

    def _go_on(self, folder: Path) -> None:
        """With what a coordinator kept that was killed a moment ago."""
        try:
            files = sorted(folder.glob("series-*.db"), key=lambda path: path.stat().st_mtime)
            fresh = files and self._clock.now() - files[-1].stat().st_mtime < MEMORY_SECONDS
            if fresh:
                self.history.restore(files[-1])
        except (OSError, InputError) as error:
            log.warning("the history begins anew: %s", error)

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
            self._taken += 1

    def image(self) -> bytes:
        """A history file of what is kept now. Raises OSError."""
        self.step()
        return self.history.image()

    def save_when_due(self) -> None:
        """Copy it into the file, if there is news and it is time."""
        now = self._clock.monotonic()
        if now >= self._save_at and self._taken != self._saved:
            self._save_at = now + max(SAVE_SECONDS, self.history.size() / SAVE_BYTES_PER_SECOND)
            self.save()

    def save(self) -> None:
        """Copy it into the file now. A disk that is full costs nothing but the copy."""
        if self.path is None:
            return
        taken = self._taken
        try:
            self.history.save(self.path)
        except OSError as error:
            self.problem = f"the history cannot be written to {self.path}: {error}"
            log.warning("%s", self.problem)
            return
        self._saved, self.problem = taken, ""

    def close(self) -> None:
        """Keep and copy what is there."""
        self.step()
        if self._taken != self._saved:
            self.save()
        self.history.close()
