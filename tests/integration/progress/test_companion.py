"""The thread in the rank: what goes wrong around it ends neither its stamps nor its answers."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ray_sentinel.progress import record
from ray_sentinel.progress.identity import RankIdentity
from ray_sentinel.progress.rank import who
from ray_sentinel.progress.rank.companion import Companion
from ray_sentinel.progress.rank.writer import ProgressWriter
from ray_sentinel.progress.requests import ProgressRequest, pack_request
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

DEADLINE = 10.0


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[ProgressWriter]:
    made = ProgressWriter.open(RankIdentity(job="job", rank=0), [tmp_path])
    yield made
    made.close()


def until(what: Callable[[], bool]) -> bool:
    return eventually(what, "it comes", DEADLINE, every=0.005)


def stamp_of(writer: ProgressWriter) -> float:
    assert writer.path is not None
    data = writer.path.read_bytes()
    return float(struct.unpack_from("@d", data, record.STAMP_OFFSET)[0])


def test_an_old_answer_that_cannot_be_deleted_withholds_no_new_one(
    writer: ProgressWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "unlink", refuse)
    companion = Companion(writer, interval=0.01)
    companion.start()
    word = pack_request(1, ProgressRequest.STACKS)
    writer.set_number(record.REQUEST_OFFSET, word)
    assert until(lambda: writer.number(record.ANSWER_OFFSET) == word)
    companion.stop()


@pytest.mark.parametrize("error", [AssertionError, ValueError, KeyError, RuntimeError])
def test_a_library_that_fails_when_it_is_asked_ends_no_stamps(
    writer: ProgressWriter,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: type[Exception],
) -> None:
    asked: list[str | None] = []

    def torn_down(job: str | None = None) -> RankIdentity:
        asked.append(job)
        raise error("it is being torn down")

    monkeypatch.setattr(who, "resolve", torn_down)
    companion = Companion(writer, interval=0.01)
    companion.start()
    assert until(lambda: len(asked) >= 3)
    before = stamp_of(writer)
    assert until(lambda: stamp_of(writer) > before)
    companion.stop()
    assert [entry.levelname for entry in caplog.records] == ["WARNING"], "said once"
