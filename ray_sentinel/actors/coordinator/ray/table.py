"""Ray's drivers, actors and unplaced groups, kept up to date: who may wait for whom.

The control store is queried rarely if its answers are large; its calls are not queried here.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import msgspec

from ray_sentinel.actors.coordinator.ray.calls import ControlStoreCalls
from ray_sentinel.actors.coordinator.ray.store import RayStore
from ray_sentinel.model.ray_calls import RayCalls

log = logging.getLogger(__name__)

TABLE_SECONDS = 2.0
"""Least seconds between two questions; ten times that where Ray does not answer."""
MAX_SHARE = 0.02
"""Largest share of a core that is spent on asking."""
MAX_WAITING = 0.25
"""Largest share of the time that is spent waiting for answers: a store that is slow is asked less
often."""


class RayTable:
    """``poll`` is called by one thread, ``drivers`` by any."""

    def __init__(self, store: RayStore, tell: Callable[[RayCalls], object]) -> None:
        """``tell`` is called with the table when it has changed."""
        self._calls, self._tell = ControlStoreCalls(store), tell
        self._known = RayCalls()
        self._due = self._soonest = 0.0
        self._said = ""
        self._lock = threading.Lock()

    @property
    def drivers(self) -> tuple[tuple[str, int], ...]:
        """Address and pid of each driver."""
        with self._lock:
            return tuple((driver.address, driver.pid) for driver in self._known.drivers)

    @property
    def table(self) -> RayCalls:
        """The table as it was last reported."""
        with self._lock:
            return self._known

    def poll(self) -> None:
        """Query the store, if it is time."""
        begun, used = time.monotonic(), time.thread_time()
        if begun < self._due:
            return
        found = self._calls.table(time.time())
        if found.problem and found.problem != self._said:
            log.warning("%s", found.problem)
        self._said = found.problem
        ended = time.monotonic()
        # A busy machine answers late: that is no reason to know nothing for minutes.
        pause = max((time.thread_time() - used) / MAX_SHARE, (ended - begun) / MAX_WAITING)
        rarely = 10.0 if found.problem else 1.0
        with self._lock:
            self._soonest = ended + pause
            if found.problem:
                self._soonest += rarely * TABLE_SECONDS
            self._due = ended + max(rarely * TABLE_SECONDS, pause)
        if _without_time(found) != _without_time(self._known):
            with self._lock:
                self._known = found
            self._tell(found)

    def hurry(self) -> None:
        """Query at the next ``poll``, because something has ended, unless the store is slow or does
        not answer. Any thread may call."""
        with self._lock:
            self._due = min(self._due, self._soonest)


def _without_time(table: RayCalls) -> RayCalls:
    return msgspec.structs.replace(table, at=0.0, problem="")
