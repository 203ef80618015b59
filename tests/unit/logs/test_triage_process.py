"""Triage in a process of its own."""

from __future__ import annotations

import lzma
import threading
import time
from pathlib import Path

import pytest

from ray_sentinel.errors import InputError
from ray_sentinel.logs.catalogue import load_catalogue
from ray_sentinel.logs.triage import triage_path
from ray_sentinel.logs.triage_process import triage_in_process
from ray_sentinel.process.apart import UnreadError

FAILURE = """Traceback (most recent call last):
  File "train.py", line 3, in <module>
    main()
ValueError: bad value
"""


def test_it_answers_as_triage_itself_does(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    log.write_text(FAILURE)
    assert triage_in_process(log, seconds=60) == triage_path(log, load_catalogue())


def test_nobody_else_waits_while_a_hostile_log_is_read(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    log.write_text(("checkpoint " + "resum" * 1600 + "\n") * 40 + FAILURE)
    answers: list[str] = []
    reading = threading.Thread(
        target=lambda: answers.append(triage_in_process(log, seconds=60).kind), daemon=True
    )
    reading.start()
    longest, last = 0.0, time.monotonic()
    while reading.is_alive():
        reading.join(0.02)
        longest, last = max(longest, time.monotonic() - last), time.monotonic()
    assert answers == ["python-exception"]
    assert longest < 5, "the interpreter was free meanwhile"


def test_it_is_ended_at_its_deadline(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    log.write_text(FAILURE)
    with pytest.raises(UnreadError, match="not read to its end"):
        triage_in_process(log, seconds=0.01)


def test_the_reason_why_there_is_no_answer(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="missing"):
        triage_in_process(tmp_path / "missing.log", seconds=60)


def test_one_that_takes_more_memory_than_it_may_have_is_said(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    window = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 64 << 20}]
    log.write_bytes(lzma.compress(FAILURE.encode(), filters=window))
    with pytest.raises(UnreadError, match="takes more than 48 MiB of memory"):
        triage_in_process(log, seconds=60, memory=48 << 20)
    assert triage_in_process(log, seconds=60).kind == "python-exception"
    log.write_text(FAILURE)
    with pytest.raises(UnreadError, match="1 MiB of memory"):
        triage_in_process(log, seconds=60, memory=1 << 20)
