"""What is said of a training before anything has happened, and how it is ended."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

from ray_sentinel.demo import trial
from ray_sentinel.demo.actor_trial import TrialScope
from ray_sentinel.demo.plan import draw
from ray_sentinel.errors import SentinelError
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.incident import Incident


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("sleep", "one will get stuck"),
        ("two-sleep", "2 will get stuck"),
        ("outside", "all will get stuck"),
        ("pause", "nothing will go wrong"),
        ("checkpoint", "nothing will go wrong"),
    ],
)
def test_only_where_somebody_is_to_get_stuck_it_is_announced(fault: str, text: str) -> None:
    assert trial.outlook(draw(fault, seed=1)) == text


class Ranks:
    """A job whose ranks end, or do not, when they are asked to."""

    def __init__(self, world: int, obey: bool) -> None:
        self.world = world
        self.obey = obey
        self.did: list[Any] = []

    def signal(self, number: signal.Signals) -> None:
        self.did.append(number)

    def ended(self) -> dict[int, int]:
        return dict.fromkeys(range(self.world), 0) if self.did and self.obey else {}

    def start(self) -> None:
        self.did.append(self.world)


class Now:
    """A stage that looks once."""

    def until(self, seconds: float, note: str, ready: Callable[[], bool]) -> bool:
        return ready()


@pytest.mark.parametrize(("interlude", "world"), [("restart", 8), ("resize", 6)])
def test_a_job_is_started_again_when_all_its_ranks_have_ended(interlude: str, world: int) -> None:
    play: Any = trial.INTERLUDES[interlude]
    job = Ranks(8, obey=True)
    play(job, None, Now(), "")
    assert job.did == [signal.SIGTERM, world]
    with pytest.raises(SentinelError, match="do not end"):
        play(Ranks(8, obey=False), None, Now(), "")


SCOPE = TrialScope(
    since=100.0, names=frozenset({"rollouts"}), scripts=("bami",), pids=frozenset({7})
)


def incident(job: str, *, at: float = 120.0, pid: int = 1) -> Incident:
    return Incident(
        id="0001",
        job=job,
        attempt=0,
        kind="driver-dead",
        severity="critical",
        state="confirmed",
        summary="driver was killed",
        rule="ray.deaths",
        suspected_at=at,
        processes={"0": ProcessId("one", pid, 1)},
    )


@pytest.mark.parametrize("job", ["rollouts", "bami-3", "other"])
def test_incidents_of_a_trial_are_about_its_jobs_or_its_processes(job: str) -> None:
    assert SCOPE.has(incident(job)) == (job != "other")
    assert SCOPE.has(incident(job, pid=7))


@pytest.mark.parametrize("job", ["rollouts", "bami-3"])
def test_incidents_before_a_trial_are_of_another_one_that_drew_its_names(job: str) -> None:
    assert not SCOPE.has(incident(job, at=99.0, pid=7))
