"""What is told of real jobs of actors, none of which has a process group: by ``stacks`` when it is
asked, and by ``status`` and ``incidents`` without being asked."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ray_sentinel.model.incident import Incident
from tests.support.ray_cluster import RayCluster, Watched
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

JOBS = ("asleep", "circle", "async", "group", "queue", "flight")
"""What ``call_jobs.py`` can be."""
SCRIPT = Path(__file__).parents[2] / "support" / "call_jobs.py"

Told = dict[str, dict[str, Any]]
"""What the command says of each job, by what the job is called here."""


@contextlib.contextmanager
def running(cluster: RayCluster, *names: str) -> Iterator[None]:
    """A driver for each of some jobs; ended with its actors."""
    drivers = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), name],
            env=cluster.environ(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for name in names
    ]
    try:
        yield
    finally:
        for driver in drivers:
            driver.kill()
            driver.wait()


def look(cluster: RayCluster) -> Told:
    """The command's answer, as a program reads it."""
    ended = cluster.run("stacks", "--json")
    assert ended.returncode in (0, 1), ended.stderr
    answer = json.loads(ended.stdout)
    assert answer["notes"] == []
    return {job["command"].split()[-1]: job for job in answer["jobs"]}


def held_up(told: Told, name: str) -> tuple[str, list[str], int]:
    """What a job waits for in the end, who, and how many wait; where it is one thing only."""
    roots = told[name]["roots"] if name in told else []
    if len(roots) != 1:
        return "", [], 0
    return roots[0]["kind"], roots[0]["who"], roots[0]["waiters"]


def expected(told: Told) -> bool:
    flight = told.get("flight", {}).get("roots", [])
    return (
        held_up(told, "asleep") == ("standing", ["Rollout 2"], 3)
        and held_up(told, "async") == ("standing", ["Rollout 0"], 2)
        and held_up(told, "group")[0] == "unheld"
        and held_up(told, "circle")[0] == "circle"
        and held_up(told, "queue") == ("standing", ["Producer 0"], 3)
        and bool(flight)
        and {root["kind"] for root in flight} == {"works"}
    )


def by_job(cluster: RayCluster, told: Told) -> tuple[Told, Told]:
    """The status of each job and its incident, as programs read them."""
    status = json.loads(cluster.run("status", "--json").stdout)
    incidents = json.loads(cluster.run("incidents", "--json").stdout)
    states = {one["ray_job"]: one for one in status["jobs"]}
    found = {one["job"]: one for one in incidents}
    assert len(found) == len(incidents), "one each"
    named = {name: states[job["job"]] for name, job in told.items() if job["job"] in states}
    return named, {name: found[one["job"]] for name, one in named.items() if one["job"] in found}


KINDS = {
    "asleep": "actor-stuck",
    "circle": "call-deadlock",
    "group": "pending",
    "queue": "actor-stuck",
}
STATES = {
    "asleep": "hung",
    "circle": "hung",
    "group": "stalled",
    "queue": "hung",
    "async": "unknown",
    "flight": "healthy",
}


def kinds_told(watched: Watched) -> set[str]:
    """Of all incidents."""
    return {one.kind for one in watched.ask("incidents", tuple[Incident, ...])}


def is_known(watched: Watched, told: Told) -> bool:
    """Whether the coordinator says what the commands shall show: it is asked more cheaply."""
    names = {job["job"]: name for name, job in told.items()}
    jobs = {one.job: one for one in watched.status().jobs if one.ray_job in names}
    states = {names[one.ray_job]: one.state for one in jobs.values()}
    found = watched.ask("incidents", tuple[Incident, ...])
    kinds = {names[jobs[one.job].ray_job]: one.kind for one in found if one.job in jobs}
    return (states, kinds) == (STATES, KINDS) and all(one.state == "explained" for one in found)


