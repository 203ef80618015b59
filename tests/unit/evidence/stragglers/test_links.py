"""Simulated pairs of ranks that reduce over the network beside a world-wide collective."""

from __future__ import annotations

import json
import random

import pytest

from ray_sentinel.evidence.stragglers import explain

WORLD = 16
HOSTS = {rank: f"node{rank // 2}" for rank in range(WORLD)}
"""Rank r is paired with r + 8, always on another node."""


def dumps_of(
    seed: int,
    slow: dict[int, float],
    *,
    timed: bool = True,
    ranks: dict[int, float] | None = None,
    together: int = 30,
) -> dict[int, bytes]:
    """``slow``: pair (its lower rank) → factor of its transfers; ``ranks``: of a rank's work;
    ``together``: steps, the last of 30, in which all ranks call a collective."""
    dice = random.Random(seed)
    transfer, step = dice.uniform(0.01, 0.2), dice.uniform(0.1, 1.0)
    now = 1.7e9
    entries: dict[int, list[dict[str, object]]] = {rank: [] for rank in range(WORLD)}

    def record(rank: int, group: str, number: int, at: float, seconds: float) -> None:
        entries[rank].append(
            {
                "profiling_name": "nccl:all_reduce",
                "process_group": [group, "pair" if group != "0" else "default_pg"],
                "pg_id": int(group),
                "collective_seq_id": number,
                "is_p2p": False,
                "record_id": len(entries[rank]),
                "time_created_ns": int(at * 1e9),
                "duration_ms": 1000 * seconds if timed else None,
                "input_sizes": [[1024]],
                "input_dtypes": ["Float"],
                "output_sizes": [[1024]],
                "output_dtypes": ["Float"],
                "state": "completed",
            }
        )

    for number in range(1, 31):
        ready = {
            r: now + step * (ranks or {}).get(r, 1.0) * max(0.5, dice.gauss(1, 0.05))
            for r in range(WORLD)
        }
        free = {}
        for low in range(WORLD // 2):
            both = (low, low + WORLD // 2)
            takes = transfer * slow.get(low, 1.0) * max(0.5, dice.gauss(1, 0.08))
            last = max(ready[r] for r in both)
            for r in both:
                record(r, str(low + 1), number, ready[r], last + takes - ready[r])
                free[r] = last + takes
        end = max(free.values()) + 0.002
        for r, at in free.items():
            if number > 30 - together:
                record(r, "0", number, at, end - at)
        now = end
    return {
        rank: json.dumps({"version": "2.10", "entries": found}).encode()
        for rank, found in entries.items()
    }


@pytest.mark.parametrize("factor", [1.6, 3.0])
def test_a_slow_link_is_named_and_its_ranks_are_no_stragglers(factor: float) -> None:
    right = 0
    for seed in range(20):
        pair = seed % 8
        facts = explain(dumps_of(seed, {pair: factor}), hosts=HOSTS)
        right += (facts.kind, facts.ranks) == ("slow-link", (pair, pair + 8))
    assert right >= 19


def test_what_it_costs_is_told() -> None:
    facts = explain(dumps_of(3, {2: 3.0}), hosts=HOSTS)
    assert 0 < facts.cost < 1
    assert "times the median of 8 groups" in " ".join(facts.evidence)


def test_two_slow_links_of_one_node_are_its_network() -> None:
    hosts = {rank: f"node{rank // 2 if rank < 8 else rank}" for rank in range(WORLD)}
    facts = explain(dumps_of(5, {2: 2.5, 3: 2.5}), hosts=hosts)
    assert (facts.kind, facts.host) == ("slow-link", "node1")
    assert facts.ranks == (2, 3, 10, 11)


def test_equal_links_and_slow_ranks_are_told_as_before() -> None:
    for seed in range(20):
        assert explain(dumps_of(seed, {}), hosts=HOSTS).kind in ("even", "cannot-tell")


@pytest.mark.parametrize("timed", [True, False])
def test_who_waits_in_its_pair_for_a_slow_rank_is_not_slow(timed: bool) -> None:
    for seed in range(10):
        facts = explain(dumps_of(seed, {}, timed=timed, ranks={5: 1.8}), hosts=HOSTS)
        assert (facts.kind, facts.ranks) == ("slow-rank", (5,))


def test_untimed_devices_tell_of_no_link() -> None:
    assert explain(dumps_of(9, {1: 3.0}, timed=False), hosts=HOSTS).kind != "slow-link"


@pytest.mark.parametrize("together", [0, 6, 30])
def test_a_link_is_named_however_often_all_ranks_meet(together: int) -> None:
    facts = explain(dumps_of(3, {2: 3.0}, together=together), hosts=HOSTS)
    assert (facts.kind, facts.ranks) == ("slow-link", (2, 10))
    assert "too few" not in " ".join(facts.evidence)
