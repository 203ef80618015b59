"""What ranks and logs say is shown as it is: no word of it is a style, and none an emoji."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from ray_sentinel.cli.commands import incidents, status
from ray_sentinel.cli.main import main
from ray_sentinel.cli.output import text_printer
from ray_sentinel.model.status import JobStatus, RankStatus, Status, Unwatched
from tests.support.incidents import an_incident

NASTY = "[/x] [bold] a.py:100:"
"""For rich an end without a beginning, a style, and an emoji."""


class Coordinator:
    """Answers what it was made with."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def ask(self, what: str, kind: Any, *arguments: object) -> Any:
        return self.answer

    def page_link(self) -> str:
        return ""


def answering(monkeypatch: pytest.MonkeyPatch, module: Any, answer: object) -> None:
    @contextlib.contextmanager
    def asked(args: object) -> Iterator[Coordinator]:
        yield Coordinator(answer)

    monkeypatch.setattr(module, "asked", asked)
    monkeypatch.setenv("COLUMNS", "200")


def test_a_text(capsys: pytest.CaptureFixture[str]) -> None:
    text_printer()(NASTY + "\x1b[2J")
    assert capsys.readouterr().out == NASTY + "\\x1b[2J\n"


def test_incidents(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    answering(monkeypatch, incidents, (an_incident(job=NASTY, summary=NASTY),))
    assert main(["incidents"]) == 1
    assert capsys.readouterr().out.count(NASTY) == 2


def test_status(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    rank = RankStatus(rank=0, host=NASTY, pid=1, step=1, phase=NASTY, state="running")
    job = JobStatus(
        job=NASTY, attempt=0, step=1, phase="train", step_age_seconds=1.0, ranks=(rank,)
    )
    left = Unwatched(id="n", host="h", reason=NASTY)
    answering(
        monkeypatch, status, Status(state="healthy", verdict="v", jobs=(job,), unwatched=(left,))
    )
    assert main(["status"]) == 0
    assert capsys.readouterr().out.count(NASTY) == 4
