"""When files were made, and what that tells of an undated log."""

from __future__ import annotations

import time
from pathlib import Path

from ray_sentinel.logs.birth import birth_time
from ray_sentinel.logs.catalogue import load_catalogue
from ray_sentinel.logs.triage import triage_path
from tests.support.parts import lacking

LINES = "".join(f"something of no meaning, number {number}\n" for number in range(5000))


def test_a_file_is_older_than_its_last_change(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("a")
    born = birth_time(path)
    if born is None:
        lacking("this file system does not keep the time at which a file was made")
    assert abs(born - time.time()) < 60
    with path.open("a") as file:
        file.write("b")
    assert birth_time(path) == born
    assert birth_time(tmp_path / "missing") is None


def test_an_undated_log_that_was_copied_just_now_is_no_sign_of_life(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(LINES)
    if birth_time(path) is None:
        lacking("this file system does not keep the time at which a file was made")
    assert triage_path(path, load_catalogue()).outcome != "running"
    assert triage_path(path, load_catalogue(), live=True).outcome == "running"


def test_the_beginning_of_a_log_may_be_written_at_once(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(LINES[:2000])
    assert triage_path(path, load_catalogue()).outcome == "running"
