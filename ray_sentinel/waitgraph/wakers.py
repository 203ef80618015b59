"""Who is to end the waits in calls of an actor: who has ended such waits before.

What waits in the ``get`` of a queue waits for a ``put`` that nobody has made, so no call of Ray's
shows for whom. Whoever has called ``put`` before, and does not wait for the queue itself, may call
it again. Of a lock, that is who has called ``acquire`` and has not called ``release`` since.
"""

from __future__ import annotations

import functools
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ray_sentinel.model.ray_calls import CallWaker, RayCall
from ray_sentinel.waitgraph.facts import (
    MAY_COME_FROM,
    UNCALLED,
    Elsewhere,
    Moves,
    WaitFact,
    WaitNode,
    WaitsFor,
)
from ray_sentinel.waitgraph.graph import build
from ray_sentinel.waitgraph.unmet import RAY

if TYPE_CHECKING:  # it imports this module
    from ray_sentinel.waitgraph.ray_calls import RayFacts

NEEDS = "needs"
RESTS = "resting without another "
WAITS = "waiting without another "
"""The beginnings of what a process does for which somebody waits to make a call; its name follows.
An actor runs no call; or the process waits for the very actor that it is to call."""


class AwaitedWakers:
    """The waits of actors for whoever is to call them, added to the facts of a look."""

    def __init__(
        self, facts: tuple[WaitFact, ...], wakers: Iterable[CallWaker], look: RayFacts
    ) -> None:
        """``facts`` are those of the ``look`` without these waits."""
        self._facts, self._look = facts, look
        self._added: list[WaitsFor] = []
        self._doing: dict[WaitNode, str] = {}
        """What a process at rest does, or one that waits for the actor that waits for it."""
        self.names: dict[WaitNode, str] = {}
        """What people call the nodes that are new."""
        self.waits_of: dict[WaitNode, tuple[RayCall, ...]] = {}
        """By a process that is to call an actor, the calls that wait for it."""
        self.resting: dict[WaitNode, WaitNode] = {}
        """The actor that waits, by those of these processes that run nothing."""
        known: dict[tuple[str, str], list[CallWaker]] = defaultdict(list)
        for waker in wakers:
            known[waker.actor, waker.waits].append(waker)
        for node, member in look.processes.known.items() if known else ():
            calls = look.runs(node) if member.actor else ()
            by_name = [
                [one for one in known.get((member.actor, name), ()) if not _has_called(one, calls)]
                for name in dict.fromkeys(call.name for call in calls)
            ]
            # What else it runs may wait for something of its own.
            if by_name and all(by_name) and look.may_be_woken(node):
                self._add(node, calls, [one for some in by_name for one in some])
        self.waiting = frozenset(one.who for one in self._added if one.who.kind == "process")
        """The actors that wait to be called by certain processes."""

    def _add(self, actor: WaitNode, calls: tuple[RayCall, ...], wakers: list[CallWaker]) -> None:
        """An actor waits in ``calls``, each of which some of the ``wakers`` may end."""
        held_up = self._held_up_by(actor)
        there = [
            (waker, process)
            for waker in wakers
            if (process := self._look.node_of(waker.caller)) is not None and process != actor
        ]
        found = [one for one in there if one[1] not in held_up]
        owing = [one for one in there if one[0].owes]
        if len(owing) > 1:
            owing = [one for one in found if one[0].owes]
        since = min((call.since for call in calls if call.since is not None), default=None)
        for waker, process in owing or found:
            needed = WaitNode("resource", f"{waker.wakes} at {actor.key}")
            self.names[needed] = f"another {waker.wakes}"
            self._added += _steps(actor, needed, process, since)
            self.waits_of[process] = calls
            # Who is called by somebody that does not wait will be called again.
            driver = self._look.processes.driver_of(self._look.processes.known[process].job)
            if process in held_up:
                self._doing[process] = f"{WAITS}{waker.wakes}"
            elif driver in held_up and self._look.is_at_rest(process):
                self._doing[process] = f"{RESTS}{waker.wakes}"
                self.resting[process] = actor

    @functools.cached_property
    def _waiters(self) -> dict[WaitNode, list[WaitNode]]:
        """Who waits for a node, by that node."""
        found: dict[WaitNode, list[WaitNode]] = defaultdict(list)
        for who, edges in build(self._facts).edges.items():
            for edge in edges:
                if edge.how != UNCALLED:  # an actor at rest waits for nobody
                    found[edge.awaited].append(who)
        return found

    def _held_up_by(self, node: WaitNode) -> set[WaitNode]:
        """A node, and all that waits for it, directly or not."""
        found, queue = {node}, deque([node])
        while queue:
            for who in self._waiters.get(queue.popleft(), ()):
                if who not in found:
                    found.add(who)
                    queue.append(who)
        return found

    @property
    def facts(self) -> tuple[WaitFact, ...]:
        """All facts, old and new."""
        # They are what is waited for: that they wait themselves, or were called just now, is not.
        kept = (
            fact
            for fact in self._facts
            if not (isinstance(fact, WaitsFor) and fact.who in self._doing)
            and not (isinstance(fact, Moves) and fact.process in self._doing)
        )
        stand = (
            Elsewhere(process=process, place="", doing=doing, witness=RAY)
            for process, doing in self._doing.items()
        )
        return (*kept, *stand, *self._added)


def _has_called(waker: CallWaker, running: Iterable[RayCall]) -> bool:
    """Whether the call that would be awaited of a waker is one of those ``running`` at the actor.
    Calls that a process makes together often end together, whoever ends them."""
    return any(call.name == waker.wakes and call.parent.endswith(waker.caller) for call in running)


def _steps(
    actor: WaitNode, needed: WaitNode, process: WaitNode, since: float | None
) -> Iterator[WaitsFor]:
    """The wait of an actor for a call, and of that for who may make it; one of several will do."""
    yield WaitsFor(who=actor, awaited=needed, how=NEEDS, since=since, any_of=True, witness=RAY)
    yield WaitsFor(
        who=needed, awaited=process, how=MAY_COME_FROM, since=since, any_of=True, witness=RAY
    )
