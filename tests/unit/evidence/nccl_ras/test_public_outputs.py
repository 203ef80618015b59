"""Outputs as NVIDIA's documentation and bug reports show them (facts of the format, re-typed); and
``one_rank_*``, the answers of an NCCL with one rank on an H200, as they came."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_sentinel.waitgraph.ras import explain

FOLDER = Path(__file__).parents[3] / "fixtures" / "nccl_ras"

CASES = {
    "straggler.txt": ("not-enqueued", {7}),
    "dead.txt": ("rank-dead", {None}),
    "incomplete.txt": ("rank-unresponsive", {7}),
    "incomplete_2_24.txt": ("rank-unresponsive", {21}),
    "jitter.txt": ("cannot-tell", set()),
    "two_ahead.txt": ("cannot-tell", set()),
    "teardown.txt": ("cannot-tell", set()),
    "memory_2_27.txt": ("rank-unresponsive", {1}),
    "missing_comma_2_28_9.json": ("rank-unresponsive", {1}),
    "healthy_while_hung.txt": ("no-mismatch", set()),
    "one_rank_2_28_9.json": ("no-mismatch", set()),
    "one_rank_2_28_9.txt": ("no-mismatch", set()),
    "monitor.txt": ("rank-dead", {None}),
}


@pytest.mark.parametrize("name", CASES)
def test_known_output(name: str) -> None:
    facts = explain({name: (FOLDER / name).read_bytes()})
    kind, ranks = CASES[name]
    assert facts.kind == kind, facts
    assert {culprit.rank for culprit in facts.culprits} == ranks


def test_both_formats_of_one_answer_say_the_same() -> None:
    text, json = (
        explain({name: (FOLDER / name).read_bytes()})
        for name in ("one_rank_2_28_9.txt", "one_rank_2_28_9.json")
    )
    assert text.version == json.version == "2.28.9"
    assert text.communicators == json.communicators == 2


def test_the_death_of_a_rank_is_followed_over_two_outputs() -> None:
    names = ("incomplete.txt", "dead.txt")
    facts = explain({name: (FOLDER / name).read_bytes() for name in names})
    assert facts.kind == "rank-dead"
    assert [(c.rank, c.pid) for c in facts.culprits] == [(7, 3748990)]
