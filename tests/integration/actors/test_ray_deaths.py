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
from typing import NamedTuple

import pytest

from ray_sentinel.actors.coordinator.ray.deaths import ControlStoreDeaths, RayDeathWatch
from ray_sentinel.actors.coordinator.ray.store import RayStore
from ray_sentinel.actors.coordinator.ray.table import RayTable
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
        with open(folder / f"{how}.out", "wb") as out:
            self.driver = subprocess.Popen(
                [sys.executable, "-W", "ignore", script, str(self._ready)],
                env=cluster.environ(),
                stdout=out,
                stderr=subprocess.STDOUT,
                # A test runner in the background ignores Ctrl-C, and so would its children.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
            )

    def until_ready(self) -> None:
        eventually(self._ready.exists, f"the actors of {self.how} live", 120.0)

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


NAMED = {
    "killed": ("driver-dead", "critical", ["driver"], "SIGKILL"),
    "raises": ("driver-dead", "critical", ["driver"], "ValueError"),
    "falls": ("actor-dead", "critical", ["Engine"], "KeyError"),
    "misses": ("actor-dead", "critical", ["misses-other"], "SIGKILL"),
    "crushed": ("actor-dead", "critical", ["task"], "was killed"),
    "hidden": ("actor-dead", "critical", ["task"], "was killed"),
    "parts": ("actor-dead", "critical", ["task"], "exited with status 0"),
    "leaves": ("actor-dead", "critical", ["task"], "exited with status 0"),
}
"""Kind, severity, culprits and what the reason says."""
UNNAMED = ("interrupted", "finishes", "waits")


def seen(watched: Watched) -> dict[str, tuple[str, str, list[str], str]]:
    found: dict[str, tuple[str, str, list[str], str]] = {}
    for one in watched.ask("incidents", tuple[Incident, ...]):
        how = one.job.partition("-")[0]
        if how not in (*NAMED, *UNNAMED):
            continue  # another test's, on the same machine
        culprits = one.verdict.culprits if one.verdict else ()
        reason = " ".join(culprit.reason for culprit in culprits)
        said = NAMED.get(how, ("", "", [], "?"))[3]
        labels = [culprit.label for culprit in culprits]
        found[how] = (one.kind, one.severity, labels, said if said in reason else reason)
    return found


LAST_LINES = {
    ("misses", "misses-other"): "the engine is up",
    ("raises", "driver"): "ValueError: no data",
}
"""What an actor that was killed wrote last, by Ray's own file of it, and a driver that raised."""


def quoted(watched: Watched) -> dict[tuple[str, str], str]:
    """The last lines in the bundles, or why there are none, by job and who wrote them."""
    return {
        (one.job.partition("-")[0], log.who): "\n".join(log.lines) or log.missing
        for one in watched.ask("incidents", tuple[Incident, ...])
        for log in one.logs
    }


def seen_idle(watched: Watched) -> set[tuple[str, str]]:
    """Job and actor, of those whose processes an agent has seen: Ray alone tells of no rest."""
    jobs = watched.status().jobs
    members = ((job.job.partition("-")[0], m) for job in jobs for m in job.members)
    return {(job, member.label) for job, member in members if member.state == "idle"}


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
    "crushed": ("exception", ""),
    "hidden": ("exception", ""),
    "parts": ("exception", ""),
    "leaves": ("exception", ""),
    "unheard": ("exception", ""),
}
LIVED = {("losses", name) for name in LOSSES} | {
    (how, name) for how in DRIVERS for name in (how, f"{how}-other")
}
"""Job and actor, before anything ends."""
NEVER_BEGAN = {"broken": "constructor", "bare": "runtime-env"}
"""Actors that their drivers failed by."""


class Scene(NamedTuple):
    """What comes of all jobs, which end at the same time."""

    told: list[RayDeath]
    """By Ray's control store alone."""
    of: dict[str, str]
    """What the jobs are called here, by Ray's names of them."""
    seen: dict[str, tuple[str, str, list[str], str]]
    """By the coordinator."""
    lines: dict[tuple[str, str], str]


