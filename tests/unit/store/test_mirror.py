"""A second data folder with the same content: also while blocks come and go."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ray_sentinel.store.prometheus import mirror as module
from ray_sentinel.store.prometheus.mirror import mirror_steadily
from ray_sentinel.store.prometheus.tsdb import Database, inspect

FIRST, SECOND = "01M7WKNY0802537T9WYAKWGJGN", "01M7WKNY0802537T9WYAKWGJGP"


def block(folder: Path, name: str) -> Path:
    path = folder / name
    (path / "chunks").mkdir(parents=True)
    (path / "meta.json").write_text(json.dumps({"ulid": name, "minTime": 1, "maxTime": 7200000}))
    (path / "index").write_bytes(b"\xba\xaa\xd7\x00" + b"\0" * 100)
    (path / "chunks" / "000001").write_bytes(b"\x85\xbd\x40\xdd" + b"\0" * 20)
    return path


def wal(folder: Path) -> Path:
    path = folder / "wal" / "00000000"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\0" * 32768)
    return path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_head_that_becomes_a_block_meanwhile_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    block(data, FIRST)
    head = wal(data)
    copy = module.mirror
    copied = []

    def compacted_meanwhile(database: Database, target: Path) -> list[str]:
        notes = copy(database, target)
        if not copied:
            block(data, SECOND)
            head.write_bytes(b"\0" * 10)
        copied.append(names(target))
        return notes

    monkeypatch.setattr(module, "mirror", compacted_meanwhile)
    found, notes = mirror_steadily(data, tmp_path / "copy")
    assert found.live
    assert len(copied) == 2
    assert names(tmp_path / "copy") == [FIRST, SECOND, "wal"]
    assert not any("some may be missing" in note for note in notes)


def test_one_that_never_stands_still_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    wal(data)
    letters = iter("0123456789ABCDEFGH")
    copy = module.mirror

    def restless(database: Database, target: Path) -> list[str]:
        block(data, FIRST[:-1] + next(letters))
        return copy(database, target)

    monkeypatch.setattr(module, "mirror", restless)
    _, notes = mirror_steadily(data, tmp_path / "copy")
    assert any("some may be missing" in note for note in notes)


def test_a_finished_jobs_data_are_laid_out_once(tmp_path: Path) -> None:
    data = tmp_path / "data"
    block(data, FIRST)
    head = wal(data)
    os.utime(head, (1e9, 1e9))
    assert not inspect(data).live
    _, notes = mirror_steadily(data, tmp_path / "copy")
    assert notes == []
    assert (tmp_path / "copy" / FIRST / "index").is_symlink()
    assert not (tmp_path / "copy" / "wal" / "00000000").is_symlink(), "opening it writes"
