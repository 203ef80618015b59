"""What the supervisor keeps, and reads again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ray_sentinel.errors import SentinelError
from ray_sentinel.progress.rank.own_process import start_ticks
from ray_sentinel.supervise.json_records import decode, encode, readable
from ray_sentinel.supervise.policy import ResumePoint
from ray_sentinel.supervise.restart_state_machine import SupervisionState
from ray_sentinel.supervise.run_folder import STATE, RunFolder, State, Told

ODD = os.fsdecode(b"/c/\xff\xfe/step_7")
NUMBER_OF_NOBODY = 1 << 22


def test_what_is_no_text_comes_back_as_it_was() -> None:
    left_out = [ResumePoint(path=path, step=7) for path in (ODD, "a\nb")]
    ledger = SupervisionState(attempt=3, checkpoint=left_out[0], left_out=left_out)
    told = Told(argv=("train", ODD, "é\u2028"), ledger=ledger, supervisor=7)
    data = encode(told)
    assert data.isascii()
    again = decode(data, Told)
    assert again is not None
    assert again == told
    assert os.fsencode(again.argv[1]) == b"/c/\xff\xfe/step_7"


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"keeper": "x"}', b"\xff", b"[" * 99999])
def test_what_is_no_record_is_none(data: bytes) -> None:
    assert decode(data, State) is None


def test_what_is_no_text_is_shown_as_escapes() -> None:
    assert readable(ODD) == "/c/\\udcff\\udcfe/step_7"


def keep(folder: RunFolder, number: int, **fields: object) -> None:
    path = folder.attempt(number)
    path.mkdir()
    state = State(**{"keeper": os.getpid(), "keeper_start": start_ticks(), **fields})  # type: ignore[arg-type]
    (path / STATE).write_bytes(encode(state))


def test_the_attempt_that_runs_is_found_without_a_ledger(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    assert folder.running() is None
    keep(folder, 0, ended_at=1.0)
    keep(folder, 1, keeper=NUMBER_OF_NOBODY)
    assert folder.running() is None
    keep(folder, 2)
    keep(folder, 3, keeper_start=1)  # its number is somebody else's now
    (folder.path / "attempt-x").touch()
    (folder.path / "attempt-0009").touch()
    assert folder.running() == 2


def test_a_place_that_cannot_be_used_names_the_setting(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SentinelError, match=r"Not a directory.*RAY_SENTINEL_LOG_DIR"):
        RunFolder(tmp_path / "file/run")
    folder = RunFolder(tmp_path / "run")
    (folder.path / "lock").mkdir()
    with pytest.raises(SentinelError, match="lock: Is a directory"):
        folder.lock()
    folder.attempt(0).touch()
    with pytest.raises(SentinelError, match="attempt-0000: File exists"):
        folder.new_attempt(0)
