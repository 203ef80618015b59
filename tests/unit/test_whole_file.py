"""A file is replaced whole, or left as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_sentinel.whole_file import write_whole


def test_a_file_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    write_whole(file, b"one")
    write_whole(file, b"two")
    assert file.read_bytes() == b"two"
    assert list(tmp_path.iterdir()) == [file]


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    taken = tmp_path / "state.json"
    (taken / "inside").mkdir(parents=True)
    with pytest.raises(OSError, match=r"state\.json"):
        write_whole(taken, b"data")
    assert list(tmp_path.iterdir()) == [taken]
