"""Calls out of turn where stages of a pipeline make other numbers of calls in a step."""

from __future__ import annotations

import msgspec
import pytest

from ray_sentinel.waitgraph.recorder import explain

STEPS = 5
WORLD, PAIR = 0, 1
"""Groups, as each rank numbers them."""


def dumps(ranks: int, wrong: int, fault: str) -> dict[int, bytes]:
    """gloo dumps of a pipeline of pairs. The stage of ``wrong`` (its own pair, and the next where
    there are more than 8 ranks) makes 10 calls in its pair and one of all ranks a step, the others
    12 calls. In the last step ``wrong`` makes "one more" in its pair, or has "left out" one.
    """
    partner = wrong ^ 1
    short = {wrong, partner} if ranks == 8 else set(range(min(wrong, partner), ranks))
    idle = [pair for pair in range(ranks // 2) if not {2 * pair, 2 * pair + 1} & short]
    held = {2 * idle[0]: 9, 2 * idle[0] + 1: 8, 2 * idle[1]: 6, 2 * idle[1] + 1: 5}
    result = {}
    for rank in range(ranks):
        rows: list[dict[str, object]] = []
        numbers = {WORLD: 0, PAIR: 0}
        usual = 10 if rank in short else 12
        last = held.get(rank, usual if rank in short else 0)
        if fault == "left out" and rank == wrong:
            last -= 1
        for step in range(STEPS):
            final = step == STEPS - 1
            count = last if final else usual
            for call in range(1, count + 1):
                waits = final and call == count and rank in held and rank % 2 == 0
                waits |= final and fault == "left out" and rank == partner and call == usual
                add(rows, numbers, PAIR, rank, done=not waits)
            if final and fault == "one more" and rank == wrong:
                add(rows, numbers, PAIR, rank, done=False)
            elif not final or (rank in short and not (fault == "left out" and rank == partner)):
                add(rows, numbers, WORLD, rank, done=not final)
        pair = rank // 2
        groups = {
            "0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(ranks)))},
            "1": {"name": f"{pair + 1}", "desc": "TP", "ranks": str([2 * pair, 2 * pair + 1])},
        }
        dump = {"version": "2.10", "pg_config": groups, "pg_status": {}, "entries": rows}
        result[rank] = msgspec.json.encode(dump)
    return result


def add(
    rows: list[dict[str, object]], numbers: dict[int, int], group: int, rank: int, *, done: bool
) -> None:
    numbers[group] += 1
    size = [[64 if group == PAIR else 1]]
    # Transfers of the whole world are numbered, not recorded.
    unrecorded = 2 * numbers[group] if group == WORLD else 0
    rows.append(
        {
            "record_id": len(rows),
            "pg_id": group,
            "process_group": ["0", "default_pg"] if group == WORLD else [f"{rank // 2 + 1}", "TP"],
            "collective_seq_id": numbers[group],
            "p2p_seq_id": 0,
            "op_id": numbers[group] + unrecorded,
            "profiling_name": "gloo:all_reduce",
            "time_created_ns": (len(rows) + 1) * 10**9,
            "input_sizes": size,
            "input_dtypes": ["Float"],
            "output_sizes": size,
            "output_dtypes": ["Float"],
            "state": "scheduled",
            "retired": done,
            "is_p2p": False,
        }
    )


@pytest.mark.parametrize(("ranks", "wrong"), [(8, 1), (32, 29), (64, 61)])
def test_stages_that_call_more_in_a_step_have_no_vote(ranks: int, wrong: int) -> None:
    facts = explain(dumps(ranks, wrong, "one more"))
    assert facts.culprits == ()
    assert facts.kind == "cannot-tell"


@pytest.mark.parametrize(("ranks", "wrong"), [(32, 28), (64, 60)])
def test_the_own_stage_has(ranks: int, wrong: int) -> None:
    facts = explain(dumps(ranks, wrong, "left out"))
    assert [culprit.rank for culprit in facts.culprits] == [wrong], facts.evidence
    assert "2 other ranks made first" in facts.evidence[0]


def test_many_idle_ranks_are_told_in_one_line() -> None:
    (line,) = (line for line in explain(dumps(64, 61, "one more")).evidence if "idle ranks" in line)
    assert line.startswith("ranks ")
