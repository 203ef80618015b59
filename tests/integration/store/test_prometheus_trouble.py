"""What goes wrong around a job's Prometheus: it is said, and everything else goes on."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ray_sentinel.clock import FakeClock
from ray_sentinel.store.prometheus import job as job_prometheus
from ray_sentinel.store.prometheus.job import JobPrometheus
from tests.support.parts import require
from tests.support.scraped import until
from tests.support.small_disk import small_disk as mounted

pytestmark = pytest.mark.integration


@pytest.fixture
def job(tmp_path: Path) -> Iterator[JobPrometheus]:
    server = JobPrometheus(tmp_path / "prometheus", binary=require("prometheus"), port=9490)
    yield server
    server.close()


def pretender(folder: Path, version: str, flags: str, body: str) -> str:
    """A program that says that it is a Prometheus, and does what ``body`` says."""
    path = folder / "bin" / "prometheus"
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        "#!/bin/sh\n"
        f'case "$1" in --version) echo "prometheus, version {version} (x)"; exit;;\n'
        f'--help) echo "{flags}"; exit;; esac\n{body}\n'
    )
    path.chmod(0o755)
    return str(path)


def rule_groups(job: JobPrometheus) -> set[str]:
    with urllib.request.urlopen(f"{job.url}/api/v1/rules", timeout=10) as answer:
        return {group["name"] for group in json.load(answer)["data"]["groups"]}


def configuration(folder: Path) -> Any:
    return yaml.safe_load((folder / "prometheus.yml").read_text())


def stepping(job: JobPrometheus) -> Callable[[], None]:
    return lambda: job.step((), {})


def test_one_that_always_ends_is_started_ever_more_rarely(tmp_path: Path) -> None:
    clock = FakeClock()
    binary = pretender(tmp_path, "2.53.4", "--log.level=info", "echo 'fatal: no luck' >&2; exit 7")
    server = JobPrometheus(tmp_path / "p", binary=binary, clock=clock)
    pauses = []
    for restarts in range(1, 10):
        server.step((), {})
        until(lambda n=restarts: server.restarts == n, "it ended", stepping(server))
        assert any("status 7" in note and "no luck" in note for note in server.notes)
        begun = clock.monotonic()
        while server.pid is None:
            clock.advance(0.5)
            server.step((), {})
        pauses.append(clock.monotonic() - begun)
    server.close()
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]


def test_an_old_one_gets_no_flag_that_it_does_not_know(tmp_path: Path) -> None:
    told = tmp_path / "told"
    body = f'echo "$@" > {told}.new; mv {told}.new {told}; exec sleep 600'
    binary = pretender(tmp_path, "2.30.0", "--log.level=info --storage.tsdb.retention.time", body)
    server = JobPrometheus(tmp_path / "p", binary=binary, max_bytes=1 << 30)
    try:
        server.step(("127.0.0.1:9400",), {})
        until(told.exists, "started")
        flags = {word.split("=")[0] for word in told.read_text().split()}
        assert flags == {
            "--config.file",
            "--storage.tsdb.path",
            "--web.listen-address",
            "--storage.tsdb.retention.time",
            "--log.level",
        }
        config = configuration(tmp_path / "p")
        assert "storage" not in config, "out-of-order samples are of 2.39 and later"
        assert "ray_sentinel_steps" not in {one["job_name"] for one in config["scrape_configs"]}
        assert any("2.30.0 is older than 2.39" in note for note in server.notes)
    finally:
        server.close()


def test_rules_that_are_none_are_left_out_until_they_are_mended(
    job: JobPrometheus, tmp_path: Path
) -> None:
    own = tmp_path / "prometheus" / "rules" / "own.yml"
    own.parent.mkdir(parents=True)
    own.write_text("groups: [{name: own, rules: [{alert: X, expr: 'rate('}]}]")
    until(job.ready, "it runs without them", stepping(job))
    assert any("without the rules in" in note for note in job.notes)
    assert any("own.yml" in note for note in job.notes), "the file is named"
    groups = rule_groups(job)
    assert "ray_sentinel_gpu" in groups
    assert "own" not in groups
    own.write_text("groups: [{name: own, rules: [{alert: X, expr: 'vector(1)'}]}]")
    pid = job.pid
    until(lambda: "own" in rule_groups(job), "the mended ones are read", stepping(job))
    assert job.pid == pid, "without a restart"
    assert not any("without the rules in" in note for note in job.notes)
    own.write_text("groups: no list at all")
    refused = lambda: any("without the rules in" in note for note in job.notes)  # noqa: E731
    until(refused, "wrong again, while it runs", stepping(job))
    assert any("own.yml" in note for note in job.notes)
    assert job.pid == pid
    files = configuration(tmp_path / "prometheus")["rule_files"]
    assert files, "ours stay"
    assert not any(file.endswith("rules/*.yml") for file in files)


def test_a_corrupt_block_is_moved_away(job: JobPrometheus, tmp_path: Path) -> None:
    metrics = tmp_path / "metrics"
    metrics.write_text("# TYPE m gauge\nm 1 1700000000\nm 2 1700000060\n# EOF\n")
    data = tmp_path / "prometheus" / "data"
    data.mkdir(parents=True)
    command = [require("promtool"), "tsdb", "create-blocks-from", "openmetrics"]
    subprocess.run([*command, str(metrics), str(data)], check=True, capture_output=True)
    (block,) = (path for path in data.iterdir() if len(path.name) == 26)
    index = block / "index"
    index.write_bytes(index.read_bytes()[:40])
    until(job.ready, "it runs without the block", stepping(job))
    broken = tmp_path / "prometheus" / "broken" / block.name
    assert (broken / "index").stat().st_size == 40, "nothing is deleted"
    assert not block.exists()
    assert any(str(broken) in note for note in job.notes)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 80 MiB."""
    with mounted(tmp_path / "small", "80m") as folder:
        yield folder


