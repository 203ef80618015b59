"""A real Prometheus, started, watched, restarted and ended as a job's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ray_sentinel.errors import ConfigError, MissingPartError
from ray_sentinel.store.alerts_and_dashboards import rules_file
from ray_sentinel.store.prometheus.job import JobPrometheus
from ray_sentinel.store.prometheus.readonly import read_only_prometheus
from ray_sentinel.store.prometheus.scrape_config import TargetDiscovery, scrape_config
from tests.support.parts import require
from tests.support.scraped import Agent, until, values

pytestmark = pytest.mark.integration


@pytest.fixture
def agent() -> Iterator[Agent]:
    with Agent() as running:
        yield running
        running.shutdown()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[JobPrometheus]:
    server = JobPrometheus(tmp_path / "prometheus", binary=require("prometheus"))
    yield server
    server.close()


def test_scrapes_agents_and_keeps_steps_at_their_times(job: JobPrometheus, agent: Agent) -> None:
    old = round(time.time()) - 20 * 86400
    stamps = [old, old + 1, time.time() - 600]
    agent.pages["/steps"] = "".join(
        f'tb_step{{host="node1",attempt="0"}} {number} {round(stamp * 1000)}\n'
        for number, stamp in enumerate(stamps)
    )
    job.step((agent.place,), {})
    until(job.ready, "it answers")
    step = lambda: job.step((agent.place,), {})  # noqa: E731
    until(lambda: values(job.url, 'hw_load1{host="node1",job="ray_sentinel"}[1m]'), "gauges", step)
    found = until(lambda: values(job.url, "tb_step[30d]"), "steps", step)
    assert [value for _, value in sorted(found)] == [0, 1, 2]
    assert [stamp for stamp, _ in sorted(found)] == pytest.approx(stamps, abs=0.001)
    assert {value for _, value in values(job.url, "up[1m]")} == {1.0}


def test_restarted_after_it_was_killed(job: JobPrometheus, agent: Agent) -> None:
    job.step((agent.place,), {})
    first = job.pid
    assert first is not None
    until(job.ready, "it answers")
    os.kill(first, signal.SIGKILL)
    until(lambda: job.pid not in (None, first), "restarted", lambda: job.step((agent.place,), {}))
    until(job.ready, "it answers again")
    assert job.restarts == 1
    assert any("restarted 1 times" in note for note in job.notes)
    assert any("status -9" in note for note in job.notes)


def test_what_was_scraped_is_there_after_the_end(
    job: JobPrometheus, agent: Agent, tmp_path: Path
) -> None:
    job.step((agent.place,), {})
    until(job.ready, "it answers")
    until(lambda: values(job.url, "hw_load1[1m]"), "gauges")
    pid = job.pid
    job.close()
    assert not Path(f"/proc/{pid}").exists()
    job.step((agent.place,), {})
    assert job.pid is None, "a closed one is not started again"
    data = tmp_path / "prometheus" / "data"
    with read_only_prometheus(data, binary=require("prometheus")) as (url, _, _):
        assert values(url, "hw_load1[10m]")


def test_a_taken_port_is_left_to_its_owner(tmp_path: Path) -> None:
    with Agent() as owner:
        server = JobPrometheus(tmp_path / "p", binary=require("prometheus"), port=owner.server_port)
        try:
            server.step((), {})
            assert server.url
            assert not server.url.endswith(f":{owner.server_port}")
            assert any("is taken" in note for note in server.notes)
        finally:
            server.close()
            owner.shutdown()


def test_data_that_another_holds_are_waited_for(job: JobPrometheus, tmp_path: Path) -> None:
    job.step((), {})
    until(job.ready, "it answers")
    other = JobPrometheus(tmp_path / "prometheus", binary=require("prometheus"))
    # Where the kernel tells who holds it, it is not even tried; else Prometheus itself refuses.
    try:
        until(
            lambda: other.pid is None and any("hold" in n or "lock" in n for n in other.notes),
            "refused",
            lambda: other.step((), {}),
        )
    finally:
        other.close()
    assert job.ready()


def test_dies_with_whoever_started_it(tmp_path: Path) -> None:
    program = (
        "import sys, time\nfrom pathlib import Path\n"
        "from ray_sentinel.store.prometheus.job import JobPrometheus\n"
        "server = JobPrometheus(Path(sys.argv[1]), binary=sys.argv[2])\n"
        "server.step((), {})\nprint(server.pid, flush=True)\ntime.sleep(600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "p"), require("prometheus")],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait(timeout=10)
    until(lambda: not Path(f"/proc/{pid}").exists(), "it has gone too")


def test_what_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(MissingPartError, match="not a program"):
        JobPrometheus(tmp_path, binary=str(tmp_path / "none"))
    with pytest.raises(ConfigError, match=r"prometheus\.retention"):
        JobPrometheus(tmp_path, binary=require("prometheus"), retention="forever")


@pytest.mark.parametrize("dashboard", ["", "http://head:8265"])
@pytest.mark.parametrize("kind", ["http", "file"])
def test_promtool_takes_the_configuration(kind: Any, dashboard: str, tmp_path: Path) -> None:
    (tmp_path / "agents.json").write_text("[]")
    where = TargetDiscovery(
        kind=kind,
        agents=str(tmp_path / "agents.json") if kind == "file" else "http://node1:9400/sd",
        ray=str(tmp_path / "ray.json"),
        ray_dashboard=dashboard,
        ray_token_file=str(tmp_path / "agents.json") if dashboard else "",
        hosts={"10.0.0.1": "node1", "fe80::1": 'a"b'},
    )
    path = tmp_path / "prometheus.yml"
    (tmp_path / "own.rules.yml").write_text(rules_file())
    path.write_text(scrape_config(where, rules=[str(tmp_path / "own.rules.yml")]))
    checked = subprocess.run(
        [require("promtool"), "check", "config", str(path)], capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
