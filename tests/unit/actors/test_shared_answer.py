"""One answer for all who ask within some seconds."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest

from ray_sentinel.actors.coordinator.shared_answer import SharedAnswer
from ray_sentinel.clock import FakeClock


def test_it_is_made_once_for_all_who_ask_in_time() -> None:
    clock, numbers = FakeClock(), count()
    subject = SharedAnswer(lambda: next(numbers), clock, 3.0)
    assert [subject(), subject()] == [0, 0]
    clock.advance(2.9)
    assert subject() == 0
    clock.advance(0.1)
    assert [subject(), subject()] == [1, 1]


def test_those_who_ask_while_it_is_made_get_the_same() -> None:
    made, go = [], threading.Event()

    def make() -> object:
        made.append(object())
        assert go.wait(30)
        return made[-1]

    subject = SharedAnswer(make, FakeClock(), 3.0)
    with ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(subject) for _ in range(4)]
        go.set()
        assert len({id(answer.result(30)) for answer in answers}) == len(made) == 1


def test_what_could_not_be_made_is_made_anew() -> None:
    broken = [False, True]

    def make() -> str:
        if broken.pop():
            raise RuntimeError("not now")
        return "the answer"

    subject = SharedAnswer(make, FakeClock(), 3.0)
    with pytest.raises(RuntimeError):
        subject()
    assert subject() == "the answer"
