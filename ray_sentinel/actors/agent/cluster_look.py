"""The head's agent asks Ray for the whole cluster, for the collectors that want to know: their own
processes are light because none of them imports ray."""

from __future__ import annotations

from collections.abc import Callable

from ray_sentinel.actors.coordinator.control_store import ControlStore, unanswered
from ray_sentinel.actors.loops import Loop
from ray_sentinel.model.ray_cluster import RayCluster

LOOK_SECONDS = 10.0
"""Between two questions: capacities and dead actors change slowly."""


class ClusterLook:
    """Asks now and then, on a thread of its own; ``tell`` is called there."""

    def __init__(self, tell: Callable[[RayCluster], None]) -> None:
        self._tell = tell
        self._store: ControlStore | None = None
        self._loop = Loop(LOOK_SECONDS, self._look, name="ray-sentinel-cluster")

    def close(self) -> None:
        """Ask no more."""
        self._loop.stop()

    def _look(self) -> None:
        try:
            if self._store is None:
                self._store = ControlStore.of_this_process()
            found = self._store.cluster()
        except (RuntimeError, ImportError, AttributeError, TypeError, ValueError) as error:
            self._store, found = None, unanswered(error)
        self._tell(found)
