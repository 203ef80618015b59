"""Which of several agents on one machine is responsible for a process, and whose may be a rank.

Agents that share a machine and a PID namespace see the same processes. A process that descends
from a raylet belongs to that Ray node's agent, whether or not that agent is up; all others belong
to one agent that all of them agree on.

Any user of a machine can start a process that looks like a rank: its title, its command line and
its variables are what that user wrote there. So a process counts by itself only where a raylet
started it, or where root, our own user or one of ``RAY_SENTINEL_TRUSTED_UIDS`` did. What other
users run is watched by root alone, which has to answer for all of them, and never as a part of a
job that such a process has.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from ray_sentinel.errors import ConfigError
from ray_sentinel.progress.discovery.ranks import DiscoveredRank
from ray_sentinel.progress.proc.proc_stat import Key
from ray_sentinel.progress.proc.processes import Process
from ray_sentinel.trusted_path import trusted_uids

MOST_RANKS = 256
"""Most ranks of each other user that are watched on one node: those that were started first.
Anybody can start any number of them, and each costs a reader of its state, a record and a line of
each report."""
MOST_SAID = 3
"""Most processes of other users that are reported: anybody can start any number of them, and a
node's notes hold the last eight problems only."""


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


class Users:
    """Tells the processes of the users that we trust from those of others."""

    def __init__(self) -> None:
        self._said: set[tuple[str, Key]] = set()
        self._full_said = False
        self.problems: list[str] = []
        """Whose processes are left out, once for each; the caller reads and clears this."""
        self._root = os.geteuid() == 0
        try:
            self._trusted = trusted_uids()
        except ConfigError as error:
            self._trusted = frozenset({0, os.geteuid()})
            self.problems.append(str(error))

    def parted(
        self, table: Mapping[int, Process], raylets: Collection[int]
    ) -> tuple[Mapping[int, Process], Mapping[int, Process]]:
        """The processes that count by themselves, and those of other users that we may watch."""
        if self._trusted is None:
            return table, {}
        foreign = {
            pid: process
            for pid, process in table.items()
            if not process.users <= self._trusted
            and not any(above in raylets for above, _ in process.lineage)
        }
        if not foreign:
            return table, {}
        known = {pid: process for pid, process in table.items() if pid not in foreign}
        return known, foreign if self._root else {}

    def others(self, process: Process) -> frozenset[int]:
        """The users of a process if it is not of users whom we trust; else nobody."""
        if self._trusted is None or process.users <= self._trusted:
            return frozenset()
        return process.users

    def apart(
        self, found: Iterable[DiscoveredRank], known: Iterable[DiscoveredRank]
    ) -> Iterator[DiscoveredRank]:
        """Those ``found`` among other users' processes whose job has no rank that is ``known``; of
        very many of one user those that were started first, so that later ones take nobody's
        place."""
        jobs = {item.job for item in known}
        watched: Counter[frozenset[int]] = Counter()
        for item in sorted(found, key=lambda item: (item.process.start, item.process.pid)):
            if item.job not in jobs:
                if watched[item.process.users] < MOST_RANKS:
                    watched[item.process.users] += 1
                    yield item
                elif not self._full_said:
                    self._full_said = True
                    self.problems.append(
                        f"another user runs more than {MOST_RANKS} processes that say that "
                        "they are ranks: those that were started later are not watched"
                    )
                continue
            one = (item.job, item.process.key)
            if one not in self._said and len(self._said) < MOST_SAID:
                self._said.add(one)
                users = ", ".join(map(str, sorted(item.process.users)))
                self.problems.append(
                    f"pid {item.process.pid} of user {users} says that it is rank {item.rank} of "
                    f"{item.job or 'the job'}, whose ranks are not that user's: it is left alone"
                )
