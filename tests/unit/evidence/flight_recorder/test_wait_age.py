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


def as_of(dumps: dict[int, bytes], rank: int, rows: int) -> dict[int, bytes]:
    """The dumps, that of ``rank`` from when it had completed only its first ``rows`` calls."""
    dump = msgspec.json.decode(dumps[rank])
    dump["entries"] = dump["entries"][:rows]
    status = {"last_enqueued_collective": rows, "last_completed_collective": rows}
    dump["pg_status"]["0"] |= status
    return {**dumps, rank: msgspec.json.encode(dump)}


def later(dump: bytes, seconds: float) -> bytes:
    """The dump of a run that began so much later."""
    told = msgspec.json.decode(dump)
    for row in told["entries"]:
        row["time_created_ns"] += int(seconds * 1e9)
    return msgspec.json.encode(told)


@pytest.mark.parametrize(("rank", "kind"), [(0, "not-enqueued"), (CULPRIT, "no-dump")])
def test_what_an_earlier_run_has_left_is_not_compared(rank: int, kind: str) -> None:
    now = {r: later(dump, 7_200.0) for r, dump in hang(0.01).items()}
    left = as_of(hang(0.01), rank, 3)[rank]
    facts = explain({**now, rank: left})
    assert ([culprit.rank for culprit in facts.culprits], facts.kind) == ([CULPRIT], kind)
    assert any(f"dump of rank {rank}" in line for line in facts.problems)
    # A time-out is not between them: the job moved while it was dumped, or a clock is wrong.
    soon = {r: later(dump, -100.0) for r, dump in hang(0.01).items() if r != rank}
    assert explain({**soon, rank: left}).kind == "running"


def test_ranks_that_only_an_earlier_larger_run_had_are_not_missed() -> None:
    now = {r: later(dump, 7_200.0) for r, dump in hang(0.01).items()}
    old = hang(0.01)[0].replace(b"[0, 1, 2, 3]", b"[0, 1, 2, 3, 4, 5]")
    facts = explain({**now, 4: old, 5: old}, world_size=6)
    assert [culprit.rank for culprit in facts.culprits] == [CULPRIT]


@pytest.mark.parametrize(("earlier", "named"), [(0.0, [0, CULPRIT]), (40.0, [CULPRIT])])
def test_a_dump_from_before_the_others_shows_nobody_stuck(earlier: float, named: list[int]) -> None:
    """Rank 0 has call 5 pending, which its peers completed later."""
    dumps = hang(0.01)
    dump = msgspec.json.decode(dumps[0])
    dump["entries"] = dump["entries"][:5]
    dump["entries"][4] |= {"state": "scheduled", "retired": False}
    dump["pg_status"]["0"] |= {"last_enqueued_collective": 5, "last_completed_collective": 4}
    dumps[0] = msgspec.json.encode(dump)
    written = {rank: START + CLOCKS[rank] + 50.0 for rank in dumps}
    written[0] = START + (0.4 if earlier else 50.0)
    facts = explain(dumps, written=written)
    assert [culprit.rank for culprit in facts.culprits] == named
    assert any("may have gone on" in line for line in facts.evidence) == bool(earlier)
