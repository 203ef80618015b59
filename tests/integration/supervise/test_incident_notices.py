"""What the coordinator publishes reaches people: each state once, also after a restart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from ray_sentinel.actors.coordinator.executor import Executor
from ray_sentinel.actors.storage import DeploymentStorage
from ray_sentinel.config import Config, NotifyConfig
from ray_sentinel.engine.actions import Publish
from ray_sentinel.model.incident import Incident, Transition
from tests.support.incidents import an_incident
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


def incident(*states: Any) -> Incident:
    return an_incident(
        id="7",
        job="job",
        state=states[-1],
        summary="rank 3 holds the GIL",
        history=tuple(Transition(float(n), state) for n, state in enumerate(states, 5)),
    )


def told(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]


def test_each_state_is_told_once(tmp_path: Path) -> None:
    out = tmp_path / "told"
    script = tmp_path / "tell.sh"
    script.write_text(f'#!/bin/sh\ndata=$(cat)\nprintf "%s\\n" "$data" >> {out}\n')
    script.chmod(0o755)
    config = Config(log_dir=str(tmp_path / "log"), notify=NotifyConfig(command=str(script)))
    storage = DeploymentStorage(config)
    executor = Executor(config, cast(Any, None), storage)
    confirmed = incident("suspected", "confirmed")
    for one in (
        incident("suspected"),
        confirmed,
        confirmed,
        incident("suspected", "confirmed", "captured"),
    ):
        executor(Publish(incident=one))
    eventually(lambda: told(out), "it is told")
    again = Executor(config, cast(Any, None), storage, [confirmed])
    for one in (confirmed, incident("suspected", "confirmed", "resolved")):
        again(Publish(incident=one))
    eventually(lambda: len(told(out)) >= 2, "its end is told, too")
    assert [notice["event"] for notice in told(out)] == ["confirmed", "resolved"]
    first = told(out)[0]
    assert (first["job"], first["text"]) == ("job", "rank 3 holds the GIL")
    assert first["details"]["bundle"].startswith(str(tmp_path / "log/incidents"))


def test_wrong_settings_do_not_end_the_watch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = Config(log_dir=str(tmp_path / "log"), notify=NotifyConfig(webhook="nonsense"))
    Executor(config, cast(Any, None), DeploymentStorage(config))
    assert "nobody will be notified: 'nonsense' is no webhook" in caplog.text
