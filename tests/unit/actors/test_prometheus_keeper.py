"""When the coordinator has a Prometheus, and what it says where it has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_sentinel.actors.coordinator.prometheus import AGAIN_SECONDS, PrometheusKeeper
from ray_sentinel.actors.storage import DeploymentStorage
from ray_sentinel.clock import FakeClock
from ray_sentinel.config import Config, load


def config(folder: Path, **more: object) -> Config:
    return load(
        environ={},
        overrides={"log_dir": str(folder / "log"), "prometheus": {"enabled": True, **more}},
    )


def pretender(folder: Path) -> None:
    path = folder / "prometheus"
    path.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo "prometheus, version 2.53.4"\nexit 0\n'
    )
    path.chmod(0o755)


def test_one_that_is_not_asked_for_is_not_looked_for(tmp_path: Path) -> None:
    settings = config(tmp_path, enabled=False)
    keeper = PrometheusKeeper(settings, DeploymentStorage(settings))
    assert not keeper.wanted
    keeper.step((), ())
    assert keeper.url == ""
    assert keeper.notes == ()


def test_a_program_that_comes_later_is_found(tmp_path: Path) -> None:
    clock = FakeClock()
    settings = config(tmp_path, binary=str(tmp_path / "prometheus"))
    keeper = PrometheusKeeper(settings, DeploymentStorage(settings), clock)
    assert keeper.wanted
    keeper.step((), ())
    (note,) = keeper.notes
    assert "is not a program that can be run" in note
    pretender(tmp_path)
    keeper.step((), ())
    assert keeper.notes == (note,), "it is not looked for all the time"
    clock.advance(AGAIN_SECONDS)
    keeper.step((), ())
    assert note not in keeper.notes
    assert keeper.url
    keeper.close()
    assert keeper.url == ""


def test_a_closed_one_is_not_begun(tmp_path: Path) -> None:
    pretender(tmp_path)
    settings = config(tmp_path, binary=str(tmp_path / "prometheus"))
    keeper = PrometheusKeeper(settings, DeploymentStorage(settings))
    keeper.close()
    keeper.step((), ())
    assert keeper.url == ""


@pytest.mark.parametrize("retention", ["forever", ""])
def test_a_wrong_setting_is_said(retention: str, tmp_path: Path) -> None:
    settings = config(tmp_path, retention=retention)
    keeper = PrometheusKeeper(settings, DeploymentStorage(settings))
    keeper.step((), ())
    assert any("prometheus.retention" in note for note in keeper.notes)