@pytest.fixture(scope="module")
def scene(
    ray_cluster: RayCluster,
    watched_by_files: Watched,
    tmp_path_factory: pytest.TempPathFactory,
) -> Scene:
    """It judges nothing: a test does, of what it is about."""
    watched, told = watched_by_files, list[RayDeath]()
    store = RayStore(ray_cluster.address)
    deaths = RayDeathWatch(ControlStoreDeaths(store), told.extend)
    table = RayTable(store, deaths.set_table)
    members = {(how, name) for how in (*NAMED, *UNNAMED) for name in (how, f"{how}-other")}

    of: dict[str, str] = {}

    def all_seen() -> bool:
        table.poll()
        of.update({d.job: d.name.partition("-")[0] for d in table.table.drivers})
        living = {(of.get(a.job), a.label) for a in table.table.actors if a.pid}
        return living >= LIVED and members <= seen_idle(watched)

    def all_told() -> bool:
        table.poll()
        deaths.poll()
        ended = {death.label for death in told}
        drivers = {of.get(death.job) for death in told if death.what == "driver"}
        return ended >= LOSSES.keys() and drivers >= DRIVERS.keys()

    def all_named() -> bool:
        all_told()
        return len(seen(watched)) >= len(NAMED)

    def all_captured() -> bool:
        return LAST_LINES.keys() <= quoted(watched).keys()

    hows = dict.fromkeys(("losses", *DRIVERS, *NAMED, *UNNAMED))
    with store, dying(ray_cluster, tmp_path_factory.mktemp("dying"), *hows) as jobs:
        eventually(all_seen, "all actors are seen", 60.0)
        for job in jobs.values():
            job.go_on()
        jobs["killed"].driver.kill()
        os.kill(jobs["interrupted"].driver.pid, signal.SIGINT)
        with contextlib.suppress(AssertionError):
            eventually(all_named, "the deaths are named", 120.0)
            for how in ("finishes", "interrupted"):
                jobs[how].driver.wait(20)
        with contextlib.suppress(AssertionError):
            eventually(all_told, "all deaths are told", 60.0)
        with contextlib.suppress(AssertionError):
            eventually(all_captured, "captures", 60.0)
        return Scene(told, of, seen(watched), quoted(watched))


def test_the_control_store_tells_one_cause_for_each(scene: Scene) -> None:
    told, of = scene.told, scene.of
    lost = {d.label: d for d in told if d.what == "actor" and of[d.job] == "losses"}
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
    ends = {of[d.job]: d for d in told if d.what == "driver" and of[d.job] in DRIVERS}
    assert {how: (d.cause, DRIVERS[how][1] in d.detail) for how, d in ends.items()} == {
        how: (cause, True) for how, (cause, _) in DRIVERS.items()
    }
    began = {d.label: d.cause for d in told if d.cause in NEVER_BEGAN.values()}
    assert began == NEVER_BEGAN
    workers = {of[d.job]: d for d in told if d.what == "worker"}
    crushed = {how: (d.cause, d.label, d.pid > 0) for how, d in workers.items()}
    # What has asked and its driver end before the call is told everywhere, maybe.
    cause, label, has_pid = crushed.pop("unheard")
    assert (cause, label in ("crush", "task"), has_pid) == ("signal", True, True)
    assert crushed == {
        "crushed": ("signal", "crush", True),
        "hidden": ("signal", "crush", True),
        "parts": ("exited", "part", True),
        "leaves": ("exited", "leave", True),
    }
    (raised,) = (d for d in told if d.cause == "exception" and d.what == "actor")
    assert (raised.method, raised.role) == ("Engine.generate", "Engine")


def test_the_first_that_ended_is_named_and_none_of_the_others(scene: Scene) -> None:
    assert scene.seen == NAMED
    for who, said in LAST_LINES.items():
        assert said in scene.lines[who], scene.lines
