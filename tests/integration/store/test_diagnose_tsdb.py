"""Whole jobs through promtool, a real Prometheus and the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from datetime import datetime, timezone
from pathlib import Path

import pytest

from ray_sentinel.cli.main import main
from ray_sentinel.errors import UnreachableError
from ray_sentinel.report.series import read_plots
from ray_sentinel.store.open import open_source
from ray_sentinel.store.prometheus.ports import free_port
from ray_sentinel.store.prometheus.readonly import read_only_prometheus
from ray_sentinel.store.prometheus.tsdb import inspect
from tests.support.diagnosis import faults
from tests.support.parts import require
from tests.support.tsdb_scenarios.catalogue import scenario
from tests.support.tsdb_scenarios.openmetrics import make_tsdb
from tests.support.tsdb_scenarios.truth import Truth

pytestmark = pytest.mark.integration


def job(folder: Path, name: str, seed: int = 5) -> Truth:
    world, truth = scenario(name).make(seed, hosts=2, gpus=4)
    make_tsdb(require("promtool"), world.series(), folder / "prometheus")
    return truth


def answer_of(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    out = capsys.readouterr().out
    return json.loads(out)  # type: ignore[no-any-return]


def who(answer: dict[str, object]) -> list[tuple[str, str]]:
    culprits: list[dict[str, str]] = answer["culprits"]  # type: ignore[assignment]
    return [(one["host"], one["device"]) for one in culprits]


@pytest.mark.parametrize(
    "name", ["hang-network-trigger", "hardware-uncorrectable", "oom-leak", "healthy-plain"]
)
def test_a_finished_jobs_folder(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    truth = job(tmp_path, name)
    before = sorted((p, p.stat().st_mtime_ns) for p in (tmp_path / "prometheus").rglob("*"))
    page, text = tmp_path / "r.html", tmp_path / "r.md"
    binary = ["--prometheus", require("prometheus")]
    plots = tmp_path / "plots.json"
    files = ["--report", str(page), "--plots", str(plots)]
    code = main(["diagnose", str(tmp_path), "--json", *binary, *files])
    answer = answer_of(capsys)
    assert code == (1 if truth.cause else 0)
    assert {one["host"] for one in answer["culprits"]} == truth.hosts  # type: ignore[union-attr, index, call-overload]
    assert {"analysis", "window", "root_cause", "chain", "culprits", "evidence"} <= answer.keys()
    assert len(answer["window"]) == 2  # type: ignore[arg-type]
    assert "<svg" in page.read_text()
    assert {"step time", "training step"} <= {plot.title for plot in read_plots(plots.read_bytes())}
    assert "<script" not in page.read_text()
    main(["diagnose", str(tmp_path / "prometheus"), "--json", *binary, "--report", str(text)])
    assert text.read_text().startswith("## TSDB Diagnosis: ")
    after = sorted((p, p.stat().st_mtime_ns) for p in (tmp_path / "prometheus").rglob("*"))
    assert after == before


def test_the_same_through_a_url(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job(tmp_path, "network-one-link")
    binary = require("prometheus")
    with read_only_prometheus(tmp_path / "prometheus", binary=binary) as (url, _, _):
        main(["diagnose", url, "--json"])
        by_url = answer_of(capsys)
    with pytest.raises(UnreachableError), open_source(url):
        pass
    main(["diagnose", str(tmp_path), "--json", "--prometheus", binary])
    by_folder = answer_of(capsys)
    assert by_url["cause"] == by_folder["cause"]
    assert who(by_url) == who(by_folder)


def test_the_answer_equals_the_one_from_memory(tmp_path: Path) -> None:
    from ray_sentinel.diagnose.examine import examine

    truth = job(tmp_path, "gpu-throttle")
    with open_source(str(tmp_path), binary=require("prometheus")) as opened:
        report = examine(opened.source)
    assert not faults(truth, report.diagnosis)


def test_a_port_that_somebody_holds_is_left_alone(tmp_path: Path) -> None:
    job(tmp_path, "healthy-plain")
    binary = require("prometheus")
    with (
        read_only_prometheus(tmp_path / "prometheus", binary=binary) as (first, _, _),
        read_only_prometheus(tmp_path / "prometheus", binary=binary) as (second, _, _),
    ):
        assert first != second
        assert free_port() not in {int(url.rsplit(":", 1)[1]) for url in (first, second)}


def test_a_corrupt_block_is_left_out_and_named(tmp_path: Path) -> None:
    job(tmp_path, "healthy-plain")
    data = tmp_path / "prometheus"
    world, _ = scenario("healthy-plain").make(9, hosts=2, gpus=2)
    world.times = world.times + 86400.0
    make_tsdb(require("promtool"), world.series(), data)
    bad = next(path for path in sorted(data.iterdir()) if path.is_dir())
    index = (bad / "index").read_bytes()
    (bad / "index").write_bytes(index[: len(index) // 2])
    with open_source(str(tmp_path), binary=require("prometheus")) as opened:
        assert any(bad.name in note for note in opened.source.notes)
        assert opened.source.families()


def test_nothing_of_ours_outlives_a_killed_diagnosis(tmp_path: Path) -> None:
    job(tmp_path, "healthy-plain")
    script = (
        "import sys, time\nfrom pathlib import Path\n"
        "from ray_sentinel.store.prometheus.readonly import read_only_prometheus\n"
        "with read_only_prometheus(Path(sys.argv[1]), binary=sys.argv[2]) as (url, *_):\n"
        "    print(url, flush=True); time.sleep(60)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "prometheus"), require("prometheus")],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    url = child.stdout.readline().strip()
    child.kill()
    child.wait(timeout=10)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            urllib.request.urlopen(f"{url}/-/ready", timeout=1).close()
        except OSError:
            return
        time.sleep(0.1)
    pytest.fail("the read-only Prometheus still answers")


def test_a_live_jobs_data_are_copied_and_the_missing_tail_named(tmp_path: Path) -> None:
    job(tmp_path, "healthy-plain")
    data = tmp_path / "prometheus"
    (data / "wal").mkdir()
    (data / "wal" / "00000000").write_bytes(b"\0" * 32768)
    os.utime(data / "wal" / "00000000")
    assert inspect(data).live
    with open_source(str(tmp_path), binary=require("prometheus")) as opened:
        assert opened.source.families()
        assert any("live job" in note for note in opened.source.notes)


def test_the_log_beside_the_data_names_the_heartbeat(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    truth = job(tmp_path / "123-job", "heartbeat-clean")
    said = dict(truth.options)
    crash = datetime.fromtimestamp(float(said["crash_at"]), tz=timezone.utc)  # type: ignore[arg-type]
    task = int(said["accused"][0].removeprefix("node")) - 1  # type: ignore[index]
    (tmp_path / "123-job.log").write_text(
        "NNODES=2\nNODE_LIST=node001,node002\n"
        f"Config param jax_distributed_heartbeat_timeout_seconds: {said['heartbeat_timeout']:.0f}\n"
        + "".join(f"completed step: {n}, seconds: 9.0, loss: 2.0\n" for n in range(1, 50))
        + f"{crash:%Y-%m-%d %H:%M:%S}.000000: E coordination_service_agent.cc:1] The following "
        "tasks are unhealthy (stopped sending heartbeats):\n"
        f"/job:jax_worker/replica:0/task:{task}\n"
    )
    main(["diagnose", str(tmp_path / "123-job"), "--json", "--prometheus", require("prometheus")])
    answer = answer_of(capsys)
    assert answer["analysis"] == "heartbeat"
    assert answer["cause"] == "heartbeat-false-positive"
    assert answer["culprits"] == []
    assert "confirm" in str(answer["triage"])
