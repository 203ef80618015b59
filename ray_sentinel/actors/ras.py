"""Gathers answers of NCCL's RAS services for a case, and compares them with the ones before."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable

from ray_sentinel.actors.messages import unpack
from ray_sentinel.capture.ras import RasPolls
from ray_sentinel.clock import Clock, SteadyClock
from ray_sentinel.engine.actions import AskRas
from ray_sentinel.engine.events import RasExplained
from ray_sentinel.evidence import nccl_ras
from ray_sentinel.model.identity import Rank

SECONDS = 10.0
"""For the agents' polls: ``POLL_SECONDS`` of ``capture.ras``, and the way there and back."""
MOST_CASES = 16
"""Whose first polls are kept, to compare later ones with."""

Ask = Callable[[tuple[Rank, ...], float], tuple[list[bytes], list[str]]]
"""Asks the agents of some ranks, within so many seconds: ``RasPolls`` as bytes, and problems."""


class RasWitness:
    """Keeps the first answers of each case. May be called from any thread."""

    def __init__(self, ask: Ask, clock: Clock | None = None) -> None:
        self._ask, self._clock = ask, clock or SteadyClock()
        self._first: OrderedDict[str, list[bytes]] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, action: AskRas) -> RasExplained | None:
        """Ask; None where no rank has NCCL, so that there is nothing to say."""
        answers, problems = self._ask(action.ranks, SECONDS)
        polls: list[bytes] = []
        for data in answers:
            answer = unpack(data, RasPolls)
            polls += answer.polls
            problems += answer.problems
        if not polls and not problems:
            return None
        facts = None
        if polls:
            before = self._before(action.incident, polls)
            files = {f"poll {number}": data for number, data in enumerate([*before, *polls], 1)}
            facts = nccl_ras.explain(files, ranks=known_ranks(action.ranks))
            problems += facts.problems
        return RasExplained(
            time=self._clock.now(),
            incident=action.incident,
            facts=facts if facts is not None and facts.polls else None,
            problems=tuple(dict.fromkeys(problems)),
        )

    def _before(self, incident: str, polls: list[bytes]) -> list[bytes]:
        """The first answers for the case; these ones, if they are the first."""
        with self._lock:
            before = self._first.get(incident, [])
            if not before:
                self._first[incident] = polls
                while len(self._first) > MOST_CASES:
                    self._first.popitem(last=False)
            return before


def known_ranks(ranks: Iterable[Rank]) -> dict[tuple[str, int], int]:
    """(host or address, pid) → world rank; RAS knows processes by the address of their node."""
    table: dict[tuple[str, int], int] = {}
    for rank in ranks:
        for place in (rank.process.host, rank.address):
            if place:
                table[place, rank.process.pid] = rank.id.rank
    return table
