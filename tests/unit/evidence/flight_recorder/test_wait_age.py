"""A wait that is younger than the job's own pace accuses nobody."""

from __future__ import annotations

import msgspec
import pytest

from ray_sentinel.model.recorder import RecorderFacts
from ray_sentinel.waitgraph.recorder import explain

RANKS = 4
CULPRIT = 2
START = 1_758_580_156.0
CLOCKS = {rank: 300.0 * rank for rank in range(RANKS)}
"""How far each rank's clock goes before."""


def call(rank: int, number: int, when: float, **fields: object) -> dict[str, object]:
    return {
        "record_id": number - 1,
        "pg_id": 0,
        "process_group": ["0", "default_pg"],
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "op_id": number,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": int((START + CLOCKS[rank] + when) * 1e9),
        "input_sizes": [[8]],
        "input_dtypes": ["Float"],
        "output_sizes": [[8]],
        "output_dtypes": ["Float"],
        "state": "completed",
        "retired": True,
        "is_p2p": False,
    } | fields


def hang(interval: float, steps: int = 6, **last: object) -> dict[int, bytes]:
    """Dumps of ranks that all make a call every ``interval`` seconds, but rank 2 not the last."""
    dumps = {}
    for rank in range(RANKS):
        rows = [call(rank, number, number * interval) for number in range(1, steps)]
        if rank != CULPRIT:
            pending: dict[str, object] = {"state": "scheduled", "retired": False}
            rows.append(call(rank, steps, steps * interval, **(pending | last)))
        done, made = steps - 1, len(rows)
        status = {"last_enqueued_collective": made, "last_completed_collective": done}
        dump = {
            "version": "2.10",
            "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}},
            "pg_status": {"0": {**status, "last_started_collective": -1}},
            "entries": rows,
        }
        dumps[rank] = msgspec.json.encode(dump)
    return dumps


def after(dumps: dict[int, bytes], age: float, interval: float, steps: int = 6) -> RecorderFacts:
    """The explanation of dumps that were written ``age`` seconds after the last call."""
    written = {rank: START + CLOCKS[rank] + steps * interval + age for rank in dumps}
    return explain(dumps, written=written)


@pytest.mark.parametrize(
    ("interval", "age", "named"),
    [
        (0.01, 0.5, False),
        (0.01, 1.5, True),
        (5.0, 0.5, False),
        (5.0, 4.0, False),
        (5.0, 6.0, True),
        (5.0, 600.0, True),
        (1200.0, 600.0, True),
    ],
)
def test_a_wait_is_judged_by_how_often_its_call_is_made(
    interval: float, age: float, named: bool
) -> None:
    facts = after(hang(interval), age, interval)
    assert [culprit.rank for culprit in facts.culprits] == ([CULPRIT] if named else [])
    assert facts.kind == ("not-enqueued" if named else "cannot-tell")
    if not named:
        assert f"{age:.1f} s old" in facts.evidence[-1]
        assert "--earlier" in facts.evidence[-1]
        assert {wait.rank for wait in facts.waits} == {0, 1, 3}


def test_few_calls_make_no_habit() -> None:
    assert after(hang(5.0, steps=3), 2.0, 5.0, steps=3).kind == "not-enqueued"


def test_another_call_makes_no_habit() -> None:
    other = hang(5.0, input_sizes=[[9]], output_sizes=[[9]])
    assert after(other, 2.0, 5.0).kind == "not-enqueued"


def test_one_old_wait_is_enough() -> None:
    written = {rank: START + CLOCKS[rank] + 30.2 for rank in range(RANKS)}
    assert explain(hang(5.0), written=written).kind == "cannot-tell"
    written[3] += 60
    assert explain(hang(5.0), written=written).kind == "not-enqueued"


@pytest.mark.parametrize(
    "written",
    [
        {},
        dict.fromkeys(range(RANKS), 0.0),
        dict.fromkeys(range(RANKS), START + 30.1),
        {0: START + 30.1},
    ],
    ids=["none", "epoch", "other clock", "one"],
)
def test_files_times_that_tell_nothing_acquit_nobody(written: dict[int, float]) -> None:
    facts = explain(hang(5.0), written=written)
    assert [culprit.rank for culprit in facts.culprits] == [CULPRIT]


def test_calls_without_their_time_acquit_nobody() -> None:
    dumps = hang(5.0, time_created_ns=None)
    assert after(dumps, 0.5, 5.0).kind == "not-enqueued"


def test_nobody_went_on_since_the_earlier_dumps() -> None:
    dumps = hang(5.0)
    written = {rank: START + CLOCKS[rank] + 30.5 for rank in dumps}
    facts = explain(dumps, earlier=dumps, written=written)
    assert [culprit.rank for culprit in facts.culprits] == [CULPRIT]


def test_a_wrong_call_is_wrong_at_once() -> None:
    dumps = hang(5.0)
    wrong = msgspec.json.decode(dumps[CULPRIT])
    pending: dict[str, object] = {"state": "scheduled", "retired": False, "input_sizes": [[9]]}
    wrong["entries"].append(call(CULPRIT, 6, 30.0, **pending, output_sizes=[[9]]))
    wrong["pg_status"]["0"]["last_enqueued_collective"] = 6
    facts = after(dumps | {CULPRIT: msgspec.json.encode(wrong)}, 0.5, 5.0)
    assert [culprit.rank for culprit in facts.culprits] == [CULPRIT]
    assert facts.kind == "collective-mismatch"
