"""Reading with further processes gives the same answer; a helper that fails is made up for."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_sentinel import process
from ray_sentinel.logs import share
from ray_sentinel.logs.catalogue import load_catalogue
from ray_sentinel.logs.triage import triage_path
from ray_sentinel.model.triage import Triage

STEPS = "".join(f"2025-01-02 10:00:{n:02d} step {n} loss 2.0 time 1.0s\n" for n in range(40))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for rank in range(4):
        (tmp_path / f"rank-{rank}.log").write_text(STEPS)
    with (tmp_path / "rank-2.log").open("a") as file:
        file.write(
            'Traceback (most recent call last):\n  File "a.py", line 3, in f\nValueError: jammed\n'
        )
    (tmp_path / "own.toml").write_text(
        '[[signature]]\nid = "own"\nclass = "storage"\nmatch = ["jammed"]\ncause = "Ours."\n'
    )
    return tmp_path


def answer(tree: Path, helpers: int) -> Triage:
    own = [tree / "own.toml"]
    return triage_path(tree, load_catalogue(own), now=0.0, catalogues=own, helpers=helpers)


def test_the_same_answer(tree: Path) -> None:
    alone = answer(tree, 0)
    assert (alone.kind, alone.culprits[0].rank) == ("storage", 2)
    assert answer(tree, 2) == alone


def test_a_helper_that_fails_is_made_up_for(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = answer(tree, 0)

    def broken(argv: list[str], **options: object) -> process.Completed:
        return process.Completed(argv=tuple(argv), returncode=-9)

    monkeypatch.setattr(share.process, "run", broken)
    assert answer(tree, 2) == alone


def test_how_many_are_worth_it() -> None:
    assert share.helpers_for(10 << 20, 64) == 0
    assert share.helpers_for(10 << 30, 1) == 0
    assert 0 <= share.helpers_for(10 << 30, 64) < share.MOST
