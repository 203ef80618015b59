"""Whatever is seen, and in whatever order: properties of the verdict."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from ray_sentinel.model.stacks import StackFact
from ray_sentinel.waitgraph.stacks import explain
from tests.support.stack_facts import elsewhere, fact, looks, ranks

_FACTS = st.builds(
    lambda rank, activity, waits, place, state, active, keeps, error: fact(
        rank,
        activity=activity,
        waits_for_others=waits,
        signature=() if error else (place,),
        state=state,
        active=active,
        keeps_gil=keeps,
        error=error,
        operation="all_reduce" if waits else "",
    ),
    st.integers(0, 12),
    st.sampled_from(["collective-wait", "sleep", "unknown", "device-wait", "input-wait", "idle"]),
    st.sampled_from([True, False, None]),
    st.sampled_from(["a (x.py:1)", "a (x.py:2)", "b (y.py:1)", "native"]),
    st.sampled_from(["", "S", "R", "D", "T"]),
    st.sampled_from([True, False, None]),
    st.booleans(),
    st.sampled_from(["", "", "", "py-spy: the process was gone when the tool came"]),
)


@given(st.lists(st.lists(_FACTS, max_size=13), max_size=3))
@settings(max_examples=400, deadline=None)
def test_whatever_is_seen_at_most_half_is_accused(rounds: Sequence[Sequence[StackFact]]) -> None:
    found = explain(rounds)
    seen = {fact.process for facts in rounds for fact in facts}
    assert len(found.culprits) <= max(1, len(seen) // 2)
    assert 0.0 <= found.confidence <= 1.0
    assert all(process in seen for process in found.processes)
    msgspec.json.encode((found.culprits, found.evidence, found.classes, found.waiting))


@given(st.integers(3, 12), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_the_order_of_the_processes_does_not_matter(size: int, chance: random.Random) -> None:
    facts = [fact(r) for r in range(size - 1)] + [elsewhere(size - 1)]
    chance.shuffle(facts)
    assert ranks(looks(*facts)) == [size - 1]
