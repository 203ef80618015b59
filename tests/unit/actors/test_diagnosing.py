"""When an incident's series are diagnosed, and when not."""

from __future__ import annotations

import queue

import pytest

from ray_sentinel.actors.coordinator import diagnosing
from ray_sentinel.actors.coordinator.diagnosing import SeriesDiagnoser, diagnosed
from ray_sentinel.model.incident import FaultKind, Incident
from tests.support.incidents import an_incident
from tests.support.waiting import eventually

WAIT = 20.0


def incident(number: str = "1", kind: FaultKind = "stall") -> Incident:
    return an_incident(id=number, attempt=1, kind=kind, state="captured", suspected_at=1000.0)


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> queue.Queue[str]:
    """The ids that came out; the program itself is replaced by its answer."""
    monkeypatch.setattr(diagnosing, "diagnosed", lambda *_: {"diagnosis.json": b"{}"})
    return queue.Queue()


def made(seconds: float, done: queue.Queue[str]) -> SeriesDiagnoser:
    return SeriesDiagnoser(seconds, lambda incident, files: done.put(incident.id))


def test_each_incident_is_diagnosed_once_in_order(done: queue.Queue[str]) -> None:
    diagnoser = made(0.001, done)
    for number in ("1", "2", "1", "3"):
        diagnoser(incident(number))
    assert [done.get(timeout=WAIT) for _ in range(3)] == ["1", "2", "3"]
    diagnoser.close()
    assert done.empty()


def test_what_no_series_explain_is_left_out(done: queue.Queue[str]) -> None:
    diagnoser = made(0.001, done)
    diagnoser(incident("1", "asked"))
    diagnoser(incident("2", "sentinel"))
    diagnoser(incident("3"))
    assert done.get(timeout=WAIT) == "3"
    diagnoser.close()


def test_it_can_be_turned_off(done: queue.Queue[str]) -> None:
    off = made(0.0, done)
    off(incident())
    off.close()
    assert done.empty()


def test_what_waits_is_given_up_at_the_end(done: queue.Queue[str]) -> None:
    diagnoser = made(3600.0, done)
    diagnoser(incident())
    assert diagnoser.awaits("1")
    diagnoser.close()
    eventually(lambda: not diagnoser.awaits("1"), "it is given up")
    assert done.empty()


def test_a_mistake_is_said_and_the_next_one_still_comes(
    done: queue.Queue[str], caplog: pytest.LogCaptureFixture
) -> None:
    def fail_once(incident: Incident, files: dict[str, bytes]) -> None:
        if incident.id == "1":
            raise RuntimeError("broken")
        done.put(incident.id)

    diagnoser = SeriesDiagnoser(0.001, fail_once)
    diagnoser(incident("1"))
    diagnoser(incident("2"))
    assert done.get(timeout=WAIT) == "2"
    diagnoser.close()
    assert "could not be diagnosed" in caplog.text


def test_what_is_over_is_forgotten(done: queue.Queue[str]) -> None:
    diagnoser = made(0.001, done)
    for number in range(50):
        diagnoser(incident(str(number)))
        done.get(timeout=WAIT)
    eventually(
        lambda: not any(diagnoser.awaits(str(number)) for number in range(50)), "all are done"
    )
    diagnoser.close()
    assert len(diagnoser.seen) == 50, "none is diagnosed twice"
    diagnoser.forget(map(str, range(50)))
    assert diagnoser.seen == set()


def test_without_a_source_there_is_no_answer() -> None:
    assert diagnosed("", incident(), 2000.0) == {}
