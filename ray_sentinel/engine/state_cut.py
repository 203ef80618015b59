"""The engine's state at one moment, packed while the engine continues.

Packing everything that is known about 8,192 ranks takes most of a second, and no event may wait for
that. So mutable records are copied at that moment, while the immutable ones that make up nearly all
of them are shared with the copy. The series of nodes are too many to copy: whoever wants to change
a node's series first packs that node's, or the cut packs it when it gets there. Packing proceeds in
small steps, so that other threads get their turns.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, cast

import msgspec

from ray_sentinel.engine.jobs import JobView
from ray_sentinel.engine.telemetry.series import NO_SNAPSHOT, HeldNode

Packing = Generator[None, None, bytes]
"""A generator that packs in steps, and returns the packed bytes; these are empty if they would be
too large."""


class StateCut:
    """A snapshot that is still to be packed, once, on any thread."""

    def __init__(
        self,
        *,
        jobs: Iterable[JobView],
        series: Mapping[str, HeldNode] | None,
        pack: Callable[[Any], bytes],
        whole: Callable[[Mapping[str, msgspec.Raw]], bytes],
        incidents: Callable[[], bytes],
        most_bytes: int,
        lock: AbstractContextManager[object],
    ) -> None:
        """``jobs`` are copies that belong to the cut. ``whole`` packs them with the series it is
        given, each packed already; ``incidents`` packs what remains if that fails. ``series`` is
        None if they are known to be too large. ``lock`` keeps the engine from changing them."""
        self.lost = ""
        """What had to be left out, and why."""
        self._jobs = list(jobs)
        self._series = series
        self._pack = pack
        self._whole = whole
        self._incidents = incidents
        self._most = most_bytes
        self._lock = lock

    def packed(self) -> bytes:
        """The snapshot, or as much of it as can be packed and is not too large; empty if nothing
        is."""
        steps = self.steps()
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return cast("bytes", end.value)

    def steps(self) -> Packing:
        """Pack the snapshot step by step. Each step takes about a millisecond, except the last."""
        for what, packing in (
            ("the nodes' metrics of the last minutes", self._with_series),
            ("what was learned of the jobs", self._without_series),
            ("what is known of the incidents", self._of_incidents),
        ):
            why = f"more than {self._most >> 20} MiB"
            try:
                state = yield from packing()
            except NO_SNAPSHOT as error:  # a number or a text that came from a rank
                why = str(error)
            else:
                if 0 < len(state) <= self._most:
                    return state
            self.lost = f"{what} will not outlive a restart of the coordinator: {why}"
        return b""

    def _with_series(self) -> Packing:
        if self._series is None or (size := (yield from self._ranks())) > self._most:
            return b""
        least = size
        for held in self._series.values():
            with self._lock:
                least += held.least_bytes
            # Checked before any is packed, because what would be dropped then takes all of the
            # room.
            if least > self._most:
                return b""
            yield
        nodes: dict[str, msgspec.Raw] = {}
        for node_id, held in self._series.items():
            with self._lock:
                nodes[node_id] = msgspec.Raw(held.packed())
            size += len(nodes[node_id])
            if size > self._most:
                return b""
            yield
        return self._whole(nodes)

    def _without_series(self) -> Packing:
        self._series = None  # nobody needs to keep them any more
        size = yield from self._ranks()
        return self._whole({}) if size <= self._most else b""

    def _of_incidents(self) -> Packing:
        yield
        return self._incidents()

    def _ranks(self) -> Generator[None, None, int]:
        """Pack each rank in its place. Returns their bytes, or only some if they are too many."""
        size = 0
        for job in self._jobs:
            ranks = cast("dict[object, object]", job.ranks)
            for key, rank in ranks.items():
                if not isinstance(rank, msgspec.Raw):
                    ranks[key] = rank = msgspec.Raw(self._pack(rank))
                    yield
                size += len(rank)
                if size > self._most:
                    return size
        return size