def fill(path: Path) -> None:
    """Take what is left of a disk, to the last byte."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError as error:
                assert error.errno == errno.ENOSPC


def scraped_after(job: JobPrometheus, moment: float) -> bool:
    """Whether it stored a sample of its target after a moment; not while it does not answer."""
    if not job.ready():
        return False
    url = f"{job.url}/api/v1/query?query=timestamp(up)"
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            found = json.load(answer)["data"]["result"]
    except OSError:
        return False
    return any(float(series["value"][1]) > moment for series in found)


def test_a_full_disk_is_said_and_survived(small_disk: Path) -> None:
    server = JobPrometheus(small_disk / "p", binary=require("prometheus"), port=9490)
    try:
        step = lambda: server.step(("127.0.0.1:1",), {})  # noqa: E731
        until(server.ready, "it answers", step)
        until(lambda: scraped_after(server, 0.0), "it stores")
        assert not any(" left" in note for note in server.notes)
        filler = small_disk / "filler"
        fill(filler)
        server.step(("127.0.0.1:2",), {})
        assert any("MiB left" in n or "No space left" in n for n in server.notes), server.notes
        filler.unlink()
        moment = time.time()
        until(lambda: scraped_after(server, moment), "it stores again", step)
        assert not any(" left" in note or "cannot be written" in note for note in server.notes)
    finally:
        server.close()


def test_one_whose_files_may_not_grow(tmp_path: Path) -> None:
    """As on a full disk, but by a limit of the process: it ends, and that is said."""
    real = require("prometheus")
    wrapper = tmp_path / "bin" / "prometheus"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nulimit -f 0\nexec {real} "$@"\n')
    wrapper.chmod(0o755)
    server = JobPrometheus(tmp_path / "p", binary=str(wrapper), port=9490)
    try:
        until(lambda: server.restarts >= 2, "it ended twice", stepping(server))
        assert any("restarted" in note for note in server.notes)
        assert any("ended with status" in note for note in server.notes)
    finally:
        server.close()


def test_every_end_is_logged_with_its_status(
    job: JobPrometheus, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger=job_prometheus.__name__)
    until(job.ready, "it answers", stepping(job))
    pid = job.pid
    assert pid is not None
    os.kill(pid, 9)
    until(lambda: job.restarts == 1, "its end is seen", stepping(job))
    until(lambda: job.pid not in (None, pid), "it is started again", stepping(job))
    last = job.pid
    until(job.ready, "it answers again", stepping(job))
    job.close()
    said = [record.getMessage() for record in caplog.records]
    assert any(f"(pid {pid}) ended with status -9" in text for text in said)
    assert any(f"started, pid {last}, http://127.0.0.1:" in text for text in said)
    assert any(f"(pid {last}) ended with status 0" in text for text in said)
