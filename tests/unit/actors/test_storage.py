"""Where a deployment keeps its files: where it was told to, else somewhere, and it says so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ray_sentinel.actors.storage import DeploymentStorage
from ray_sentinel.config import Config


def test_storage_falls_back_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    blocked = tmp_path / "file"
    blocked.write_text("")
    storage = DeploymentStorage(Config(log_dir=str(blocked / "below"), job="j"), {})
    assert storage.root == tmp_path / f"ray_sentinel-{os.getuid()}" / "j"
    assert str(blocked / "below") in storage.notes[0]
    assert "RAY_SENTINEL_LOG_DIR" in storage.notes[0]


def test_a_deployment_that_fell_back_stays_there_until_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its event log is there: a coordinator that Ray starts again would else forget all."""
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    wanted = tmp_path / "wanted"
    wanted.write_text("")
    config = Config(log_dir=str(wanted), job="j")
    fell_back = DeploymentStorage(config, {}, deployment="d")
    assert fell_back.root == tmp_path / f"ray_sentinel-{os.getuid()}" / "j"
    assert "until `ray-sentinel down` and `up`" in fell_back.notes[-1]
    assert "until the agent is restarted" in DeploymentStorage(config, {}).notes[-1]
    events = fell_back.folder("events")
    assert events is not None
    (events / "d").mkdir()
    wanted.unlink()

    again = DeploymentStorage(config, {}, deployment="d")
    assert again.root == fell_back.root
    assert again.folder("events") == events
    assert "now it can: `ray-sentinel down` and `up`" in again.notes[0]
    assert DeploymentStorage(config, {}, deployment="next").root == wanted
    assert DeploymentStorage(config, {}).root == wanted, "an agent, which has no past"
    (wanted / "events" / "d").mkdir(parents=True)
    assert DeploymentStorage(config, {}, deployment="d").root == wanted, "where it began"


def test_storage_without_any_place_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(blocked))
    storage = DeploymentStorage(Config(log_dir=str(blocked)), {})
    assert storage.root is None
    assert storage.folder("incidents") is None
    assert "memory only" in storage.notes[-1]


def test_storage_warns_of_a_folder_that_goes_with_the_pod(tmp_path: Path) -> None:
    storage = DeploymentStorage(Config(log_dir=str(tmp_path)), {"KUBERNETES_SERVICE_HOST": "1"})
    same = tmp_path.stat().st_dev == Path("/").stat().st_dev
    assert any("goes with the pod" in note for note in storage.notes) is same
