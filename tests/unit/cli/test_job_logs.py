"""``logs`` and ``triage`` on a narrow terminal: names in one piece, lengths of time with units."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_sentinel.cli.main import main
from tests.support.log_corpus.layouts import LAYOUTS
from tests.support.log_corpus.scenarios import SCENARIOS


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    job, _ = SCENARIOS["gpu_lost"](11)
    return LAYOUTS["ray-tree"](job, tmp_path_factory.mktemp("logs") / "job")


def test_files_are_listed_in_one_piece(
    logs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["logs", str(logs), "--rank", "2"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == [
        "kind",
        "rank",
        "node",
        "pid",
        "actor",
        "bytes",
        "modified",
        "(UTC)",
        "file",
    ]
    assert len(rows) == 2
    assert all((logs / row.split()[-1]).is_file() for row in rows)


def test_a_triage_tells_lengths_of_time_and_a_command_that_can_be_typed(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["triage", str(logs)]) == 1
    text = capsys.readouterr().out
    assert text.startswith("gpu-lost  (failed, confidence 90 %)\n")
    assert "phase train for 3 h 25 min, last step 7800 of 20000, 1.5 s per step" in text
    assert "300 steps (7 min 30 s) lost since then" in text
    assert "then: ray-sentinel diagnose SOURCE --playbook node-hardware-failure" in text
