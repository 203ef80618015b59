"""The chain from a waiting process to what holds it up, for people and for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ray_sentinel.model.incident import ChainLink
from ray_sentinel.waitgraph.facts import (
    ANSWER,
    BUILT,
    CALLED,
    HANDED_TO,
    HELD_BY,
    IN_OPERATION,
    LOCKED,
    MAY_COME_FROM,
    NOT_REACHED,
    QUEUED,
    RUNS_IN,
    UNCALLED,
    WaitNode,
    WaitsFor,
)
from ray_sentinel.waitgraph.solver import GraphRoot


def links(chain: Sequence[WaitsFor], names: Mapping[WaitNode, str]) -> tuple[ChainLink, ...]:
    """The steps of a chain by the names of its nodes.

    A call and the process that it runs in are one step: "driver waits in ray.get for
    Trainer.update of Trainer 1".
    """
    found: list[ChainLink] = []
    for edge in chain:
        end = _name(edge.awaited, names)
        before = found[-1] if found else None
        if before and edge.who.kind == "several":
            since = edge.since if before.since is None else before.since
            found[-1] = msgspec.structs.replace(before, end=end, since=since)
            continue
        if before and edge.who.kind == "call" and edge.awaited.kind == "process":
            found[-1] = msgspec.structs.replace(before, end=in_process(before.end, end, edge.how))
            continue
        found.append(
            ChainLink(
                start=before.end if before else _name(edge.who, names),
                end=end,
                how=edge.how,
                since=edge.since,
                witness=edge.witness,
            )
        )
    return tuple(found)


def in_process(call: str, process: str, how: str) -> str:
    """A call and the process that it waits for in the way ``how``, as one end of a step.

    >>> in_process("Trainer.update", "Trainer 1", RUNS_IN)
    'Trainer.update at Trainer 1'
    >>> in_process("Trainer.update", "Trainer 1", QUEUED)
    'Trainer.update, which is queued at Trainer 1'
    """
    return f"{call} at {process}" if how == RUNS_IN else f"{call}, which {how} {process}"


def who_and_call(end: str) -> tuple[str, str]:
    """The two parts of a step's end: the process, and the call that it should execute; the call is
    empty for other nodes.

    >>> who_and_call("Trainer.update at Trainer 1")
    ('Trainer 1', 'Trainer.update')
    """
    call, _, who = end.rpartition(" at ")
    return who, call


def _name(node: WaitNode, names: Mapping[WaitNode, str]) -> str:
    return names.get(node, node.key)


def sentence(
    root: GraphRoot, steps: Sequence[ChainLink], names: Mapping[WaitNode, str], now: float
) -> str:
    """The chain to a root in words; only its end if there are no steps. ``now`` is Unix time.

    "driver waits 41 s in ray.get for Trainer.update at Trainer 1 → waits 40 s ... → sleeping in
    score (reward.py:88)".
    """
    if not steps:
        return f"{_name(root.members[0], names)}: {ending(root)}"
    told = [step_text(step, now) for step in steps]
    return " → ".join([f"{steps[0].start} {told[0]}", *told[1:], ending(root)])


def step_text(step: ChainLink, now: float) -> str:
    """What the ``start`` of a step does, in words: "waits 41 s in ray.get for Trainer.update at
    Trainer 1".

    If it has not reached an operation, the sentence is about the step's ``end``. ``now`` is Unix
    time.
    """
    age = "" if step.since is None else f" {max(0.0, now - step.since):.0f} s"
    text = "{how} {end}" if step.how in _OF_CALLS else "waits{age} in {how} for {end}"
    return _TEXTS.get(step.how, text).format(age=age, how=step.how, end=step.end)


_TEXTS = {
    NOT_REACHED: "{end} {how}",
    IN_OPERATION: "waits{age} in {end}",
    BUILT: "waits{age} for {end} to be built",
    ANSWER: "waits{age} for {how} {end}",
    LOCKED: "waits{age} for {end}",
}


def edge_label(step: ChainLink, at: float) -> str:
    """The label of a drawn step, between its two ends: "ray.get for Trainer.update, 41 s"."""
    call = who_and_call(step.end)[1]
    how = "waits in" if step.how == IN_OPERATION else _LABELS.get(step.how, step.how)
    if call and step.how not in _OF_CALLS:
        how = f"{how} for {call}"
    return how if step.since is None else f"{how}, {max(0.0, at - step.since):.0f} s"


_LABELS = {
    NOT_REACHED: "not reached by",
    BUILT: "waits until it is built",
    ANSWER: "waits for an answer",
    LOCKED: "waits for",
}


_OF_CALLS = frozenset(
    (
        CALLED,
        MAY_COME_FROM,
        QUEUED,
        UNCALLED,
        HANDED_TO,
        HELD_BY,
        "needs",
        "needs its actor",
        "needs the result of",
        "fetches",
    )
)
"""What is said of a call or a resource, which has no place of its own to wait in."""


GOES_ON = "which goes on, last seen "
"""The beginning of the last part of a chain that ends at a working process; what that does follows.
"""


def ending(root: GraphRoot) -> str:
    """What holds the chain up, in words."""
    if root.kind == "works" and root.why:
        return GOES_ON + root.why
    return root.why or _ENDINGS[root.kind]


_ENDINGS = {
    "broken": "it cannot go on",
    "standing": "it stands still",
    "works": "which goes on",
    "idle": "it has nothing to do",
    "mute": "nothing can be learned of it",
    "circle": "they wait for each other",
    "unheld": "nobody has it",
    "complete": "all have come to it, and it does not end",
}
