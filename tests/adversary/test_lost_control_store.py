"""Ray's control store (GCS) hangs, or is killed with its state nowhere else, and a new, empty one
comes, or none: what goes on, what is lost, and what stays. See docs/deployment.md, "When Ray's
control store is away"."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ray_sentinel.actors.coordinator.event_log.recovery import restore
from ray_sentinel.actors.coordinator.fleet import AWAY
from ray_sentinel.actors.raylets import raylets
from ray_sentinel.config import Config
from ray_sentinel.errors import UnreachableError
from ray_sentinel.model.incident import Incident
from ray_sentinel.model.status import JobStatus, Status
from ray_sentinel.watched_page import WatchedPage
from tests.support.living import alive, descendants
from tests.support.ray_cluster import RayCluster
from tests.support.served import goes_on, last_collected, served_steps
from tests.support.supervised_run import Run, run_in
from tests.support.waiting import eventually
from tests.support.watched_job import PROGRAM, rank_environ

pytestmark = pytest.mark.integration

GIVES_UP = 20
"""Seconds after which Ray's processes end that cannot reach the store; 60 where nobody says so."""
LOOKS = 5
"""Seconds after which a raylet asks the store again whether its node is known. Where nobody says so
it goes on for most of a minute, and all processes of Ray compute meanwhile."""
OURS = (b"ray::Coordinator", b"ray::Agent", b"ray_sentinel.collect.")
WAITS = "while ! test -e {folder}/fails-$RAY_SENTINEL_ATTEMPT; do sleep 0.1; done; exit 3"


class Scene:
    """A head and one more node, watched; a job of plain processes, one of them stopped, with its
    bundle; and a supervised run. This process joins no cluster: Ray would end it too."""

    def __init__(self, cluster: RayCluster, folder: Path, run: Run) -> None:
        self.cluster, self.folder, self.run = cluster, folder, run
        self.ranks: list[subprocess.Popen[bytes]] = []
        cluster.up_by_command(folder / "log")
        link = json.loads(cluster.run("status", "--link", "--json").stdout)["link"]
        self.page = WatchedPage(link)
        for rank in range(2):
            self.ranks.append(
                subprocess.Popen(
                    [sys.executable, str(PROGRAM), "none", "300", "60"],
                    env=rank_environ("storeless", rank, 2),
                )
            )
        eventually(self.trains, "both ranks train", 60.0)
        urls = [node.metrics_url for node in self.status().nodes]
        self.url = eventually(lambda: next(filter(served_steps, urls), ""), "who serves them")
        self.supervised = run.start(
            *("sh", "-c", WAITS.format(folder=folder)),
            options=("--page", link),
            env={b"RAY_ADDRESS": cluster.address.encode()},
        )
        run.until_it_runs()

    def status(self) -> Status:
        return msgspec.convert(self.page.get_json("/api/v1/status"), Status)

    def trains(self) -> bool:
        jobs = msgspec.convert(self.page.get_json("/api/v1/ranks"), list[JobStatus])
        found = [job for job in jobs if job.job == "storeless"]
        return bool(found) and len(found[0].ranks) == 2 and (found[0].step or 0) > 20

    def bundled(self) -> Incident | None:
        """The incident of the rank that was stopped, once its bundle is written."""
        found = msgspec.convert(self.page.get_json("/api/v1/incidents"), list[Incident])
        return next((one for one in found if one.bundle and one.state == "explained"), None)

    def fresh(self) -> bool:
        """Every node's report is new, to a coordinator that answers."""
        try:
            nodes = self.status().nodes
        except UnreachableError:
            return False
        ages = [node.snapshot_age_seconds for node in nodes]
        return len(ages) == 2 and all(age is not None and age < 3.0 for age in ages)

    def ours(self, *names: bytes) -> dict[int, bytes]:
        """Coordinator, agents and collectors of this cluster, by pid."""
        found = {}
        for pid in descendants(os.getpid()):
            try:
                line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
            except OSError:
                continue
            if any(name in line for name in names or OURS):
                found[pid] = line[:80]
        return found

    def command(self, *words: str) -> tuple[int, str, float]:
        """(Exit code, standard error, seconds) of one of our commands."""
        begun = time.monotonic()
        ended = self.cluster.run(*words)
        assert "Traceback" not in ended.stderr, ended.stderr
        return ended.returncode, ended.stderr, time.monotonic() - begun

    def close(self) -> None:
        for rank in self.ranks:
            rank.kill()
            rank.wait()


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    with monkeypatch.context() as patch:
        patch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", str(GIVES_UP))
        patch.setenv("RAY_raylet_liveness_self_check_interval_ms", str(1000 * LOOKS))
        cluster = RayCluster(addresses=("127.0.0.2",))
    made: Scene | None = None
    try:
        with run_in(tmp_path) as run:
            made = Scene(cluster, tmp_path, run)
            yield made
    finally:
        if made is not None:
            made.close()
        cluster.stop()


