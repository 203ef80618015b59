"""One rank is past a loop in which all others still are, and everybody waits for others.

This happens if one rank had fewer batches than the others, or left the loop by mistake: each waits
in a collective or a transfer of its own, and only the order of the program shows who is past the
rest. The order is read from the program's text (``blocks``), if the node had it.

Nobody is judged who is in an outer loop together with the others: it may be a round behind them,
and wait in a group of its own for one that has gone on without it. Nor if the loop is inside an
``if``: a rank that is past that need never have been in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from ray_sentinel import regex as re
from ray_sentinel.evidence.stacks.compare import shared_depth
from ray_sentinel.evidence.stacks.frames.blocks import (
    Blocks,
    is_conditional,
    is_loop,
    same_statement,
)
from ray_sentinel.model.stacks import StackFact

_PLACE = re.compile(r"(?P<code>.+ \(.+):(?P<line>\d+)\)")
_RAY_TASK = re.compile(r".* \((.*/)?ray/_private/\S+\)")
"""A frame below which a task or a method of an actor runs, which its caller may call over and
over."""
_ONCE = re.compile(r"<module> \(.*\)|.* \((.*/)?ray/train/\S+\)")
"""A frame below which a whole program runs: a script, or the function that Ray Train was given."""

_Form = tuple[tuple[str, ...], tuple[Blocks | None, ...]]


def past_the_loop(ranks: Iterable[StackFact]) -> tuple[StackFact, str] | None:
    """The one of the waiting ranks that is past all others, and where it left their loop."""
    # Thousands of ranks stand in a few places; a rank that shares its place with another is not
    # past it.
    forms: dict[_Form, list[StackFact]] = {}
    for fact in ranks:
        forms.setdefault(_form(fact), []).append(fact)
    stand = [facts[0] for facts in forms.values()]
    for fact in (facts[0] for facts in forms.values() if len(facts) == 1):
        if place := _past_all(fact, (other for other in stand if other is not fact)):
            return fact, place
    return None


def _form(fact: StackFact) -> _Form:
    """The places of ``fact`` and the blocks around each, which are all that ``_past`` compares."""
    return fact.signature, tuple(map(fact.blocks.get, fact.signature))


def _past_all(fact: StackFact, others: Iterable[StackFact]) -> str:
    """Where ``fact`` stands past the first of the others, if it is past all of them; else empty."""
    first = ""
    for other in others:
        place = _past(fact, other)
        if not place:
            return ""
        first = first or place
    return first


def _past(fact: StackFact, other: StackFact) -> str:
    """Where ``fact`` stands in the function in which the two part, if ``other`` is in a loop before
    that; else empty."""
    again = False
    for index, (place, its) in enumerate(zip(fact.signature, other.signature, strict=False)):
        if place == its:
            if any(map(is_loop, fact.blocks.get(place, ()))):
                return ""
            again = (again or bool(_RAY_TASK.fullmatch(place))) and not _ONCE.fullmatch(place)
            continue
        deeper = (other.blocks.get(below, ()) for below in other.signature[index + 1 :])
        return place if not again and _behind_a_loop(fact, place, other, its, deeper) else ""
    return ""


def _behind_a_loop(
    fact: StackFact,
    place: str,
    other: StackFact,
    its: str,
    deeper: Iterable[Blocks],
) -> bool:
    mine, theirs = _PLACE.fullmatch(place), _PLACE.fullmatch(its)
    around, its_around = fact.blocks.get(place), other.blocks.get(its)
    if mine is None or theirs is None or around is None or its_around is None:
        return False
    if mine["code"] != theirs["code"] or int(mine["line"]) <= int(theirs["line"]):
        return False
    shared = shared_depth(around, its_around)
    if any(map(is_loop, around[:shared])):
        return False
    own, inner = around[shared:], its_around[shared:]
    if own and inner and same_statement(own[0], inner[0]):
        return False
    # Behind an ``if`` that the other is in, it may have a part of its own, and never have been in.
    for block in chain(inner, *deeper):
        if is_loop(block) or is_conditional(block):
            return is_loop(block)
    return False
