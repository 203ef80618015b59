"""Which of several agents on one machine is responsible for a process.

Agents that share a machine and a PID namespace see the same processes. A process that descends
from a raylet belongs to that Ray node's agent, whether or not that agent is up; all others belong
to one agent that all of them agree on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable


def owns(
    ancestors: Iterable[int],
    own_raylet: int | None,
    all_raylets: Collection[int],
    is_default_owner: bool,
) -> bool:
    """Whether the agent of ``own_raylet`` watches a process with these ancestors (pids).

    ``all_raylets`` are those of the agents that share the machine and namespace; the nearest
    raylet above a process decides.
    """
    for pid in ancestors:
        if pid == own_raylet:
            return True
        if pid in all_raylets:
            return False
    return is_default_owner


def is_default_owner(own_raylet: int | None, all_raylets: Collection[int]) -> bool:
    """Whether this agent watches processes that belong to no raylet: the one with the lowest raylet
    pid does."""
    return own_raylet is None or own_raylet == min((own_raylet, *all_raylets))


class Neighbours:
    """The raylets whose agents share this machine and PID namespace, once that is settled.

    The coordinator lists the agents that report to it. While it is new, it lists none, then a few.
    An agent that believed it at once would claim processes that descend from no raylet, and give
    them back later; a rank would become two processes, one of which vanishes. So a list that lacks
    a living raylet is believed only after ``seconds`` in which nothing was added.
    """

    def __init__(self, seconds: float, now: float) -> None:
        self._seconds = seconds
        self._told: tuple[int, ...] = ()
        self._told_at = now
        self._settled: tuple[int, ...] = ()

    def update(self, raylets: tuple[int, ...], now: float) -> bool:
        """Set the coordinator's list. Returns whether it changed."""
        if raylets == self._told:
            return False
        self._told, self._told_at = raylets, now
        return True

    def settle(self, living: Collection[int], now: float) -> bool:
        """Whether the list is believed, given the cluster's raylets that live on this machine."""
        whole = set(living) <= set(self._told) or now - self._told_at > self._seconds
        if whole:
            self._settled = self._told
        return whole

    @property
    def raylets(self) -> tuple[int, ...]:
        """The last list that was believed; empty before the first."""
        return self._settled
