"""Jobs of actors of the fault suite really are what the suite says of them: each gets to its
trouble, and the stacks and calls of its processes show that trouble and no other.

The jobs stand still at the same time, on one cluster, and are looked at together.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ray_sentinel.demo.actor_job import ActorJob
from ray_sentinel.demo.actor_plan import ActorTrialPlan, draw_actors
from ray_sentinel.demo.actor_trial import ask_command
from ray_sentinel.demo.cluster import Machines
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.faults, pytest.mark.timeout(600)]

SEED = 20
STANDING: dict[str, tuple[ActorTrialPlan, str]] = {
    plan.fault: (plan, kind)
    for plan, kind in (
        (draw_actors("sleep", SEED, layout="nested"), "standing"),
        (draw_actors("circle", SEED + 1), "circle"),
        (draw_actors("pending", SEED + 3), "unheld"),
        (draw_actors("constructor", SEED + 4), "standing"),
    )
}
"""Each with the kind of what holds it up in the end."""
DRIVER = draw_actors("driver-sleep", SEED + 5, layout="pool")
"""Nobody waits for its driver."""
ENDING: dict[str, tuple[ActorTrialPlan, int]] = {
    plan.fault: (plan, status)
    for plan, status in (
        (draw_actors("return", SEED + 6, layout="tasks"), 0),
        (draw_actors("driver-raises", SEED + 7, layout="tasks"), 1),
    )
}
"""Each with the exit status of its driver."""


@pytest.fixture(scope="module")
def jobs(
    machines: Machines, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, ActorJob]]:
    with contextlib.ExitStack() as undo:
        made = {}
        for plan in (DRIVER, *(plan for plan, _ in (STANDING | ENDING).values())):
            made[plan.fault] = ActorJob(plan, machines, tmp_path_factory.mktemp(plan.fault))
            undo.callback(made[plan.fault].close)
            made[plan.fault].start()
        yield made


class Looks:
    """What ``ray-sentinel stacks`` says of the jobs, which it looks at all at once: a test is
    content with what the last look of another showed of its job, and else looks itself."""

    def __init__(self, machines: Machines) -> None:
        self._machines = machines
        self._last: list[dict[str, Any]] = []

    def until(
        self, right: Callable[[list[dict[str, Any]]], bool], what: str, seconds: float
    ) -> None:
        """Look again and again, until the jobs are said to be what they should."""

        def look() -> bool:
            self._last = ask_command(self._machines, "stacks")["jobs"]
            return right(self._last)

        if not right(self._last):
            eventually(look, what, seconds, every=2.0)


@pytest.fixture(scope="module")
def looks(machines: Machines) -> Looks:
    return Looks(machines)


def told_of(job: ActorJob, told: list[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, str]]:
    """What is said of a job, and the members by their labels there."""
    members = job.members()
    for one in told:
        labels = {
            process["label"]: members[process["pid"]]
            for process in one["processes"]
            if process["pid"] in members
        }
        if "driver-0" in labels.values():
            return one, labels
    return {"roots": [], "processes": []}, {}


@pytest.mark.parametrize("fault", STANDING)
def test_the_stacks_show_the_trouble(fault: str, looks: Looks, jobs: dict[str, ActorJob]) -> None:
    plan, kind = STANDING[fault]
    job = jobs[fault]
    eventually(lambda: job.began() is not None, f"it gets to it: {job.last_lines()}", 240.0)
    seen: list[Any] = []

    def shown(told: list[dict[str, Any]]) -> bool:
        mine, labels = told_of(job, told)
        seen[:] = [
            (root["kind"], {labels[who] for who in root["who"] if who in labels})
            for root in mine["roots"]
        ]
        return len(seen) == 1 and seen[0][0] == kind and seen[0][1] in map(set, plan.accused)

    try:
        looks.until(shown, "it is held up by what was drawn", 90.0)
    except AssertionError as error:
        raise AssertionError(f"{error}: {seen}, drawn: {plan.culprit} {plan.accused}") from None
    assert job.ended() is None


def test_a_driver_sleeps_and_nothing_else_goes_on(looks: Looks, jobs: dict[str, ActorJob]) -> None:
    job = jobs[DRIVER.fault]
    eventually(lambda: job.began() is not None, f"it gets to it: {job.last_lines()}", 240.0)

    def asleep(told: list[dict[str, Any]]) -> bool:
        mine, labels = told_of(job, told)
        (driver,) = [one for one in mine["processes"] if one["role"] == "driver"] or [{}]
        busy = [
            one["label"] for one in mine["processes"] if one["role"] != "driver" and one["calls"]
        ]
        return driver.get("activity") == "sleeping" and len(labels) > 1 and not busy

    looks.until(asleep, "the driver sleeps", 60.0)


@pytest.mark.parametrize("fault", ENDING)
def test_a_job_ends_as_it_should(fault: str, jobs: dict[str, ActorJob]) -> None:
    job = jobs[fault]
    eventually(lambda: job.ended() is not None, f"{fault} ends", 240.0)
    assert job.ended() == ENDING[fault][1], job.last_lines()
    assert job.began() is not None
