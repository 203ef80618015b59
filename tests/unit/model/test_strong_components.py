"""Strongly connected components."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ray_sentinel.model.strong_components import components


def test_a_circle_and_what_leads_to_it() -> None:
    found = components({1: [2], 2: [3], 3: [2, 4], 4: [], 5: [1]})
    assert [sorted(part) for part in found] == [[4], [2, 3], [1], [5]]


def test_a_chain_of_ten_thousand_needs_no_recursion() -> None:
    found = components({i: [i + 1] for i in range(10_000)} | {10_000: []})
    assert len(found) == 10_001


@given(
    st.dictionaries(st.integers(0, 7), st.lists(st.integers(0, 7), max_size=4), min_size=1).map(
        lambda edges: {node: edges.get(node, []) for node in range(8)}
    )
)
def test_two_nodes_share_a_component_when_each_reaches_the_other(
    edges: dict[int, list[int]],
) -> None:
    reach = {node: {node} for node in edges}
    for _ in edges:
        for node, targets in edges.items():
            for target in targets:
                reach[node] |= reach[target]
    part_of = {node: i for i, part in enumerate(components(edges)) for node in part}
    for one in edges:
        for other in edges:
            together = other in reach[one] and one in reach[other]
            assert (part_of[one] == part_of[other]) == together
