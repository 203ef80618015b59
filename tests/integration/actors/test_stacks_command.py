"""``ray-sentinel stacks`` on real jobs of actors, none of which has a process group."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.ray_cluster import RayCluster
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

JOBS = ("asleep", "circle", "async", "group", "flight")
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
        and bool(flight)
        and {root["kind"] for root in flight} == {"works"}
    )


@pytest.mark.usefixtures("watched")
def test_who_waits_for_whom_in_jobs_of_actors(ray_cluster: RayCluster) -> None:
    with running(ray_cluster, *JOBS):
        seen: list[Told] = []

        def right() -> Told | None:
            seen[:] = [look(ray_cluster)]
            return seen[0] if expected(seen[0]) else None

        try:
            told = eventually(right, "every job is understood", 90.0, every=1.0)
        except AssertionError as error:
            raise AssertionError(f"{error}: {json.dumps(seen, indent=1)}") from None
        asleep, circle, group = told["asleep"], told["circle"], told["group"]
        assert "Rollout.generate at Rollout 2" in asleep["roots"][0]["sentence"]
        assert asleep["roots"][0]["why"].startswith("sleeping in Rollout.score (call_jobs.py:")
        assert {one["label"] for one in asleep["processes"]} == {
            "driver",
            *(f"Rollout {number}" for number in range(4)),
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


def test_a_cluster_without_agents_says_so(ray_cluster: RayCluster) -> None:
    with running(ray_cluster, "group"):

        def noted() -> Any:
            answer = json.loads(ray_cluster.run("stacks", "--json").stdout)
            return answer if answer["jobs"] else None

        answer = eventually(noted, "the driver is seen", 60.0, every=1.0)
        assert any("has no agent: run `ray-sentinel up`" in note for note in answer["notes"])
        processes = [one for job in answer["jobs"] for one in job["processes"]]
        assert {one["problem"] for one in processes} == {"its stack could not be taken"}
