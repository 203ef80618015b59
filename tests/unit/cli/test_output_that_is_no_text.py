"""JSON, errors and reports where a name is no UTF-8; streams that were closed before we started."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from ray_sentinel.cli.main import main
from ray_sentinel.cli.output import print_error, print_json
from tests.support.appended_history import AppendedHistory


def test_a_name_that_is_no_text_comes_back_from_json(capsys: pytest.CaptureFixture[str]) -> None:
    name = os.fsdecode(b"/c/\xff/step_7")
    print_json({"b": [name], "a": "é"})
    shown = capsys.readouterr().out
    assert list(json.loads(shown)) == ["a", "b"]
    assert os.fsencode(json.loads(shown)["b"][0]) == b"/c/\xff/step_7"


def test_streams_that_were_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    print_error("nobody sees this", as_json=True)


@pytest.fixture
def odd_job(tmp_path: Path) -> str:
    """A job's folder whose name is no text, with a history in it."""
    folder = tmp_path / os.fsdecode(b"job\xff")
    history = AppendedHistory(folder / "history" / "series-1.db")
    for step in range(60):
        history.append(1.7e9 + 10 * step, "n1", {"train_step": float(step)})
    history.close()
    return str(folder)


@pytest.mark.parametrize("suffix", [".md", ".html", ".json"])
def test_a_diagnosis_in_a_file(odd_job: str, tmp_path: Path, suffix: str) -> None:
    report = tmp_path / f"report{suffix}"
    assert main(["diagnose", odd_job, "--report", str(report)]) in (0, 1)
    text = report.read_text(encoding="utf-8")
    assert "job\\udcff" in text
    if suffix == ".json":
        assert json.loads(text)["inventory"]["source"].startswith(odd_job)


@pytest.mark.parametrize("suffix", [".md", ".html"])
def test_a_comparison_in_a_file(odd_job: str, tmp_path: Path, suffix: str) -> None:
    report = tmp_path / f"report{suffix}"
    assert main(["compare", odd_job, odd_job, "--report", str(report)]) == 0
    assert report.read_text(encoding="utf-8").startswith("<!doctype html>") == (suffix == ".html")
    assert "job\\udcff" in report.read_text(encoding="utf-8")