def assert_it_holds_up_reports_alone(scene: Scene) -> None:
    """A store that hangs: an agent whose coordinator was killed looks it up, which takes as long as
    the store does."""
    (coordinator,) = scene.ours(b"ray::Coordinator")
    agents = scene.ours(b"ray::Agent")
    store = scene.cluster.control_store_pid
    os.kill(store, signal.SIGSTOP)
    try:
        os.kill(coordinator, signal.SIGKILL)
        eventually(lambda: not alive(coordinator), "the coordinator has ended")
        collected = last_collected(scene.url)
        goes_on(scene.url, "0", times=5)
        eventually(lambda: last_collected(scene.url) > collected, "it collects", 10.0)
    finally:
        os.kill(store, signal.SIGCONT)
    eventually(scene.fresh, "all report to a coordinator again", 30.0, every=0.5)
    assert scene.ours(b"ray::Agent").keys() == agents.keys(), "and none was started again"


@pytest.mark.timeout(400)
def test_a_store_that_hangs_and_what_is_lost_with_it_later_and_what_stays(scene: Scene) -> None:
    """Nobody starts it again."""
    assert_it_holds_up_reports_alone(scene)
    scene.ranks[1].send_signal(signal.SIGSTOP)
    incident = eventually(scene.bundled, "a bundle", 60.0)
    ours, address = scene.ours(), scene.cluster.address
    before = settled(Path(incident.bundle))

    scene.cluster.lose_control_store()
    goes_on(scene.url, "0", times=2)
    eventually(lambda: AWAY in scene.status().notes, "the page says so", 15.0)
    code, said, seconds = scene.command("status", "--address", address)
    assert code == 3
    assert f"no Ray cluster answers; tried: {address}" in said
    assert "Remedy: start one with `ray start --head`" in said
    assert seconds < 15

    eventually(lambda: not any(map(alive, ours)), "all of ours has ended", 90.0, every=0.5)
    code, said, seconds = scene.command("status", "--address", address)
    assert code == 3
    assert "`ray start --head`" in said or raylets(), said
    # Where another cluster has a node here, Ray itself looks for a minute.
    assert seconds < (90 if raylets() else 20)
    assert scene.ranks[0].poll() is None, "ranks that are no workers of Ray go on"
    after = {path: path.read_bytes() for path in before}
    assert after == before
    assert_whole(scene.folder / "log", incident)
    assert_supervised(scene)


@pytest.mark.timeout(300)
def test_a_store_that_comes_back_empty_leaves_nothing_of_ours(scene: Scene) -> None:
    """The new store knows no node: the raylets end, and their agents do not outlive them."""
    before = scene.ours()
    scene.cluster.lose_control_store()
    scene.cluster.restore_control_store()
    eventually(lambda: not any(map(alive, before)), "all of ours has ended", 120.0, every=0.5)
    assert not scene.ours(), "and nothing was started again"
    assert all(rank.poll() is None for rank in scene.ranks), "ranks that are no workers go on"
    assert scene.supervised.poll() is None
    for path in (scene.folder / "log" / "logs").glob("*/agent.log"):
        text = path.read_text()
        assert "Traceback" not in text, path
        assert "has ended: this process ends too" in text, path


def settled(bundle: Path) -> dict[Path, bytes]:
    """What is in it once nothing more is written: the page tells of it sooner."""
    found: list[dict[Path, bytes]] = [{}]

    def is_still() -> bool:
        found.append({path: path.read_bytes() for path in bundle.iterdir() if path.is_file()})
        # The stacks come first, and what the time series tell last.
        stacks = b"pyspy_" in found[-1][bundle / "report.md"]
        series = b'"diagnosis"' in found[-1][bundle / "incident.json"]
        return found[-1] == found[-2] and stacks and series

    eventually(is_still, "the bundle is whole", 60.0, every=3.0)
    return found[-1]


def assert_whole(log_dir: Path, incident: Incident) -> None:
    """A coordinator that took this log over would know the incident; the rest can be read."""
    told = msgspec.json.decode((Path(incident.bundle) / "incident.json").read_bytes())
    assert told["id"] == incident.id
    (events,) = (path for path in (log_dir / "events").iterdir() if path.name[0] != ".")
    known = {one.id: one for one in restore(events, Config()).engine.incidents()}
    assert known[incident.id].verdict == incident.verdict
    (history,) = (log_dir / "history").glob("series-*.db")
    with sqlite3.connect(history) as opened:
        assert opened.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    logs = log_dir / "logs"
    for path in (logs / "coordinator.log", *logs.glob("*/agent.log")):
        assert "Traceback" not in path.read_text(), path


def assert_supervised(scene: Scene) -> None:
    """The command runs on; where it fails it is started again, and SIGTERM ends it."""
    run, supervised = scene.run, scene.supervised
    first: dict[str, Any] = run.state()
    assert supervised.poll() is None
    assert alive(first["child"])
    (scene.folder / "fails-0").touch()
    run.until_it_runs(1)
    begun = time.monotonic()
    supervised.terminate()
    code, _, errors = run.end(supervised)
    assert code == 143, errors
    assert time.monotonic() - begun < 15
    assert "Traceback" not in errors
