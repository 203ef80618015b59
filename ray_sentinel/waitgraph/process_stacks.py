"""What the stack of a process of a Ray job says of how it waits, or why it cannot go on."""

from __future__ import annotations

from collections.abc import Mapping

from ray_sentinel.evidence.stacks.frames.names import last_name
from ray_sentinel.evidence.stacks.tree import place_of
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.waitgraph.facts import FactKind

BLOCKED = "D"
"""The kernel's letter for a thread that it does not let go on."""
_STATES: Mapping[str, tuple[FactKind, str]] = {
    "T": ("rank-stopped", "is stopped by a signal"),
    "t": ("rank-stopped", "is stopped by a debugger"),
    BLOCKED: ("kernel-blocked", "is blocked in the kernel"),
    "Z": ("rank-dead", "has ended"),
    "X": ("rank-dead", "has ended"),
}
GROUP_WAIT = "PlacementGroup.wait"
_WAITS = {"get": "ray.get", "get_objects": "ray.get", "wait": "ray.wait"}


def ray_wait(fact: StackFact) -> str:
    """The Ray wait in which a process stands: "ray.get", "ray.wait", "PlacementGroup.wait", or
    empty."""
    for place in reversed(fact.signature):
        function, _, where = place.partition(" (")
        name = last_name(function)
        if "ray/_private/worker.py" in where and name in _WAITS:
            return _WAITS[name]
        if "ray/util/placement_group.py" in where:
            return GROUP_WAIT
    return ""


def waits_for_threads(fact: StackFact) -> bool:
    """Whether a process may wait for calls that threads or coroutines of its own have made; the
    batches of Ray Data come from such calls."""
    fed = fact.activity == "input-wait" and "(ray/data/" in "".join(fact.signature[-1:])
    return not fact.waits_for_others and (fact.rests or fed or fact.activity == "lock-wait")


def at_device(fact: StackFact) -> bool:
    """Whether a process waits for its device. Most libraries ask the device over and over until it
    has finished, so neither time on a CPU nor context switches show that it gets further."""
    return fact.activity == "device-wait"


def broken(fact: StackFact) -> tuple[FactKind, str] | None:
    """Why a process cannot go on, for programs and in words; None if it can."""
    if fact.keeps_gil and fact.state not in _STATES:
        return "gil-held", f"holds the GIL in {place_of(fact)}"
    return _STATES.get(fact.state)
