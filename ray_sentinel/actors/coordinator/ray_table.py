"""Ray's drivers, actors and unplaced groups, kept up to date: who may wait for whom.

The control store is asked rarely where it has much to tell; its calls are not asked for here.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import msgspec

from ray_sentinel.actors.coordinator.ray_calls import NO_STORE, ControlStoreCalls
from ray_sentinel.model.ray_calls import RayCalls

log = logging.getLogger(__name__)

TABLE_SECONDS = 2.0
"""Between two questions, at least; ten times that where Ray does not answer."""
MAX_SHARE = 0.02
"""Of the coordinator's time that is spent on asking, at most."""


class RayTable:
    """``poll`` is called by one thread, ``drivers`` by any."""

    def __init__(
        self,
        address: str,
        tell: Callable[[RayCalls], object],
        open_store: Callable[[str], ControlStoreCalls] = ControlStoreCalls,
    ) -> None:
        """``address`` is the control store's, HOST:PORT; ``tell`` gets the table when it is another
        one than before."""
        self._address, self._tell, self._open = address, tell, open_store
        self._store: ControlStoreCalls | None = None
        self._known = RayCalls()
        self._due = self._soonest = 0.0
        self._said = ""
        self._lock = threading.Lock()

    @property
    def drivers(self) -> tuple[tuple[str, int], ...]:
        """Address and pid of each."""
        with self._lock:
            return tuple((driver.address, driver.pid) for driver in self._known.drivers)

    @property
    def table(self) -> RayCalls:
        """As it was told last."""
        with self._lock:
            return self._known

    def poll(self) -> None:
        """Ask, where it is time to."""
        begun = time.monotonic()
        if begun < self._due:
            return
        found = self._ask()
        if found.problem and found.problem != self._said:
            log.warning("%s", found.problem)
        self._said = found.problem
        ended = time.monotonic()
        rarely = 10.0 if found.problem else 1.0
        with self._lock:
            self._soonest = ended + (ended - begun) / MAX_SHARE
            if found.problem:
                self._soonest += rarely * TABLE_SECONDS
            self._due = ended + max(rarely * TABLE_SECONDS, (ended - begun) / MAX_SHARE)
        if _without_time(found) != _without_time(self._known):
            with self._lock:
                self._known = found
            self._tell(found)

    def hurry(self) -> None:
        """Something has ended: ask at the next ``poll``, but for where the store is slow or away.
        Any thread may call."""
        with self._lock:
            self._due = min(self._due, self._soonest)

    def _ask(self) -> RayCalls:
        try:
            if self._store is None:
                self._store = self._open(self._address)
            return self._store.table(time.time())
        except NO_STORE as error:
            problem = f"Ray's control store cannot be asked: {error}"
            return msgspec.structs.replace(self._known, problem=problem)

    def close(self) -> None:
        """Close the channel."""
        if self._store is not None:
            self._store.close()


def _without_time(table: RayCalls) -> RayCalls:
    return msgspec.structs.replace(table, at=0.0, problem="")
