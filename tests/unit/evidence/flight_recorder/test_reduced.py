"""The form in which dumps travel: whatever is made of a dump is made of it too, and it is small."""

from __future__ import annotations

import json
import pickle
import random
import zlib
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from bench.flight_recorder import large_job, large_job_trees, timed
from ray_sentinel.errors import InputError
from ray_sentinel.evidence import stragglers
from ray_sentinel.evidence.flight_recorder import reduced as form
from ray_sentinel.evidence.flight_recorder.entry import NEEDS_EVERYONE
from ray_sentinel.evidence.flight_recorder.reduced import (
    PASSING,
    VERSION,
    is_reduced,
    operations,
    read,
    reduce,
    without_operations,
)
from ray_sentinel.waitgraph.recorder import explain
from ray_sentinel.waitgraph.recorder_failed import explain_failed
from tests.support.recorder_fleet import cases as fleet
from tests.support.recorder_fleet.write import HANDS, dumps
from tests.support.recorder_sim.dumps import FORMATS, write
from tests.support.recorder_sim.faults import FAULTS, simulate
from tests.support.recorder_sim.program import LAYOUTS
from tests.unit.evidence.stragglers.test_explain import dumps_of
from tests.unit.evidence.stragglers.test_links import dumps_of as links_of

FIXTURES = Path(__file__).parents[3] / "fixtures" / "flight_recorder"
REAL = sorted({path.parent for path in FIXTURES.rglob("trace_*.json")})


def timed_calls(data: bytes) -> list[tuple[object, ...]]:
    """What stragglers are told by."""
    return [
        (
            entry.group,
            entry.seq,
            entry.signature(),
            entry.created_ns,
            None if took != took else took,
        )
        for entry, took in operations(data)
        if entry.op in NEEDS_EVERYONE
    ]


def assert_alike(raw: dict[int, bytes], *, failed: bool = False) -> None:
    """All that is made of the dumps, and of their reduced forms."""
    small = {rank: reduce(data) for rank, data in raw.items()}
    judged = {rank: reduce(data, "judged") for rank, data in raw.items()}
    for rank, data in raw.items():
        whole = read(rank, data)
        assert read(rank, small[rank]) == whole
        assert read(rank, judged[rank]) == whole
        assert read(rank, reduce(data, "brief")) == whole
        assert form.history(small[rank]) == form.history(data)
        assert timed_calls(small[rank]) == timed_calls(data)
    explained = explain(raw)
    assert explain(small) == explained
    assert explain(judged) == explained
    assert stragglers.explain(small) == stragglers.explain(raw)
    if failed:
        explained_failed = explain_failed(raw, overrun=(2,))
        assert explain_failed(small, overrun=(2,)) == explained_failed
        assert explain_failed(judged, overrun=(2,)) == explained_failed


@pytest.mark.parametrize("folder", REAL, ids=lambda folder: folder.name)
def test_of_real_dumps(folder: Path) -> None:
    paths = folder.glob("trace_*.json")
    raw = {int(path.stem.partition("_")[2]): path.read_bytes() for path in paths}
    assert_alike(raw, failed=True)


@pytest.mark.parametrize("fault", FAULTS)
def test_of_simulated_hangs(fault: str) -> None:
    place = FAULTS.index(fault)
    for layout in list(LAYOUTS)[place % 3 :: 3]:
        style = list(FORMATS)[(place + len(layout)) % len(FORMATS)]
        assert_alike(write(simulate(layout, fault, 3).machine, FORMATS[style]))


@pytest.mark.parametrize("hand", HANDS)
def test_of_drawn_jobs(hand: str) -> None:
    """All ways in which versions and libraries write, those before 2.0 among them."""
    for fault in fleet.FAULTS[list(HANDS).index(hand) % 5 :: 5]:
        assert_alike(dumps(fleet.make(fault, 5).job, HANDS[hand]))


@pytest.mark.parametrize("timed", [False, True])
def test_of_slow_jobs(timed: bool) -> None:
    raw = dumps_of(4, 40, {5: 1.5}, timed=timed)
    assert stragglers.explain(raw).ranks == (5,)
    assert_alike(raw)
    assert_alike(links_of(4, {2: 2.0}))


