"""Why actors and drivers of real Ray jobs ended, and who is named for it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_sentinel.actors.coordinator.ray_deaths import ControlStoreDeaths, RayDeathWatch
from ray_sentinel.actors.coordinator.ray_store import RayStore
from ray_sentinel.actors.coordinator.ray_table import RayTable
from ray_sentinel.model.incident import Incident
from ray_sentinel.model.ray_deaths import RayDeath
from tests.support.ray_cluster import RayCluster, Watched
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

SCRIPT = Path(__file__).parents[2] / "support" / "dying_job.py"


class DyingJob:
    """A driver of its own; it is told to go on when all its actors live."""

    def __init__(self, cluster: RayCluster, folder: Path, how: str) -> None:
        self.how, self._ready = how, folder / f"{how}.ready"
        script = shutil.copy(SCRIPT, folder / f"{how}.py")
        self.driver = subprocess.Popen(
            [sys.executable, "-W", "ignore", script, str(self._ready)],
            env=cluster.environ(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # A test runner in the background ignores Ctrl-C, and so would its children.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )

    def until_ready(self) -> None:
        eventually(self._ready.exists, f"the actors of {self.how} live", 60.0)

    def go_on(self) -> None:
        self._ready.with_name(f"{self._ready.name}.go").touch()


@contextlib.contextmanager
def dying(cluster: RayCluster, folder: Path, *hows: str) -> Iterator[dict[str, DyingJob]]:
    jobs = {how: DyingJob(cluster, folder, how) for how in hows}
    try:
        for job in jobs.values():
            job.until_ready()
        yield jobs
    finally:
        for job in jobs.values():
            job.driver.kill()
            job.driver.wait()


LOSSES = {
    "killed": ("signal", "control store", ""),
    "crashed": ("signal", "control store", ""),
    "unwanted": ("killed-by-ray", "control store", "ray.kill"),
    "left": ("signal", "control store", ""),
    "owner": ("signal", "control store", ""),
    "child": ("owner-ended", "control store", ""),
}
"""Cause, witness and detail where nobody but the control store is asked."""
DRIVERS = {
    "killed": ("signal", ""),
    "raises": ("exception", "ValueError"),
    "finishes": ("finished", ""),
    "falls": ("exception", "KeyError"),
    "builds": ("exception", ""),
    "unpacks": ("exception", ""),
}
NEVER_BEGAN = {"broken": "constructor", "bare": "runtime-env"}
"""Actors that their drivers failed by."""


def test_the_control_store_tells_one_cause_for_each(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    told: list[RayDeath] = []
    store = RayStore(ray_cluster.address)
    deaths = RayDeathWatch(ControlStoreDeaths(store), told.extend)
    table = RayTable(store, deaths.take_table)

    def all_told() -> bool:
        table.poll()
        deaths.poll()
        ended = {death.label for death in told}
        return ended >= LOSSES.keys() and sum(d.what == "driver" for d in told) == len(DRIVERS)

    with store, dying(ray_cluster, tmp_path, "losses", *DRIVERS) as jobs:
        table.hurry()
        table.poll()
        for job in jobs.values():
            job.go_on()
        jobs["killed"].driver.kill()
        names = {driver.job: driver.name for driver in table.table.drivers}
        with contextlib.suppress(AssertionError):
            eventually(all_told, "all deaths are told", 60.0)
    lost = {d.label: d for d in told if d.what == "actor" and names[d.job].startswith("losses")}
    found = {
        label: (
            lost[label].cause,
            lost[label].witness,
            detail if detail in lost[label].detail else lost[label].detail,
        )
        for label, (_, _, detail) in LOSSES.items()
        if label in lost
    }
    assert found == LOSSES
    ends = {names[d.job].partition("-")[0]: d for d in told if d.what == "driver"}
    assert {how: (d.cause, DRIVERS[how][1] in d.detail) for how, d in ends.items()} == {
        how: (cause, True) for how, (cause, _) in DRIVERS.items()
    }
    began = {d.label: d.cause for d in told if d.cause in NEVER_BEGAN.values()}
    assert began == NEVER_BEGAN
    (raised,) = (d for d in told if d.cause == "exception" and d.what == "actor")
    assert (raised.method, raised.role) == ("Engine.generate", "Engine")


NAMED = {
    "killed": ("driver-dead", "critical", ["driver"], "SIGKILL"),
    "raises": ("driver-dead", "critical", ["driver"], "ValueError"),
    "falls": ("actor-dead", "critical", ["Engine"], "KeyError"),
    "misses": ("actor-dead", "critical", ["misses-other"], "SIGKILL"),
}
"""Kind, severity, culprits and what the reason says."""
UNNAMED = ("interrupted", "finishes", "waits")


def seen(watched: Watched) -> dict[str, tuple[str, str, list[str], str]]:
    found: dict[str, tuple[str, str, list[str], str]] = {}
    for one in watched.ask("incidents", tuple[Incident, ...]):
        how = one.job.partition("-")[0]
        culprits = one.verdict.culprits if one.verdict else ()
        reason = " ".join(culprit.reason for culprit in culprits)
        said = NAMED.get(how, ("", "", [], "?"))[3]
        labels = [culprit.label for culprit in culprits]
        found[how] = (one.kind, one.severity, labels, said if said in reason else reason)
    return found


def test_the_first_that_ended_is_named_and_none_of_the_others(
    ray_cluster: RayCluster, watched: Watched, tmp_path: Path
) -> None:
    with dying(ray_cluster, tmp_path, *NAMED, *UNNAMED) as jobs:
        for job in jobs.values():
            job.go_on()
        jobs["killed"].driver.kill()
        os.kill(jobs["interrupted"].driver.pid, signal.SIGINT)
        eventually(lambda: len(seen(watched)) >= len(NAMED), "the deaths are named", 40.0)
        for how in ("finishes", "interrupted"):
            jobs[how].driver.wait(20)
    assert seen(watched) == NAMED