def is_told_by_itself(cluster: RayCluster, watched: Watched, told: Told) -> None:
    """The incidents of those jobs that are surely stuck, and of no others."""
    seen: list[Any] = []

    def explained() -> tuple[Told, Told] | None:
        if not is_known(watched, told):
            return None
        states, incidents = by_job(cluster, told)
        seen[:] = [states, incidents]
        kinds = {name: one["kind"] for name, one in incidents.items()}
        ready = all(one["state"] == "explained" for one in incidents.values())
        # The status was asked for first: an incident may have come between.
        told_of = {name: one["state"] for name, one in states.items()} == STATES
        return (states, incidents) if kinds == KINDS and ready and told_of else None

    try:
        states, incidents = eventually(explained, "all is told", 120.0, every=2.0)
    except AssertionError as error:
        seen += by_job(cluster, told)
        raise AssertionError(f"{error}: {json.dumps(seen, indent=1)}") from None
    verdict = incidents["asleep"]["verdict"]
    (culprit,) = verdict["culprits"]
    assert (culprit["role"], culprit["actor"]) == ("Rollout", "Rollout 2")
    assert culprit["method"] == "Rollout.generate"
    assert culprit.get("rank") is None
    assert culprit["pid"] > 0
    assert culprit["reason"].startswith("sleeping in Rollout.score (call_jobs.py:")
    (first, then) = verdict["chain"]
    trainers = {f"Trainer.update at Trainer {number}" for number in range(2)}
    assert (first["from"], then["to"]) == ("driver", "Rollout.generate at Rollout 2")
    assert first["to"] == then["from"], "the chain goes on where it came to"
    assert first["to"] in trainers, "both wait for it"
    assert len(incidents["circle"]["verdict"]["chain"]) == 3
    actors = {one["actor"] for one in incidents["circle"]["verdict"]["culprits"]}
    assert actors == {"Trainer 0", "Trainer 1"}
    assert incidents["group"]["verdict"]["culprits"] == []
    (starves,) = incidents["queue"]["verdict"]["culprits"]
    assert (starves["actor"], starves["reason"]) == (
        "Producer 0",
        "resting without another _QueueActor.put",
    )
    assert "Rollout.score" in states["async"]["waits"]
    members = {one["label"]: one for one in states["asleep"]["members"]}
    assert members["Rollout 2"]["method"] == "Rollout.generate"
    assert members["Rollout 2"]["pid"] == culprit["pid"]
    assert set(members) == {one["label"] for one in told["asleep"]["processes"]}


@pytest.mark.timeout(360)
def test_who_waits_for_whom_in_jobs_of_actors(ray_cluster: RayCluster, watched: Watched) -> None:
    with running(ray_cluster, *JOBS):
        seen: list[Told] = []
        # From then on the command, which looks at every process, is right when it is asked first.
        eventually(lambda: kinds_told(watched) >= set(KINDS.values()), "they stand still", 120.0)

        def right() -> Told | None:
            seen[:] = [look(ray_cluster)]
            return seen[0] if expected(seen[0]) else None

        try:
            told = eventually(right, "every job is understood", 90.0, every=3.0)
        except AssertionError as error:
            raise AssertionError(f"{error}: {json.dumps(seen, indent=1)}") from None
        asleep, circle, group = told["asleep"], told["circle"], told["group"]
        assert "Rollout.generate at Rollout 2" in asleep["roots"][0]["sentence"]
        assert asleep["roots"][0]["why"].startswith("sleeping in Rollout.score (call_jobs.py:")
        assert {one["label"] for one in asleep["processes"]} == {
            "driver",
            *(f"Rollout {number}" for number in range(3)),
            *(f"Trainer {number}" for number in range(2)),
        }
        assert circle["roots"][0]["waiters"] == 1
        assert len(circle["roots"][0]["chain"]) == 3
        assert group["roots"][0]["who"] == [
            "placement group trainers (500 CPU + 1 CPU, which no node can hold)"
        ]
        shown = ray_cluster.run("stacks", "--job", asleep["job"])
        assert shown.returncode == 0
        assert asleep["roots"][0]["why"] in shown.stdout
        assert "sleeping: Rollout 2" in shown.stdout
        assert "circle" not in shown.stdout
        is_told_by_itself(ray_cluster, watched, told)


def test_a_cluster_without_agents_says_so(ray_cluster: RayCluster) -> None:
    with running(ray_cluster, "group"):

        def noted() -> Any:
            answer = json.loads(ray_cluster.run("stacks", "--json").stdout)
            return answer if answer["jobs"] else None

        answer = eventually(noted, "the driver is seen", 60.0, every=1.0)
        assert any("has no agent: run `ray-sentinel up`" in note for note in answer["notes"])
        processes = [one for job in answer["jobs"] for one in job["processes"]]
        assert {one["problem"] for one in processes} == {"its stack could not be taken"}
