"""Batches, counters and the last operations of one dump."""

from __future__ import annotations

import msgspec
import pytest

from ray_sentinel.evidence.flight_recorder.dump import read
from ray_sentinel.evidence.flight_recorder.entry import number
from ray_sentinel.evidence.flight_recorder.groups import identify
from ray_sentinel.evidence.flight_recorder.progress import measure
from ray_sentinel.evidence.flight_recorder.tables import GroupStatus


def row(record: int, title: str, coll: int, p2p: int = 0, **fields: object) -> dict[str, object]:
    return {
        "record_id": record,
        "pg_id": 0,
        "process_group": ["0", "default_pg"],
        "collective_seq_id": coll,
        "p2p_seq_id": p2p,
        "op_id": coll + p2p,
        "profiling_name": title,
        "input_sizes": [[4, 2]],
        "input_dtypes": ["Float"],
        "output_sizes": [[4, 2]],
        "output_dtypes": ["Float"],
        "state": "scheduled",
        "retired": False,
        "is_p2p": "send" in title or "recv" in title or bool(p2p and "coalesced" in title),
    } | fields


def data(rows: list[dict[str, object]], enqueued: object = None, completed: object = None) -> bytes:
    status = {
        "last_enqueued_collective": enqueued,
        "last_started_collective": -1,
        "last_completed_collective": completed,
    }
    return msgspec.json.encode(
        {
            "version": "2.9",
            "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
            "pg_status": {"0": status},
            "entries": rows,
        }
    )


def test_batch_has_the_state_of_its_closing_entry() -> None:
    parts = [row(0, "nccl:send 0->1", 0, 1), row(1, "nccl:recv 0<-1", 0, 1)]
    pending = read(0, data([*parts, row(2, "nccl:coalesced", 0, 1)])).pending
    assert [(entry.op, len(entry.parts)) for entry in pending] == [("coalesced", 2)]
    done = read(0, data([*parts, row(2, "nccl:coalesced", 0, 1, state="completed")]))
    assert done.pending == []
    assert [entry.title for entry in done.last_done.values()] == [pending[0].title]


def test_one_call_named_coalesced_is_no_batch() -> None:
    (entry,) = read(0, data([row(0, "nccl:allreduce_coalesced", 1)])).pending
    assert entry.op == "allreduce_coalesced"
    assert entry.needs_everyone


def test_later_versions_name_the_closing_entry_by_its_operation() -> None:
    rows = [row(0, "nccl:_all_gather_base", 1), row(1, "nccl:ALLGATHER_coalesced", 1)]
    (entry,) = read(0, data(rows)).pending
    assert entry.op == "coalesced"
    assert entry.needs_everyone


def test_a_retired_gloo_operation_is_done_and_a_retired_nccl_one_has_timed_out() -> None:
    assert read(0, data([row(0, "gloo:all_reduce", 1, retired=True)])).pending == []
    (entry,) = read(0, data([row(0, "nccl:all_reduce", 1, retired=True)])).pending
    assert entry.retired


def test_unknown_counters_are_not_numbers() -> None:
    dump = read(0, data([], enqueued="-1", completed=-1))
    assert dump.status == {0: GroupStatus(None, None)}


def counters(rows: list[dict[str, object]], enqueued: int, completed: int) -> object:
    dumps = {0: read(0, data(rows, enqueued, completed))}
    return measure(dumps, identify(dumps))[0, 0]


def test_an_entry_above_the_enqueued_count_is_inside_its_launch() -> None:
    rows = [row(7, "nccl:all_reduce", 7, state="completed"), row(8, "nccl:all_reduce", 8)]
    place = counters(rows, 7, 7)
    assert (place.collective.launching, place.collective.enqueued) == (8, 7)


def test_a_transfer_after_a_collective_is_not_taken_for_a_launch() -> None:
    rows = [row(400, "nccl:send 0->1", 7, 391), row(401, "nccl:send 0->1", 7, 392)]
    place = counters(rows, 392, 390)
    assert place.p2p.launching is None
    assert place.p2p.enqueued == 392
    assert place.collective.enqueued == 7


def test_a_count_near_neither_counter_is_unknown() -> None:
    dumps = {
        0: read(0, data([], 50, 50)),
        1: read(1, data([row(3, "nccl:send 1->0", 40, 60)], 60, 59)),
    }
    place = measure(dumps, identify(dumps))[0, 0]
    assert place.collective.enqueued is None
    assert place.p2p.enqueued is None


def test_enqueued_above_completed_without_an_entry_is_evicted() -> None:
    full = [row(90 + i, "nccl:all_reduce", 30 + i, state="completed") for i in range(3)]
    dumps = {0: read(0, data([], 40, 35)), 1: read(1, data(full, 32, 32))}
    progress = measure(dumps, identify(dumps))[0, 0].collective
    assert progress.evicted
    assert (progress.done, progress.enqueued) == (35, 40)


@pytest.mark.parametrize("value", [2**64, -(10**400), str(10**30), "x", None, 1.5, True])
def test_what_no_field_can_hold_is_no_number(value: object) -> None:
    assert number(value) is None


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        (b"5", "holds a int where its entries belong"),
        (b"null", "holds a NoneType where"),
        (b'{"a": 1}', "holds a dict where"),
        (b"[1, 2, 3]", "has 3 entries that are no operations"),
        (b"[{}]", "has 1 entries that are no operations"),
    ],
)
def test_entries_that_are_none_are_a_problem(entries: bytes, said: str) -> None:
    dump = read(1, b'{"version": {"a": 1}, "pg_config": [1, 2], "entries": ' + entries + b"}")
    assert said in dump.problem
    assert dump.cut
