"""Requests to a rank: several before its companion looks, and what is asked for anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_sentinel.progress import record
from ray_sentinel.progress.ask import (
    NoAnswerError,
    arm_watchdog,
    ask_flight_recorder,
    each_left_recorder,
    request_stacks,
)
from ray_sentinel.progress.directory import write_whole
from ray_sentinel.progress.identity import RankIdentity
from ray_sentinel.progress.rank.writer import ProgressWriter
from ray_sentinel.progress.reader import RecordReader
from ray_sentinel.progress.record_view import RecordView
from ray_sentinel.progress.requests import (
    RECORDER_JSON_ANSWER,
    STACKS_ANSWER,
    ProgressRequest,
    answer_name,
    unpack_request,
)


class Rank:
    """A rank's record, and the answers of its companion when it looks."""

    def __init__(self, folder: Path) -> None:
        self.writer = ProgressWriter.open(RankIdentity(job="job", rank=0), [folder])
        self._reader = RecordReader([folder])
        (self.view,) = self._reader.scan()

    @property
    def wishes(self) -> ProgressRequest:
        return unpack_request(self.writer.number(record.REQUEST_OFFSET))[1]

    def look(self, _seconds: float = 0.0) -> None:
        for wish, answer in (
            (ProgressRequest.STACKS, STACKS_ANSWER),
            (ProgressRequest.FLIGHT_RECORDER, RECORDER_JSON_ANSWER),
        ):
            if wish in self.wishes and self.writer.path is not None:
                name = answer_name(self.writer.path.name, answer)
                write_whole(self.writer.directory, name, answer.encode())
        self.writer.set_number(record.ANSWER_OFFSET, self.writer.number(record.REQUEST_OFFSET))

    def close(self) -> None:
        self._reader.close()
        self.writer.close()


@pytest.fixture
def rank(tmp_path: Path) -> Iterator[Rank]:
    made = Rank(tmp_path)
    yield made
    made.close()


def recorder(view: RecordView, rank: Rank) -> bytes:
    ask_flight_recorder(view, 1.0, sleep=rank.look)
    (dump,) = each_left_recorder(view)
    return dump.data


def test_one_that_asks_while_another_waits_takes_nothing_from_it(rank: Rank) -> None:
    dumps: list[bytes] = []

    def meanwhile(_seconds: float) -> None:
        dumps.append(recorder(rank.view, rank))

    assert request_stacks(rank.view, 1.0, sleep=meanwhile) == STACKS_ANSWER.encode()
    assert dumps == [RECORDER_JSON_ANSWER.encode()]


def test_a_watchdog_that_was_asked_for_is_not_forgotten(rank: Rank) -> None:
    arm_watchdog(rank.view)
    with pytest.raises(NoAnswerError, match="did not answer"):
        request_stacks(rank.view, 0.0)
    assert rank.wishes == ProgressRequest.WATCHDOG_ON | ProgressRequest.STACKS


def test_what_was_answered_is_not_asked_for_again(rank: Rank) -> None:
    arm_watchdog(rank.view)
    rank.look()
    assert request_stacks(rank.view, 1.0, sleep=rank.look) == STACKS_ANSWER.encode()
    assert rank.wishes == ProgressRequest.STACKS


def test_the_last_word_about_the_watchdog_counts(rank: Rank) -> None:
    arm_watchdog(rank.view)
    arm_watchdog(rank.view, on=False)
    assert rank.wishes == ProgressRequest.WATCHDOG_OFF
    arm_watchdog(rank.view)
    assert rank.wishes == ProgressRequest.WATCHDOG_ON
