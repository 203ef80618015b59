"""What the coordinator keeps of incidents, and for how long."""

from __future__ import annotations

import errno
import json
import threading
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from ray_sentinel.actors import diagnosing
from ray_sentinel.actors.execute import Executor
from ray_sentinel.actors.storage import Storage
from ray_sentinel.config import Capture as CaptureSettings
from ray_sentinel.config import Config
from ray_sentinel.engine.actions import Capture
from ray_sentinel.engine.events import AnyEvent, CaptureDone
from ray_sentinel.model.incident import Incident, IncidentState
from tests.support.incidents import an_incident


def executor(folder: Path) -> Executor:
    config = Config(log_dir=str(folder), capture=CaptureSettings(series_seconds=0.001))
    return Executor(config, cast(Any, None), Storage(config))


def publish(executor: Executor, incident: Incident, *states: IncidentState) -> None:
    """Written when this returns."""
    for state in states:
        executor._publish(msgspec.structs.replace(incident, state=state))


def incident(number: int) -> Incident:
    return an_incident(id=f"{number:04d}", suspected_at=1_767_323_045.0 + number)


def test_nothing_is_kept_of_incidents_that_are_over(tmp_path: Path) -> None:
    executing = executor(tmp_path)
    for number in range(1, 31):
        publish(executing, incident(number), "confirmed", "explained", "resolved")
    publish(executing, incident(31), "confirmed")
    assert list(executing._latest) == ["0031"]
    assert list(executing.bundles._folders) == ["0031"]
    assert len(executing.bundles.open()) == 1
    assert len(list((tmp_path / "incidents").iterdir())) == 31


def test_what_comes_late_of_an_incident_that_is_over_goes_into_its_folder(tmp_path: Path) -> None:
    executing = executor(tmp_path)
    publish(executing, incident(1), "confirmed", "resolved")
    folder, problems, _ = executing.bundles.store(incident(1), {"late.txt": b"x"})
    assert problems == []
    assert folder is not None
    assert (folder / "late.txt").read_bytes() == b"x"
    assert len(list((tmp_path / "incidents").iterdir())) == 1


def test_a_diagnosis_that_comes_after_the_end_does_not_reopen_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()

    def slow(*_: object) -> dict[str, bytes]:
        over.wait(20.0)
        return {"diagnosis.json": b"{}"}

    monkeypatch.setattr(diagnosing, "diagnosed", slow)
    executing = executor(tmp_path)
    stalled = msgspec.structs.replace(incident(1), kind="stall")
    publish(executing, stalled, "confirmed")
    executing.diagnose(stalled)
    publish(executing, stalled, "resolved")
    assert list(executing._latest) == ["0001"], "its diagnosis is still to come"
    over.set()
    executing.diagnose._pool.shutdown(wait=True)
    executing._reports.shutdown(wait=True)
    (folder,) = (tmp_path / "incidents").iterdir()
    assert (folder / "diagnosis.json").exists()
    assert json.loads((folder / "incident.json").read_bytes())["state"] == "resolved"
    publish(executing, incident(2), "confirmed")
    assert list(executing._latest) == ["0002"]
    assert executing.diagnose._seen == set()


def test_a_capture_that_fails_is_answered_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executing = executor(tmp_path)
    answers: list[AnyEvent] = []

    def take(event: AnyEvent) -> int:
        answers.append(event)
        return len(answers)

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    executing.feed = take
    monkeypatch.setattr(executing.bundles, "store", fail)
    executing(Capture(incident=incident(7)))
    executing._captures.shutdown(wait=True)
    (done,) = answers
    assert isinstance(done, CaptureDone)
    assert (done.incident, done.bundle) == ("0007", "")
    assert "Input/output error" in done.problems[0]
