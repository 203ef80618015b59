"""RAS output that is cut, damaged, or something else altogether."""

from __future__ import annotations

import json
import random

import pytest

from ray_sentinel.errors import InputError
from ray_sentinel.evidence.nccl_ras.lenient_json import documents
from ray_sentinel.evidence.nccl_ras.load import read
from ray_sentinel.waitgraph.ras import explain
from tests.support.ras_sim.job import Job
from tests.support.ras_sim.render import as_json, as_text


@pytest.fixture(scope="module")
def job() -> Job:
    made = Job(1, 2, 4, "tp")
    made.run(30)
    made.world.launch("AllReduce", 4, but=(5,))
    made.peers[2].mute = True
    return made


@pytest.mark.parametrize("broken", [False, True])
def test_cut_anywhere_names_no_innocent(job: Job, broken: bool) -> None:
    text = as_json(job, "2.28.9", broken=broken)
    for end in range(0, len(text), 41):
        facts = explain({"cut": text[:end].encode()})
        named = {culprit.rank for culprit in facts.culprits}
        assert named <= {2, 5}, (end, facts)
        if facts.polls and end < len(text) - 2:
            assert any("is cut" in line for line in facts.problems)


def test_cut_text_names_no_innocent(job: Job) -> None:
    text = as_text(job)
    for end in range(0, len(text), 3):
        named = {culprit.rank for culprit in explain({"cut": text[:end].encode()}).culprits}
        assert named <= {2, 5, None}, end


def test_noise_never_raises(job: Job) -> None:
    dice = random.Random(7)
    for render in (as_json, as_text):
        data = bytearray(render(job).encode())
        for _ in range(60):
            damaged = bytearray(data)
            for _ in range(dice.randrange(1, 40)):
                damaged[dice.randrange(len(damaged))] = dice.randrange(256)
            explain({"noise": bytes(damaged)})


@pytest.mark.parametrize(
    "value",
    [
        {"communicators": None},
        {"communicators": [None, 3, "x", [], {}]},
        {"communicators": [{"hash": 5, "size": -1, "ranks": 7, "missing_ranks": {"a": 1}}]},
        {"communicators": [{"hash": "0x1", "size": 2**63, "ranks": [{"rank": 2**62}]}]},
        {"communicators": [{"size": 2, "ranks": [{"rank": 0, "status": None}, {"rank": 0}]}]},
        {"communicators": [{"size": 2, "ranks": [{"rank": 0, "collective_counts": {"A": True}}]}]},
        {"nccl_version": ["2"], "communicators": [], "ras": 3},
        {"nccl_version": "x", "ras": {"collection_time_sec": "soon", "timeouts_count": None}},
        {"nccl_version": "x", "ras": {"collection_time_sec": 10**400}},
    ],
)
def test_json_of_another_shape_names_nobody(value: object) -> None:
    assert not explain({"odd": json.dumps(value).encode()}).culprits


def test_deep_nesting_is_survived() -> None:
    for text in ('{"communicators": ' + "[" * 200_000, '{"a":' * 100_000):
        assert not explain({"deep": text.encode()}).culprits


def test_flags_lifted_out_of_the_status_are_understood() -> None:
    value = {
        "communicators": [{"missing_ranks": [{"rank": 3, "considered_dead": True}], "size": 8}]
    }
    facts = explain({"lifted": json.dumps(value).encode()})
    assert facts.kind in ("rank-dead", "cannot-tell")


def test_commas_are_not_needed() -> None:
    [found] = documents('{"a" 1 "b": [1 2 {"c": true}] "d": null')
    assert found.value["a"] == 1
    assert found.value["b"] == [1, 2, {"c": True}]
    assert found.cut


def test_a_number_at_the_very_end_may_be_half_and_is_left_out() -> None:
    [found] = documents('{"pid": 15243')
    assert "pid" not in found.value


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "empty"),
        (b"Failed to connect to the NCCL RAS service!\n", "did not answer"),
        (b"hello", "no output"),
    ],
)
def test_other_files_are_refused_with_the_reason(data: bytes, word: str) -> None:
    with pytest.raises(InputError, match=word):
        read(data)


def test_a_file_written_by_powershell_is_read(job: Job) -> None:
    assert read(b"\xff\xfe" + as_text(job).encode("utf-16-le"))


def test_lines_with_the_prefix_of_a_log_are_read(job: Job) -> None:
    prefixed = "\n".join(f"(Worker pid=77) 12:00:01 {line}" for line in as_text(job).splitlines())
    assert {c.rank for c in explain({"log": prefixed.encode()}).culprits} == {2}
