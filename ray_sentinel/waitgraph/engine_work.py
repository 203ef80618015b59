"""An inference engine below an actor or a driver, as a witness of what that process waits for.

An engine reports how many requests it has, and counts its work. The process that sent it the
requests waits until they are done: while the counters move, the wait will end by itself; if none
has moved for long, the engine hangs; and an engine without requests is idle, because the process
above it has not passed any on.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ray_sentinel.evidence.stacks.tree import place_of
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.waitgraph.facts import Elsewhere, Moves, WaitFact, WaitNode

SERVER = "server"
HANGS = "which get no further"
"""The text for a hanging engine."""
_WAITING = frozenset({"idle", "network-wait", "lock-wait", "input-wait", "unknown"})
"""What a process may be doing while it waits for its engine: at a socket, a queue, a pipe or an
event loop."""


class EngineWork(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an engine."""

    name: str
    """The name of its job, such as "sglang-4711"."""
    requests: str = ""
    """Such as "3 running, 12 waiting requests"; empty if there are none."""
    still: bool = False
    """Whether none of its counters has changed for long."""

    def facts(self, node: WaitNode, fact: StackFact | None) -> Iterator[WaitFact]:
        """Facts about the process above the engine, which runs calls and whose stack is ``fact``;
        none if it does not wait for its engine."""
        waits = fact is None or (fact.activity in _WAITING and not fact.active)
        if not waits:
            return
        if not self.requests:
            if fact is not None and fact.signature:
                place = "" if fact.activity == "idle" else place_of(fact)
                label = f"; {fact.label}" if place and place not in fact.label else ""
                doing = f"its engine {self.name} has no requests{label}"
                yield Elsewhere(process=node, place=place, doing=doing, witness=SERVER)
            return
        state = HANGS if self.still else "which it works on"
        yield Elsewhere(
            process=node,
            place="",
            doing=f"its engine {self.name} has {self.requests}, {state}",
            witness=SERVER,
        )
        if not self.still:
            yield Moves(process=node, witness=SERVER)
