"""Hangs of simulated jobs of 8 to 64 ranks in which an innocent rank was once named."""

from __future__ import annotations

import gzip
from pathlib import Path

import msgspec
import pytest

from ray_sentinel.waitgraph.recorder import explain

FIXTURES = Path(__file__).parents[3] / "fixtures" / "flight_recorder" / "misled"

UNDECIDED = {
    "laggards_sharded",
    "laggards_tensor",
    "loss_of_the_last_stage",
    "one_call_more",
    "one_call_more_sharded",
    "transfer_left_out",
    "transfer_left_out_wide",
}
"""What the dumps show fits more than one rank."""


class Case(msgspec.Struct):
    """``dumps`` are by rank; ``culprits`` is the truth."""

    culprits: list[int]
    dumps: dict[int, msgspec.Raw]


@pytest.mark.parametrize(
    "path", sorted(FIXTURES.glob("*.json.gz")), ids=lambda path: path.name.split(".")[0]
)
def test_no_innocent_rank_is_named(path: Path) -> None:
    case = msgspec.json.decode(gzip.decompress(path.read_bytes()), type=Case)
    facts = explain({rank: bytes(dump) for rank, dump in case.dumps.items()})
    undecided = path.name.split(".")[0] in UNDECIDED
    expected = [] if undecided else case.culprits
    assert [culprit.rank for culprit in facts.culprits] == expected, facts.evidence
    assert facts.kind != "running"


def test_every_undecided_case_is_there() -> None:
    names = {path.name.split(".")[0] for path in FIXTURES.glob("*.json.gz")}
    assert names >= UNDECIDED
