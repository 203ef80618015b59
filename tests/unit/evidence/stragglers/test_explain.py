"""Simulated jobs in lockstep: who is slow is named, and noise names nobody."""

from __future__ import annotations

import json
import random

import pytest

from ray_sentinel.evidence.stragglers import explain
from ray_sentinel.model.straggler import StragglerFacts

RANKS = 8


def dumps_of(
    seed: int,
    steps: int,
    slow: dict[int, float],
    *,
    noise: float = 0.05,
    per_step: int = 2,
    timed: bool = False,
    clocks: dict[int, float] | None = None,
) -> dict[int, bytes]:
    """Dumps of a job whose ranks compute, and then call ``per_step`` collectives."""
    dice = random.Random(seed)
    step = dice.uniform(0.05, 3.0)
    now = 1.7e9
    entries: dict[int, list[dict[str, object]]] = {rank: [] for rank in range(RANKS)}
    number = 0
    for _ in range(steps):
        work = {
            rank: step * slow.get(rank, 1.0) * max(0.2, dice.gauss(1.0, noise))
            for rank in range(RANKS)
        }
        for part in range(per_step):
            calls = {r: now + (work[r] if part == 0 else 0.001 * dice.random()) for r in work}
            last = max(calls.values())
            number += 1
            for rank, at in calls.items():
                shift = (clocks or {}).get(rank, 0.0)
                entries[rank].append(
                    {
                        "profiling_name": "nccl:all_reduce" if timed else "gloo:all_reduce",
                        "process_group": ["0", "default_pg"],
                        "pg_id": 0,
                        "collective_seq_id": number,
                        "is_p2p": False,
                        "record_id": number,
                        # A device is not late to call, it is late to begin.
                        "time_created_ns": int((now if timed else at + shift) * 1e9),
                        "duration_ms": 1000 * (last - at + 0.002) if timed else None,
                        "state": "completed",
                    }
                )
            now = last + 0.002
    return {
        rank: json.dumps({"version": "2.10", "entries": found}).encode()
        for rank, found in entries.items()
    }


def share_right(slow: float, noise: float, runs: int = 60, steps: int = 30, **how: object) -> float:
    right = 0
    for seed in range(runs):
        victim = seed % RANKS
        facts = explain(dumps_of(seed, steps, {victim: slow}, noise=noise, **how))  # type: ignore[arg-type]
        right += facts.ranks == (victim,)
    return right / runs


@pytest.mark.parametrize("slow", [1.3, 2.0])
@pytest.mark.parametrize("noise", [0.02, 0.1, 0.2])
def test_a_straggler_is_named_within_30_steps(slow: float, noise: float) -> None:
    assert share_right(slow, noise) >= 0.95


@pytest.mark.parametrize("slow", [1.3, 2.0])
def test_a_slow_device_is_named_by_the_time_in_collectives(slow: float) -> None:
    assert share_right(slow, 0.1, timed=True) >= 0.95


def test_nobody_is_named_in_noisy_healthy_jobs() -> None:
    for seed in range(300):
        steps = random.Random(seed).choice([10, 15, 30, 100])
        facts = explain(dumps_of(seed + 1000, steps, {}, noise=0.2, per_step=1 + seed % 3))
        assert not facts.ranks, (seed, facts)
        assert facts.kind in ("even", "imbalance")


def test_what_it_costs() -> None:
    facts = explain(dumps_of(1, 60, {3: 1.5}, noise=0.01))
    assert facts.cost == pytest.approx(1 / 3, abs=0.05)
    assert facts.busy[0].rank == 3
    assert facts.busy[0].share > 0.9
    assert 0.5 < facts.busy[-1].share < 0.8


def hosts() -> dict[int, str]:
    return {rank: f"node{rank // 2}" for rank in range(RANKS)}


def test_all_ranks_of_one_host_are_a_slow_node() -> None:
    facts = explain(dumps_of(2, 40, {4: 1.4, 5: 1.4}, noise=0.05), hosts=hosts())
    assert facts.kind == "slow-node"
    assert facts.host == "node2"
    assert facts.ranks == (4, 5)


def test_one_rank_of_a_host_is_a_slow_rank() -> None:
    facts = explain(dumps_of(3, 40, {4: 1.4}, noise=0.05), hosts=hosts())
    assert facts.kind == "slow-rank"
    assert facts.ranks == (4,)


def test_uneven_work_of_many_ranks_accuses_nobody() -> None:
    many = dict.fromkeys(range(4), 1.5)
    facts = explain(dumps_of(4, 40, many, noise=0.02))
    assert not facts.ranks


def test_clocks_apart_are_put_right_by_their_offsets() -> None:
    clocks = {0: 5.0, 1: 5.0}
    dumps = dumps_of(5, 40, {6: 1.5}, noise=0.02, clocks=clocks)
    offsets = {rank: -shift for rank, shift in clocks.items()}
    assert explain(dumps, offsets=offsets).ranks == (6,)


def test_too_little_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    def kind(facts: StragglerFacts) -> str:
        return facts.kind

    assert kind(explain({})) == "cannot-tell"
    assert kind(explain(dumps_of(6, 2, {}))) == "cannot-tell"
    broken = explain({0: b"no dump", **{r: d for r, d in dumps_of(7, 20, {}).items() if r}})
    assert broken.problems
    assert kind(broken) == "even"


def test_ranks_that_were_not_timed_do_not_seem_never_to_wait() -> None:
    for seed in range(10):
        dumps = dumps_of(seed, 30, {}, timed=True, noise=0.2)
        dumps[3] = without_durations(dumps[3])
        assert explain(dumps).kind in ("even", "cannot-tell")


def without_durations(dump: bytes) -> bytes:
    data = json.loads(dump)
    for entry in data["entries"]:
        entry["duration_ms"] = None
    return json.dumps(data).encode()


@pytest.mark.parametrize("field", ["time_created_ns", "duration_ms"])
def test_a_number_beyond_all_clocks_is_left_out(field: str) -> None:
    dumps = dumps_of(1, 30, {}, timed=True)
    data = json.loads(dumps[2])
    data["entries"][4][field] = 10**400
    dumps[2] = json.dumps(data).encode()
    assert explain(dumps).kind in ("even", "cannot-tell")
