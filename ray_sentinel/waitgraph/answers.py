"""Answers that processes await from each other over connections other than Ray calls: HTTP requests
to an engine or a reward model, queues, key-value stores. Locks on files that they await of each
other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain

import msgspec

from ray_sentinel.model.connections import AwaitedAnswer, Connection
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.waitgraph.facts import (
    ANSWER,
    HELD_BY,
    LOCKED,
    WaitNode,
    WaitsFor,
    process_node,
)

SOCKET, KERNEL = "socket", "kernel"
_WAITING = frozenset({"idle", "network-wait", "unknown"})
"""What a process may be doing while it waits for an answer. At a lock or a pipe it waits for
something else, whatever it has sent."""
_AT_LOCK = frozenset({"lock-wait", "unknown"})
"""What a process may be doing while it waits for a lock on a file."""


def may_await(fact: StackFact | None, *, lock: bool = False) -> bool:
    """Whether a process may be waiting for an answer, or for a ``lock`` on a file, by its stack."""
    waiting = _AT_LOCK if lock else _WAITING
    return fact is None or (
        fact.activity in waiting and not fact.active and not fact.waits_for_others
    )


Ports = Mapping[tuple[str, int], int]
"""The port at which Ray itself calls an actor or a driver, by node id and pid."""


def awaited_answers(
    connections: Mapping[str, Iterable[Connection]], ports: Ports, before: float
) -> Iterator[AwaitedAnswer]:
    """Requests that were sent ``before`` a Unix time and have not been answered since;
    ``connections`` are by node id.

    Ray's own connections are left out: they carry actor calls, whose waits Ray itself reports.
    """
    served: dict[tuple[str, str, str], Connection] = {}
    for node, found in connections.items():
        # If a forked child has inherited a connection, the parent is the one that serves.
        for one in sorted(found, key=lambda one: one.owner != one.process):
            if one.serves and one.remote and not _is_rays(one, node, ports):
                served.setdefault((_network(one), one.remote, one.local), one)
    for one in chain.from_iterable(connections.values()):
        answerer = served.get((_network(one), one.local, one.remote))
        if answerer is None or one.serves or one.asked_at is None or one.asked_at > before:
            continue
        if one.process != answerer.process:
            yield AwaitedAnswer(
                who=one.process,
                whom=answerer.process,
                asker=one.owner,
                answerer=answerer.owner,
                since=one.asked_at,
            )


def _network(one: Connection) -> str:
    """Where an address is unique: a loopback address only within one network namespace."""
    return one.network if one.local.startswith(("127.", "::1:")) else ""


def _is_rays(one: Connection, node: str, ports: Ports) -> bool:
    """Whether Ray listens there, or may listen: the ports of workers that run tasks are not
    known."""
    port = ports.get((node, one.process.pid), 0)
    return one.local.endswith(f":{port}") if port else one.owner == one.process


def serving_drivers(
    connections: Mapping[str, Iterable[Connection]],
    ports: Ports,
    drivers: Collection[tuple[str, int]],
) -> Iterator[ProcessId]:
    """The ``drivers`` (node id and pid) that listen at a port other than Ray's. Their clients are
    outside the job, such as a notebook's front end or a service's user. Processes that a driver
    started may belong to Ray."""
    for node, found in connections.items():
        for one in found:
            place = node, one.process.pid
            listens = one.owner == one.process and not one.remote
            if listens and place in drivers and not _is_rays(one, node, ports):
                yield one.process


class JobAnswers:
    """The awaited answers in one look, by the process that awaits them and the one that owes
    them."""

    def __init__(
        self,
        answers: Iterable[AwaitedAnswer],
        answerer: Callable[[AwaitedAnswer], WaitNode],
    ) -> None:
        """``answerer`` returns the node that is waited for."""
        self._of: dict[WaitNode, dict[WaitNode, AwaitedAnswer]] = defaultdict(dict)
        self._askers: dict[WaitNode, list[WaitNode]] = defaultdict(list)
        for one in sorted(answers, key=lambda one: one.since, reverse=True):
            self._of[process_node(one.who)][answerer(one)] = one  # the oldest counts
        for who, asked in self._of.items():
            for whom in asked:
                self._askers[whom].append(who)

    def askers(self, node: WaitNode) -> tuple[WaitNode, ...]:
        """The processes that await an answer from a process."""
        return tuple(self._askers.get(node, ()))

    def since(self, node: WaitNode) -> float | None:
        """The Unix time of the earliest of those requests; None if there is none."""
        asked = (self._of[who][node].since for who in self.askers(node))
        return min(asked, default=None)

    def awaited(self, node: WaitNode) -> Iterator[WaitsFor]:
        """The answers that a process awaits."""
        for whom, one in self._of.get(node, {}).items():
            if not one.lock:
                yield WaitsFor(who=node, awaited=whom, how=ANSWER, since=one.since, witness=SOCKET)

    def locks(self, node: WaitNode) -> Iterator[tuple[str, WaitsFor]]:
        """The waits of a process for locks on files, each with the name of the file; each is
        followed by the wait of the lock for the process that holds it."""
        for whom, one in self._of.get(node, {}).items():
            if one.lock:
                lock = WaitNode("resource", f"lock of {whom.key} on {one.lock}")
                wait = WaitsFor(who=node, awaited=lock, how=LOCKED, since=one.since, witness=KERNEL)
                yield one.lock, wait
                held = msgspec.structs.replace(wait, who=lock, awaited=whom, how=HELD_BY)
                yield one.lock, held

    def only_locks(self, node: WaitNode) -> bool:
        """Whether processes await locks of a process, and nothing else."""
        awaited = [self._of[who][node] for who in self.askers(node)]
        return bool(awaited) and all(one.lock for one in awaited)
