"""Looks at who slows running jobs down, and what the last ones were judged by.

A look takes a thousand times as many bytes as its verdict (15 KB a rank), and there is one a minute
for each job. Of nearly all nobody wants to know more than the verdict. So the evidence of a job's
last look waits in memory, where most of it is anyway (``ClusterDumps``), and goes into the event
log once an incident is told with it.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable

import msgspec

from ray_sentinel.actors.coordinator.gathering.cluster_dumps import ClusterDumps
from ray_sentinel.actors.coordinator.gathering.group_book import GroupBook
from ray_sentinel.actors.coordinator.gathering.judged_evidence import ArrivalEvidence
from ray_sentinel.clock import Clock
from ray_sentinel.engine.actions import AskArrivals
from ray_sentinel.engine.events import AnyEvent, KeptEvidence, StragglersFound, StragglersKept
from ray_sentinel.model.incident import Incident

HELD_BYTES = 64 << 20
"""Most bytes of looks that wait: those of 16 jobs of 256 ranks."""
HELD_SECONDS = 1800.0
"""Seconds for which a look waits: an incident is told minutes after the last look."""
_ROUNDING = 1e-3
_GONE = (
    "the coordinator had it no more: it was started after that look, or there were later looks "
    "that it had to keep instead"
)


class _Look(msgspec.Struct):
    evidence: ArrivalEvidence
    begin: float
    end: float
    """Between which times the engine got the verdict."""


class StragglerLooks:
    """Any thread may call."""

    def __init__(
        self,
        dumps: ClusterDumps,
        groups: GroupBook,
        clock: Clock,
        incidents: Iterable[Incident] = (),
    ) -> None:
        """``incidents`` are those of the previous coordinator."""
        self._dumps, self._groups, self._clock = dumps, groups, clock
        self._lock = threading.Lock()
        self._held: dict[tuple[str, int], _Look] = {}
        """The last look at each job, the oldest first."""
        self._answered = {incident.id for incident in incidents}

    def look(self, action: AskArrivals, feed: Callable[[AnyEvent], int]) -> None:
        """Look at a job, and ``feed`` what was found. Blocks like ``ClusterDumps``."""
        sets, _ = self._dumps.reduced(action.ranks)
        look, facts = None, None
        if sets:
            dumps = next(iter(sets.values()))  # NCCL's, where it has recorded anything
            self._groups.add(action.ranks, dumps, self._clock.now())
            evidence = ArrivalEvidence.of(action, dumps)
            facts = evidence.explain()
            look = _Look(evidence, begin=self._clock.now(), end=math.inf)
            self._hold((action.job, action.attempt), look)
        now = self._clock.now()
        feed(StragglersFound(time=now, job=action.job, attempt=action.attempt, facts=facts))
        if look is not None:
            look.end = self._clock.now()

    def _hold(self, key: tuple[str, int], look: _Look) -> None:
        with self._lock:
            self._held.pop(key, None)
            self._held[key] = look
            size = sum(one.evidence.size for one in self._held.values())
            for old, one in list(self._held.items()):
                if size <= HELD_BYTES and look.begin - one.begin <= HELD_SECONDS:
                    break  # those that follow are younger
                size -= one.evidence.size
                del self._held[old]

    def kept(self, incident: Incident) -> StragglersKept | None:
        """What goes into the event log for an incident, the first time that it is told; None if no
        look preceded it. ``incident`` has times on the wall clock."""
        told = incident.straggler
        with self._lock:
            if told is None or incident.id in self._answered:
                return None
            self._answered.add(incident.id)
            look = self._held.get((incident.job, incident.attempt))
        at = told.at - incident.clock_shift
        if look is None or not look.begin - _ROUNDING <= at <= look.end + _ROUNDING:
            evidence = KeptEvidence(left_out=_GONE)
        else:
            evidence = look.evidence.kept()
        return StragglersKept(
            time=self._clock.now(), incident=incident.id, at=at, judged_from=evidence
        )
