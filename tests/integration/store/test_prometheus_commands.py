"""`ray-sentinel prometheus view` and `start` as programs, closed in every way that there is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ray_sentinel.store.prometheus.job import JobPrometheus
from ray_sentinel.store.prometheus.tsdb import lock_holder
from tests.support.parts import require
from tests.support.scraped import Agent, until, values

pytestmark = pytest.mark.integration


@pytest.fixture
def agent() -> Iterator[Agent]:
    with Agent() as running:
        running.pages["/sd"] = json.dumps([{"targets": [running.place], "labels": {}}])
        yield running
        running.shutdown()


@pytest.fixture
def live(tmp_path: Path, agent: Agent) -> Iterator[JobPrometheus]:
    """A job's Prometheus that has scraped something, and goes on."""
    server = JobPrometheus(tmp_path / "prometheus", binary=require("prometheus"), port=9490)
    until(server.ready, "it answers", lambda: server.step((agent.place,), {}))
    until(lambda: values(server.url, "hw_load1[1m]"), "gauges")
    yield server
    server.close()


class Command:
    """`ray-sentinel prometheus ...` as a process, with temporary files in a folder of its own."""

    def __init__(self, scratch: Path, *arguments: str) -> None:
        scratch.mkdir(exist_ok=True)
        self.scratch = scratch
        program = [sys.executable, "-m", "ray_sentinel.cli.main", "prometheus", *arguments]
        self.process = subprocess.Popen(
            [*program, "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(scratch)},
        )

    def answer(self) -> dict[str, Any]:
        """The JSON that it prints when it is ready."""
        assert self.process.stdout is not None
        text = ""
        while line := self.process.stdout.readline():
            text += line
            if line.rstrip() == "}":
                return dict(json.loads(text))
        raise AssertionError(f"it ended: {text} {self.process.communicate()}")

    def close(self, how: signal.Signals) -> int:
        self.process.send_signal(how)
        return self.process.wait(timeout=30)

    def left(self) -> list[Path]:
        """What of its temporary files is there."""
        return [path for path in self.scratch.iterdir() if path.name.startswith("ray-sentinel")]


def servers_over(folder: Path) -> list[str]:
    """Command lines of the processes that name a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if f"--storage.tsdb.path={folder}" in line:
            found.append(line)
    return found


@pytest.mark.parametrize(
    ("how", "status"), [(signal.SIGINT, 0), (signal.SIGTERM, 0), (signal.SIGHUP, 0)]
)
def test_a_view_is_closed_without_a_trace(
    how: signal.Signals, status: int, live: JobPrometheus, tmp_path: Path
) -> None:
    live.close()
    files = sorted(path for path in tmp_path.rglob("*"))
    view = Command(tmp_path / "tmp", "view", str(tmp_path), "--binary", require("prometheus"))
    assert values(view.answer()["url"], "hw_load1[10m]")
    assert view.left()
    assert view.close(how) == status
    assert not view.left()
    assert not servers_over(view.scratch)
    (tmp_path / "tmp").rmdir()
    assert sorted(path for path in tmp_path.rglob("*")) == files


def test_a_view_that_is_killed_leaves_nothing_either(live: JobPrometheus, tmp_path: Path) -> None:
    view = Command(tmp_path / "tmp", "view", str(tmp_path), "--binary", require("prometheus"))
    view.answer()
    view.close(signal.SIGKILL)
    until(lambda: not servers_over(view.scratch), "its Prometheus has gone")
    until(lambda: not view.left(), "its files have gone")
    assert live.ready()


def test_a_view_is_closed_while_it_opens(live: JobPrometheus, tmp_path: Path) -> None:
    view = Command(tmp_path / "tmp", "view", str(tmp_path), "--binary", require("prometheus"))
    until(lambda: view.left() or view.process.poll() is not None, "it began")
    assert view.close(signal.SIGTERM) == 0
    until(lambda: not view.left() and not servers_over(view.scratch), "nothing is left")


def test_a_live_jobs_data_are_read_from_a_copy(
    live: JobPrometheus, agent: Agent, tmp_path: Path
) -> None:
    data = tmp_path / "prometheus" / "data"
    lock = data / "lock"
    before = (lock.stat().st_ino, lock.stat().st_mtime_ns, lock_holder(lock))
    assert before[2] == live.pid
    view = Command(tmp_path / "tmp", "view", str(tmp_path), "--binary", require("prometheus"))
    opened = view.answer()
    assert values(opened["url"], "hw_load1[10m]"), "also what is in the write-ahead log only"
    assert any("what was scraped after now is missing" in note for note in opened["notes"])
    assert (lock.stat().st_ino, lock.stat().st_mtime_ns, lock_holder(lock)) == before
    seen = len(values(live.url, "hw_load1[10m]"))
    assert view.close(signal.SIGINT) == 0
    until(lambda: len(values(live.url, "hw_load1[10m]")) > seen, "the job's own goes on")


def test_a_job_can_be_watched_by_hand(agent: Agent, tmp_path: Path) -> None:
    folder = tmp_path / "job"
    arguments = ("start", str(folder), "--sd", f"http://{agent.place}/sd")
    options = ("--binary", require("prometheus"), "--ray-temp-dir", str(tmp_path))
    ray = tmp_path / "prom_metrics_service_discovery.json"
    ray.write_text(json.dumps([{"labels": {"job": "ray"}, "targets": [agent.place]}]))
    started = Command(tmp_path / "tmp", *arguments, *options, "--port", "9590")
    url = started.answer()["url"]
    until(lambda: values(url, 'hw_load1{job="ray_sentinel"}[1m]'), "it scrapes the agents")
    until(lambda: values(url, 'up{job="ray",host="127.0.0.1"}[1m]'), "and Ray, by host")
    with urllib.request.urlopen(f"{url}/api/v1/rules", timeout=10) as answer:
        groups = {group["name"] for group in json.load(answer)["data"]["groups"]}
    assert "ray_sentinel_sentinel" in groups
    assert started.close(signal.SIGINT) == 0
    assert not servers_over(folder / "prometheus" / "data")
    assert lock_holder(folder / "prometheus" / "data" / "lock") == 0


def test_what_cannot_be_started_is_said(tmp_path: Path) -> None:
    scratch = tmp_path / "tmp"
    sd = ("--sd", "http://127.0.0.1:1/sd", "--binary", require("prometheus"))
    nobody = Command(scratch, "start", str(tmp_path), *sd)
    assert nobody.process.wait(timeout=60) == 3
    assert nobody.process.stdout is not None
    assert "does not answer" in json.loads(nobody.process.stdout.read())["error"]
    empty = Command(scratch, "view", str(tmp_path), "--binary", require("prometheus"))
    assert empty.process.wait(timeout=60) == 2
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    none = Command(scratch, "view", str(folder / "none"))
    assert none.process.wait(timeout=60) == 2
