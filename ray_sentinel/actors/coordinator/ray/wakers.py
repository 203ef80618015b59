"""Whose calls end the waits in calls of another method, from the calls of an actor that have ended.

A ``get`` of a queue waits until somebody calls ``put``: no call of Ray's waits for that one, as it
has not been made. But of the calls that waited before, the times tell what ended them: they end
together with a ``put``. Of a call that waits for something of its own, no other's end is as near.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from ray_sentinel.actors.coordinator.ray.replies import id_of, times_of
from ray_sentinel.model.ray_calls import CallWaker, RayCall

WAITED_SECONDS = 0.01
"""A call that was shorter did not wait."""
NEAR = 0.05
"""A call ended another's wait if it ended so near to its end, as a share of the time in which that
could have ended by chance."""
LEAST = 3
"""How many calls of a name must have been ended by calls of another name."""
MOST_CALLS = 1000
"""Of the calls of one method, the last ones are looked at."""
MOST_WAKERS = 1000
"""Of more, the others are left out."""


class _Ended(NamedTuple):
    """A call that has ended. Times are Unix seconds."""

    end: float
    begin: float
    caller: str


def wakers_of(reply: Any, running: Iterable[RayCall]) -> tuple[CallWaker, ...]:
    """Who has ended waits in calls that are ``running``, from a ``GetTaskEventsReply`` with the
    calls that have ended."""
    waiting: dict[str, set[str]] = defaultdict(set)
    for call in running:
        if call.kind == "actor-task" and call.state == "running" and call.name:
            waiting[call.actor].add(call.name)
    methods = _methods(reply, waiting)
    found = (
        waker
        for actor, names in waiting.items()
        for name in sorted(names)
        for waker in _wakers(actor, name, methods[actor])
    )
    return tuple(islice(found, MOST_WAKERS))


def _methods(reply: Any, actors: Collection[str]) -> dict[str, dict[str, list[_Ended]]]:
    """The calls of some actors by actor and name, in the order of their ends."""
    methods: dict[str, dict[str, list[_Ended]]] = {actor: defaultdict(list) for actor in actors}
    for name, begin, end, info in times_of(reply):
        if (actor := id_of(info.actor_id)) in methods:
            one = _Ended(end, begin, _caller(id_of(info.parent_task_id)))
            methods[actor][name].append(one)
    return {
        actor: {name: sorted(calls)[-MOST_CALLS:] for name, calls in named.items()}
        for actor, named in methods.items()
    }


def _caller(parent: str) -> str:
    """The actor that runs a call, whose id ends with its actor's (``TaskID``, ``id.h``); the call's
    own id if it is no actor's: then that part has no bits of its own."""
    actor = parent[16:]
    return parent if actor.startswith(24 * "f") else actor


def _wakers(actor: str, waits: str, methods: dict[str, list[_Ended]]) -> Iterator[CallWaker]:
    """Who has ended the waits in one method of an actor."""
    own = methods.get(waits, [])
    waited = [one for one in own if one.end - one.begin >= WAITED_SECONDS]
    for wakes, calls in sorted(methods.items()):
        ends = [one.end for one in calls]
        by_it = sum(_ended_by(one, ends) for one in waited) if wakes != waits else 0
        if by_it < max(LEAST, len(waited) / 2):
            continue
        for caller, last in {one.caller: one.end for one in calls}.items():
            got = sum(one.caller == caller and one.end > last for one in own)
            yield CallWaker(actor=actor, waits=waits, wakes=wakes, caller=caller, owes=got == 1)


def _ended_by(call: _Ended, ends: Sequence[float]) -> bool:
    """Whether one of some ``ends``, in ascending order, has ended a call: the first one in it, or
    one of the two around its end, is nearer to that than it would be by chance.

    The call that ended the other may be told to have ended after it: Ray tells the time of an end
    some milliseconds later, and of two at a time in either order.
    """
    first, after = bisect_right(ends, call.begin), bisect_right(ends, call.end)
    if first < after and call.end - ends[first] <= NEAR * (call.end - call.begin):
        return True
    for at in (after - 1, after):
        if first <= at < len(ends):
            before = max(call.begin, ends[at - 1] if at else 0.0)
            if abs(call.end - ends[at]) <= NEAR / 2 * (max(call.end, ends[at]) - before):
                return True
    return False
