"""The agent's own folder: programs are run from it, so nobody else may write there."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from ray_sentinel.actors.agent.node_monitor import run_folder
from ray_sentinel.model.identity import Node
from tests.support.parts import needs_root

NODE = Node(id="abc" * 10, host="h", address="10.0.0.1")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / f"ray_sentinel-{os.getuid()}"


def test_it_is_the_same_for_every_life_and_ours_alone(root: Path) -> None:
    folder = run_folder(NODE)
    assert folder == run_folder(NODE) == root / "nodes" / NODE.id[:16]
    assert folder.is_dir()
    assert stat.S_IMODE(root.stat().st_mode) == 0o700


def test_one_of_ours_that_others_may_write_to_is_closed(root: Path) -> None:
    root.mkdir()
    root.chmod(0o777)
    assert run_folder(NODE).is_relative_to(root)
    assert stat.S_IMODE(root.stat().st_mode) == 0o700


def test_a_link_is_not_followed(root: Path, tmp_path: Path, caplog) -> None:
    (tmp_path / "elsewhere").mkdir()
    root.symlink_to(tmp_path / "elsewhere")
    folder = run_folder(NODE)
    assert folder.is_dir()
    assert not folder.resolve().is_relative_to(tmp_path / "elsewhere")
    assert str(root) in caplog.text


def test_a_file_of_that_name_is_left_alone(root: Path, caplog) -> None:
    root.write_text("")
    assert run_folder(NODE).is_dir()
    assert "no folder" in caplog.text


@needs_root()
def test_another_users_is_left_alone(root: Path, caplog) -> None:
    root.mkdir()
    os.chown(root, 4321, 4321)
    folder = run_folder(NODE)
    assert not folder.is_relative_to(root)
    assert "4321" in caplog.text
    assert list(root.iterdir()) == []