def test_a_full_recorder_is_a_hundredth() -> None:
    for rank, data in large_job(8, 2000):
        small = reduce(data)
        assert len(small) < len(data) // 40, (rank, len(data), len(small))
        least = without_operations(small)
        assert read(rank, least) == read(rank, data)
        assert (form.history(least), list(operations(least))) == ([], [])
        assert len(least) < 4000


def test_what_is_judged_is_small_however_many_ranks_there_are() -> None:
    groups = {
        "all": tuple(range(8192)),
        "columns": tuple(range(5, 8192, 8)),
        "shuffled": tuple(random.Random(1).sample(range(8192), 64)),
        "one": (7,),
    }
    configs = {
        key: {"name": key, "desc": key, "ranks": str(list(ranks))} for key, ranks in groups.items()
    }
    for rank, tree in large_job_trees(8, 2000):
        data = timed({**tree, "pg_config": configs}, random.Random(rank))
        judged = reduce(data, "judged")
        assert len(judged) < min(2000, len(reduce(data)) // 4)
        dump = read(rank, judged)
        assert {key: config.ranks for key, config in dump.configs.items()} == groups
        assert dump == read(rank, data)
        called = [replace(one, created_ns=None) for one in form.history(data)]
        assert form.history(judged) == called
        least = without_operations(judged)
        assert (read(rank, least), form.history(least)) == (dump, [])


def entry(**fields: object) -> dict[str, object]:
    return {
        "profiling_name": "nccl:all_reduce",
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": 7,
        "p2p_seq_id": 0,
        "record_id": 3,
        "is_p2p": False,
        "state": "scheduled",
        "input_sizes": [[2]],
        "input_dtypes": ["Float"],
        **fields,
    }


@pytest.mark.parametrize(
    "fields",
    [
        {"input_sizes": [[2**62, 2**62, -5]]},
        {"record_id": 2**63 - 1, "collective_seq_id": -(2**63) + 1, "time_created_ns": 2**64},
        {"profiling_name": f"nccl:send {10**30}->1", "is_p2p": True},
        {"duration_ms": 10**400, "state": "completed"},
        {"process_group": [None, {"a": 1}], "input_dtypes": [1, None]},
        {"pg_id": "x", "collective_seq_id": None, "seq_id": 2**70},
    ],
)
def test_of_damaged_dumps(fields: dict[str, object]) -> None:
    damaged = pickle.dumps({"version": "2.9", "entries": [entry(), entry(**fields)]}, protocol=2)
    assert_alike({0: damaged, 1: pickle.dumps({"entries": [entry()]}, protocol=2)})


def test_of_what_is_no_dump() -> None:
    whole = pickle.dumps({"pg_status": {"0": {}}, "entries": [entry()] * 50}, protocol=2)
    for bad in (b"", b"{", b"[]", b"\x80\x02garbage", whole[:900], whole[:40]):
        raw = {0: whole, 1: bad}
        assert explain({r: reduce(d) for r, d in raw.items()}) == explain(raw)


def test_text_that_is_none_is_refused() -> None:
    surrogate = pickle.dumps({"entries": [entry(input_dtypes=["\ud800"])]}, protocol=2)
    with pytest.raises(InputError, match="holds what no recorder writes"):
        reduce(surrogate)


def test_another_version_and_damage_are_said() -> None:
    small = reduce(json.dumps({"entries": [entry()] * 9}).encode())
    judged = reduce(json.dumps({"entries": [entry()] * 9}).encode(), "judged")
    assert is_reduced(small)
    assert is_reduced(judged)
    later = small.replace(b" %d\n" % VERSION, b" %d\n" % (PASSING + 1), 1)
    with pytest.raises(InputError, match="has version 3 of the reduced form"):
        read(0, later)
    dice = random.Random(1)
    for place in range(200):
        cut = bytearray(small if place % 2 else judged)
        cut[dice.randrange(25, len(cut))] ^= 1 << dice.randrange(8)
        for use in (lambda data: read(0, data), form.history, lambda data: list(operations(data))):
            try:
                use(bytes(cut))
            except InputError as error:
                assert "damaged" in str(error) or "version" in str(error)


def test_groups_of_more_ranks_than_there_can_be_are_damage() -> None:
    configs = [("0", "0", "default_pg", ((0, 1, 1 << 40),))]
    head = zlib.compress(msgspec.msgpack.encode(("", configs)))
    with pytest.raises(InputError, match="its groups have more than"):
        read(0, b"ray-sentinel recorder 2\n" + msgspec.msgpack.encode((head, b"", b"")))
