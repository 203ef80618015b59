"""Answers that processes await of each other over connections that are no calls of Ray's: HTTP
requests to an engine or a reward model, queues, key-value stores."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain

from ray_sentinel.model.connections import AwaitedAnswer, Connection
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.ray_calls import RayCalls, RayDriver
from ray_sentinel.waitgraph.facts import ANSWER, WaitNode, WaitsFor, process_node

SOCKET = "socket"


def awaited_answers(
    connections: Mapping[str, Iterable[Connection]], ray: RayCalls
) -> Iterator[AwaitedAnswer]:
    """What was asked before Ray was, and has not been answered since; ``connections`` by node id.

    By Ray's own connections actors are called: what these wait for, Ray tells itself.
    """
    ports = {(actor.node, actor.pid): actor.port for actor in ray.actors}
    served = {
        (one.remote, one.local): one
        for node, found in connections.items()
        for one in found
        if one.serves and not _is_rays(one, ports.get((node, one.owner.pid), 0))
    }
    for one in chain.from_iterable(connections.values()):
        answerer = served.get((one.local, one.remote))
        if answerer is None or one.serves or one.asked_at is None or one.asked_at > ray.at:
            continue
        if one.process != answerer.process:
            yield AwaitedAnswer(
                who=one.process,
                whom=answerer.process,
                asker=one.owner,
                answerer=answerer.owner,
                since=one.asked_at,
            )


def _is_rays(one: Connection, port: int) -> bool:
    """Whether Ray listens there, or may: only of actors is its ``port`` known."""
    return one.owner == one.process and (not port or one.local.endswith(f":{port}"))


def serving_drivers(
    connections: Iterable[Connection], drivers: Iterable[RayDriver]
) -> Iterator[ProcessId]:
    """Those that listen at a port besides that of Ray: whoever asks there is none of the job, as
    the front end of a notebook or the user of a service. What a driver has started may be Ray."""
    ports = {driver.pid: driver.port for driver in drivers if driver.port}
    for one in connections:
        port = ports.get(one.process.pid, 0)
        listens = one.owner == one.process and not one.remote
        if listens and port and not one.local.endswith(f":{port}"):
            yield one.process


class JobAnswers:
    """The awaited answers of one look, by who awaits them and of whom."""

    def __init__(
        self,
        answers: Iterable[AwaitedAnswer],
        answerer: Callable[[AwaitedAnswer], WaitNode],
    ) -> None:
        """``answerer`` gives the node that is waited for."""
        self._of: dict[WaitNode, dict[WaitNode, AwaitedAnswer]] = defaultdict(dict)
        self._askers: dict[WaitNode, list[WaitNode]] = defaultdict(list)
        for one in sorted(answers, key=lambda one: one.since, reverse=True):
            self._of[process_node(one.who)][answerer(one)] = one  # the oldest counts
        for who, asked in self._of.items():
            for whom in asked:
                self._askers[whom].append(who)

    def askers(self, node: WaitNode) -> tuple[WaitNode, ...]:
        """Who awaits an answer of a process."""
        return tuple(self._askers.get(node, ()))

    def since(self, node: WaitNode) -> float | None:
        """When the first of those answers was asked for, in Unix time; None where there is none."""
        asked = (self._of[who][node].since for who in self.askers(node))
        return min(asked, default=None)

    def awaited(self, node: WaitNode) -> Iterator[WaitsFor]:
        """The answers that a process awaits."""
        for whom, one in self._of.get(node, {}).items():
            yield WaitsFor(who=node, awaited=whom, how=ANSWER, since=one.since, witness=SOCKET)
