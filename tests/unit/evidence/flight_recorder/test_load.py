"""Reading dumps: both formats, damage, and pickles that try to run code."""

from __future__ import annotations

import os
import pickle
import pickletools
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ray_sentinel.errors import InputError
from ray_sentinel.evidence.flight_recorder.dump import history, read
from ray_sentinel.evidence.flight_recorder.load import load
from ray_sentinel.waitgraph.recorder import explain
from tests.support.recorder_sim.dumps import FORMATS, NCCL, encode, tree, write
from tests.support.recorder_sim.faults import simulate


@pytest.fixture(scope="module")
def dump() -> dict[str, Any]:
    return tree(simulate("tp2dp4", "stop between", 1).machine, 0, NCCL)


class Evil:
    """Its pickle writes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def test_pickle_and_json_say_the_same(dump: dict[str, Any]) -> None:
    as_json = msgspec.json.encode(dump)
    one, other = read(0, pickle.dumps(dump, protocol=2)), read(0, as_json)
    assert one == other


@pytest.mark.parametrize("protocol", range(6))
def test_every_pickle_protocol_is_read(dump: dict[str, Any], protocol: int) -> None:
    assert load(pickle.dumps(dump, protocol=protocol)).data == dump


def test_unknown_versions_and_fields_are_read(dump: dict[str, Any]) -> None:
    later = {**dump, "version": "7.3", "brand_new": [1]}
    later["entries"] = [{**entry, "colour": "blue"} for entry in dump["entries"]]
    assert read(0, encode(later, NCCL)).pending == read(0, encode(dump, NCCL)).pending


@pytest.mark.parametrize("place", ["whole", "entries", "deep"])
def test_code_in_a_pickle_is_refused_and_not_run(
    dump: dict[str, Any], place: str, tmp_path: Path
) -> None:
    evil: Any = Evil(tmp_path / "ran")
    data = {
        "whole": evil,
        "entries": {**dump, "entries": [evil]},
        "deep": {**dump, "pg_status": {"0": {"last_enqueued_collective": evil}}},
    }[place]
    with pytest.raises(InputError, match="refused"):
        load(pickle.dumps(data, protocol=2))
    assert not (tmp_path / "ran").exists()


def test_an_empty_file_is_named_as_such() -> None:
    for data in (b"", b"  \n"):
        with pytest.raises(InputError, match="is empty"):
            load(data)


@pytest.mark.parametrize("data", [b"not a dump", b"{}", b"[1]", b'{"a": 1}', b"{'version': 1}"])
def test_what_is_no_dump_says_so(data: bytes) -> None:
    with pytest.raises(InputError):
        load(data)


def test_a_cut_pickle_is_used_as_far_as_it_goes(dump: dict[str, Any]) -> None:
    data = pickle.dumps(dump, protocol=2)
    ends = [position for op, _, position in pickletools.genops(data) if op.name == "SETITEMS"]
    cut = load(data[: ends[-8]])
    assert cut.problem
    assert cut.data["pg_status"] == dump["pg_status"]
    assert 0 < len(cut.data["entries"]) < len(dump["entries"])
    assert cut.data["entries"] == dump["entries"][: len(cut.data["entries"])]


def test_any_cut_gives_a_problem_or_a_dump_but_never_raises_anything_else(
    dump: dict[str, Any],
) -> None:
    data = pickle.dumps(dump, protocol=2)
    for end in range(0, len(data), 97):
        try:
            raw = load(data[:end])
        except InputError as error:
            assert str(error)
        else:
            assert raw.problem


def test_cut_json_is_refused(dump: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="JSON"):
        load(msgspec.json.encode(dump)[:-20])


def test_one_bad_dump_does_not_keep_the_others_from_being_explained() -> None:
    case = simulate("dp8", "stop between", 3)
    dumps = write(case.machine, NCCL)
    innocent = next(rank for rank in dumps if rank not in case.culprits)
    dumps[innocent] = b"garbage"
    facts = explain(dumps, names={innocent: f"trace_{innocent}"})
    assert {culprit.rank for culprit in facts.culprits} == case.culprits
    assert any(f"trace_{innocent}" in problem for problem in facts.problems)


@given(st.binary(max_size=400))
@settings(max_examples=300, deadline=None)
def test_garbage_is_a_problem_never_an_exception(data: bytes) -> None:
    facts = explain({0: data, 1: b"\x80\x02" + data})
    assert facts.culprits == ()


_ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.sampled_from(["0", "-1", "[0, 1]", "nccl:send 0->1", "gloo:all_reduce", "completed", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["0", "1", "name", "ranks", "desc"]), inner, max_size=3)
    ),
    max_leaves=6,
)
_KEYS = (
    "record_id pg_id process_group collective_seq_id p2p_seq_id op_id profiling_name input_sizes "
    "input_dtypes output_sizes state retired is_p2p time_discovered_completed_ns"
).split()
_ENTRY = st.dictionaries(st.sampled_from(_KEYS), _ANY, max_size=len(_KEYS))
_DUMP = st.fixed_dictionaries(
    {},
    optional={
        "version": _ANY,
        "entries": st.lists(_ENTRY | _ANY, max_size=4) | _ANY,
        "pg_config": st.dictionaries(st.sampled_from(["0", "1", ""]), _ANY, max_size=2) | _ANY,
        "pg_status": st.dictionaries(st.sampled_from(["0", "1", "x"]), _ANY, max_size=2) | _ANY,
    },
)


@given(st.dictionaries(st.integers(0, 3), _DUMP, min_size=1, max_size=4))
@settings(max_examples=300, deadline=None)
def test_dumps_of_any_shape_are_explained_or_named(dumps: dict[int, dict[str, Any]]) -> None:
    data = {rank: pickle.dumps(dump, protocol=2) for rank, dump in dumps.items()}
    facts = explain(data)
    assert set(facts.ranks) <= set(dumps)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_single_fields_of_any_type_are_survived(data: st.DataObject) -> None:
    case = simulate("3d8", "two stops", 2)
    trees = {rank: tree(case.machine, rank, NCCL) for rank in range(case.machine.job.world)}
    for _ in range(data.draw(st.integers(1, 6))):
        victim = trees[data.draw(st.sampled_from(sorted(trees)))]
        entry = data.draw(st.sampled_from(victim["entries"]))
        entry[data.draw(st.sampled_from(_KEYS))] = data.draw(_ANY)
    explain({rank: pickle.dumps(value, protocol=2) for rank, value in trees.items()})


def test_history_has_all_that_the_ring_has() -> None:
    machine = simulate("3d16batch", "stop between", 1).machine
    for style in (FORMATS["2.9"], FORMATS["2.10 json"]):
        told = history(encode(tree(machine, 3, style), style))
        assert [entry.record for entry in told] == [op.record for op in machine.ops[3]]
