"""Which of the coordinator's jobs is the one that a run supervises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ray_sentinel import job_name
from ray_sentinel.job_name import JobName
from ray_sentinel.watched_page import WatchedPage
from tests.support.coordinator_page import Page, a_job, a_rank

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def _ask_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_name, "LOOK_SECONDS", 0.0)


class Run:
    """A run called "run", and what it said."""

    def __init__(self, page: WatchedPage | None, folder: Path) -> None:
        self.said: list[str] = []
        self.name = JobName("run", page, self.said.append, folder / "page_name")


@pytest.fixture
def started(page: Page, tmp_path: Path) -> Run:
    """While another job and an old one are there."""
    page.answer = [a_job("somebody else's"), a_job("over", ended=True)]
    return Run(page.watched(), tmp_path)


def test_a_job_of_its_own_name(page: Page, started: Run) -> None:
    page.answer = [a_job("new"), a_job("run")]
    assert started.name.now() == "run"
    assert started.said == []


def test_the_only_job_that_is_new(page: Page, started: Run) -> None:
    assert started.name.now() == "run"
    page.answer = [*page.answer, a_job("llama"), a_job("vllm-7", a_rank(0, role="engine"))]
    assert [started.name.now() for _ in range(3)] == ["llama"] * 3
    assert started.said == ["the coordinator knows the job as llama"]


def test_of_two_new_ones_none_is_taken(page: Page, started: Run) -> None:
    page.answer = [a_job("llama"), a_job("qwen")]
    assert started.name.now() == "run"


def test_a_name_may_change_with_each_attempt_but_a_later_job_is_somebody_else_s(
    page: Page, started: Run
) -> None:
    page.answer = [a_job("train-2")]
    assert started.name.now() == "train-2"
    page.answer = [a_job("train-2"), a_job("later")]
    assert started.name.now() == "train-2"
    page.answer = [a_job("train-2", ended=True), a_job("later")]
    assert started.name.now() == "train-2"
    page.answer = [a_job("later"), a_job("train-5")]
    assert started.name.now() == "train-5"


def test_a_run_that_is_taken_up_again_knows_its_job(
    page: Page, started: Run, tmp_path: Path
) -> None:
    page.answer = [a_job("llama")]
    assert started.name.now() == "llama"
    again = Run(page.watched(), tmp_path)
    assert (again.name.last, again.name.now(), again.said) == ("llama", "llama", [])


@pytest.mark.parametrize("answer", ["", {}, None, [None], [{}], [a_job("x") | {"ranks": None}]])
def test_answers_that_say_nothing(page: Page, started: Run, answer: Any) -> None:
    page.answer = answer
    assert started.name.now() == "run"


def test_nobody_is_there(tmp_path: Path) -> None:
    assert Run(WatchedPage("http://127.0.0.1:9/?token=" + "x" * 43), tmp_path).name.now() == "run"
    assert Run(None, tmp_path).name.now() == "run"
