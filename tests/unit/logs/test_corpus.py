"""Whole logs of every class, with decoys and echoes, in the layouts that jobs leave behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_sentinel.logs.catalogue import load_catalogue
from ray_sentinel.logs.triage import triage_path
from ray_sentinel.model.triage import Triage
from tests.support.log_corpus.job import PIDS
from tests.support.log_corpus.layouts import LAYOUTS
from tests.support.log_corpus.scenarios import SCENARIOS
from tests.support.log_corpus.truth import Truth

NAMES = sorted(SCENARIOS)
OTHERS = ("driver", "ranks", "ray-tree")
RUNS = [(name, "main") for name in NAMES]
RUNS += [(name, OTHERS[number % 3]) for number, name in enumerate(NAMES)]


def check_culprit(answer: Triage, truth: Truth) -> None:
    if truth.nobody:
        assert answer.culprits == ()
        return
    first = answer.culprits[0] if answer.culprits else None
    if truth.rank is not None:
        assert first is not None
        assert first.rank == truth.rank or first.pid == PIDS[truth.rank]
    if truth.pid is not None:
        assert first is not None
        assert first.pid == truth.pid
    if "ip" in truth.extra:
        assert first is not None
        assert first.ip == truth.extra["ip"]


@pytest.mark.parametrize(("name", "layout"), RUNS)
def test_whole_logs(name: str, layout: str, tmp_path: Path) -> None:
    job, truth = SCENARIOS[name](11)
    assert len(job.lines) >= 10_000
    root = LAYOUTS[layout](job, tmp_path / "job")
    now = job.now + 5 if truth.extra.get("live") else job.now + 10 * 86400
    answer = triage_path(root, load_catalogue(), now=now)
    assert answer.kind == truth.kind
    check_culprit(answer, truth)
    assert answer.evidence
    if job.step:
        assert answer.progress.last_step == job.step


def test_decoys_are_told_apart(tmp_path: Path) -> None:
    job, _ = SCENARIOS["python_exception"](3)
    answer = triage_path(LAYOUTS["main"](job, tmp_path / "job"), load_catalogue(), now=job.now)
    survived = {echo.signature for echo in answer.echoes if echo.kind == "survived"}
    assert {"cuda-oom", "port-in-use"} <= survived
    assert any(echo.kind == "harmless" for echo in answer.echoes)
    echoed = {echo.kind for echo in answer.echoes}
    assert "nccl-timeout" in echoed
    assert answer.exception is not None
    assert answer.exception.kind == "IndexError"
    assert answer.progress.checkpoint_step == 7500
    assert answer.progress.lost_steps == 300


def test_a_failure_of_the_first_attempt_is_survived_by_the_second(tmp_path: Path) -> None:
    first, _ = SCENARIOS["oom_gpu"](3)
    second, truth = SCENARIOS["segfault"](4)
    for line in second.lines:
        line.time += 50_000
    path = tmp_path / "both.log"
    path.write_text(first.text() + second.text())
    answer = triage_path(path, load_catalogue(), now=second.now)
    assert answer.kind == truth.kind
