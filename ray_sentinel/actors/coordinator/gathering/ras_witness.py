"""Collects answers of NCCL's RAS services for a case, and compares them with the previous ones."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable

from ray_sentinel.actors.coordinator.gathering.agents import Agents, by_node
from ray_sentinel.actors.coordinator.gathering.judged_evidence import PollEvidence
from ray_sentinel.capture.ras import RasPolls
from ray_sentinel.clock import Clock, SteadyClock
from ray_sentinel.engine.actions import AskRas
from ray_sentinel.engine.events import RasExplained
from ray_sentinel.errors import InputError
from ray_sentinel.model.identity import Rank

SECONDS = 10.0
"""Seconds for the agents' polls: ``POLL_SECONDS`` of ``capture.ras``, and the way there and back.
"""
MOST_CASES = 16
"""Most cases whose first polls are kept, to compare later ones with."""
MOST_KEPT = 128 << 20
"""Most bytes of all polls that are kept; also the most that are read for one case."""


class RasWitness:
    """Keeps the first answers of each case. May be called from any thread."""

    def __init__(self, agents: Agents, clock: Clock | None = None) -> None:
        self._agents, self._clock = agents, clock or SteadyClock()
        self._first: OrderedDict[str, list[bytes]] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, action: AskRas) -> RasExplained | None:
        """Query the services; None if no rank has NCCL."""
        answers, problems = self._agents.ask("nccl_ras", by_node(action.ranks), RasPolls, SECONDS)
        polls: list[bytes] = []
        for answer in answers.values():
            polls += answer.polls
            problems += answer.problems
        polls, left_out = _bounded(polls)
        problems += left_out
        if not polls and not problems:
            return None
        facts = evidence = None
        if polls:
            before = self._before(action.incident, polls)
            ranks = known_ranks(action.ranks).items()
            evidence = PollEvidence(
                polls=(*before, *polls),
                ranks=tuple((host, pid, rank) for (host, pid), rank in ranks),
            )
            try:
                facts = evidence.explain()
                problems += facts.problems
            except InputError as error:
                problems.append(f"NCCL RAS: {error}")
        return RasExplained(
            time=self._clock.now(),
            incident=action.incident,
            facts=facts if facts is not None and facts.polls else None,
            problems=tuple(dict.fromkeys(problems)),
            judged_from=evidence.kept() if evidence is not None else None,
        )

    def _before(self, incident: str, polls: list[bytes]) -> list[bytes]:
        """The first answers for the case; the given ones if they are the first."""
        with self._lock:
            before = self._first.get(incident, [])
            if not before:
                self._first[incident] = polls
                while len(self._first) > MOST_CASES or self._held() > MOST_KEPT:
                    self._first.popitem(last=False)
            return before

    def _held(self) -> int:
        return sum(len(poll) for polls in self._first.values() for poll in polls)


def _bounded(polls: list[bytes]) -> tuple[list[bytes], list[str]]:
    """The first polls that fit within the limit, and a line about the others."""
    held = 0
    for number, poll in enumerate(polls):
        held += len(poll)
        if held > MOST_KEPT:
            left = len(polls) - number
            return polls[:number], [
                f"NCCL RAS: {left} of {len(polls)} answers are left out: together they are "
                f"larger than {MOST_KEPT >> 20} MiB"
            ]
    return polls, []


def known_ranks(ranks: Iterable[Rank]) -> dict[tuple[str, int], int]:
    """(host or address, pid) → world rank; RAS knows processes by the address of their node."""
    table: dict[tuple[str, int], int] = {}
    for rank in ranks:
        for place in (rank.process.host, rank.address):
            if place:
                table[place, rank.process.pid] = rank.id.rank
    return table
