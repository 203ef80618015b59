"""Every kind of fault has its phrase, its next steps, and its place in docs/rules.md."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from ray_sentinel import regex as re
from ray_sentinel.model.fault_kinds import EVIDENCE_STEPS, KINDS
from ray_sentinel.model.incident import FaultKind
from ray_sentinel.model.ras import RasKind
from ray_sentinel.model.recorder import RecorderKind

DOCS = Path(__file__).resolve().parents[3] / "docs"
ALL = set(get_args(FaultKind))
NOT_LIVE = {"slow", "paused"}
"""Answers of ``explain stacks``, of which the page tells below its table."""


def test_every_kind_has_words() -> None:
    assert set(KINDS) == ALL
    assert all(kind.phrase for kind in KINDS.values())


def test_every_kind_that_evidence_tells_has_a_next_step() -> None:
    assert set(EVIDENCE_STEPS) == {*get_args(RecorderKind), *get_args(RasKind)}


def test_the_table_of_the_docs_has_every_kind_and_no_other() -> None:
    page = (DOCS / "rules.md").read_text().split("\n# What an incident ends with\n")[1]
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    told = [kind for row in rows for kind in re.findall(r"`([a-z-]+)`", row)]
    assert len(told) == len(set(told))
    assert set(told) == ALL - NOT_LIVE
    below = page.rpartition("|\n")[2]
    assert all(f"`{kind}`" in below for kind in NOT_LIVE)
