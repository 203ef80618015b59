"""What the coordinator keeps of incidents, and for how long."""

from __future__ import annotations

import errno
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from ray_sentinel.actors.coordinator import diagnosing
from ray_sentinel.actors.coordinator.executor import LATE_SECONDS, Executor
from ray_sentinel.actors.messages import Sampled, pack
from ray_sentinel.actors.storage import DeploymentStorage
from ray_sentinel.clock import Clock
from ray_sentinel.config import CaptureConfig as CaptureSettings
from ray_sentinel.config import Config
from ray_sentinel.engine.actions import Capture, TakeStacks
from ray_sentinel.engine.events import AnyEvent, CaptureDone, StacksTaken
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.incident import Incident, IncidentState
from ray_sentinel.model.stacks import StackFact
from tests.support.incidents import an_incident
from tests.support.waiting import eventually


def executor(folder: Path, clock: Clock | None = None) -> Executor:
    config = Config(log_dir=str(folder), capture=CaptureSettings(series_seconds=0.001))
    return Executor(config, cast(Any, None), DeploymentStorage(config), clock=clock)


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


class BusyAgents:
    """Answer only when nobody waits for them any more; the clock has gone on by ``seconds``."""

    def __init__(self, clock: SetClock, seconds: float) -> None:
        self._clock, self._seconds = clock, seconds

    def ask_about(
        self, method: str, ranks: object, seconds: float, late_answer: Callable[[bytes], None]
    ) -> tuple[dict[str, bytes], list[str]]:
        self._clock.at += self._seconds
        late_answer(pack(Sampled(facts=(StackFact(process=ProcessId("host", 7, 1)),))))
        return {}, ["node n: no answer to sample within 3 s"]


class SetClock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.at = 1000.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


@pytest.mark.parametrize(("seconds", "count"), [(5.0, 2), (LATE_SECONDS + 1, 1)])
def test_stacks_that_come_late_are_told_with_the_time_they_were_asked_for(
    tmp_path: Path, seconds: float, count: int
) -> None:
    clock = SetClock()
    executing = executor(tmp_path, clock)
    executing._agents = cast(Any, BusyAgents(clock, seconds))
    told: list[AnyEvent] = []
    executing.feed = lambda event: told.append(event) or len(told)  # type: ignore[func-returns-value]
    executing(TakeStacks(incident="0001", round=2, ranks=()))
    eventually(lambda: len(told) == count, "what came is told")
    taken = [event for event in told if isinstance(event, StacksTaken)]
    assert {(event.incident, event.round) for event in taken} == {("0001", 2)}
    (whole,) = [event for event in taken if event.asked_at is None]
    assert (whole.facts, len(whole.problems)) == ((), 1)
    late = [event for event in taken if event.asked_at is not None]
    assert [(event.asked_at, len(event.facts)) for event in late] == [(1000.0, 1)] * (count - 1)
