# ruff: noqa: E501 - log lines are as long as they are
"""A job's time series: how they are reached, what is in them, what must not be believed, and how
two jobs are compared; and the series that are collected."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest

from ray_sentinel.collect.discovery import plugin_files
from ray_sentinel.diagnose import trust
from ray_sentinel.diagnose.examine import examine, take_stock
from ray_sentinel.diagnose.logs import LogFacts, LoggedStep
from ray_sentinel.diagnose.logtext import (
    MainLog,
    count_lines,
    exporter_facts,
    init_waves,
    prometheus_facts,
    worker_facts,
)
from ray_sentinel.diagnose.series import Selector
from ray_sentinel.diagnose.view import View
from ray_sentinel.doctor.check import CheckInput as DoctorCase
from ray_sentinel.doctor.checks.exposure import ExposureCheck, Offer
from ray_sentinel.doctor.checks.exposure import ExposureFacts as Offers
from ray_sentinel.doctor.plan import RunPlan
from ray_sentinel.errors import InputError
from ray_sentinel.report.contract import diagnosis_dict
from ray_sentinel.store.event_files.memory import MemorySource
from ray_sentinel.store.prometheus.api import PrometheusSource
from ray_sentinel.store.prometheus.mirror import mirror_steadily
from ray_sentinel.store.prometheus.ports import free_port
from ray_sentinel.store.prometheus.tsdb import find_database, inspect
from ray_sentinel.store.windows import parse_window
from tests.support.inventory.commands import command
from tests.support.inventory.metrics import served
from tests.support.inventory.planted import slower
from tests.support.inventory.row import Check, Row
from tests.support.inventory.series import Plant, case, nothing, played
from tests.support.tsdb_scenarios.world import World

BLOCK = "01KHV6MFN61MJKZ3ZSYYRYGDGX"
INIT = "init.cc:2095 NCCL WARN MSCCL++: not enabled"


# The data


def database(folder: Path) -> Path:
    """A Prometheus's data folder as a job leaves it."""
    data = folder / "prometheus"
    (data / BLOCK / "chunks").mkdir(parents=True)
    meta = {"ulid": BLOCK, "minTime": 1, "maxTime": 7200000}
    (data / BLOCK / "meta.json").write_text(json.dumps(meta))
    (data / BLOCK / "index").write_bytes(b"\xba\xaa\xd7\x00" + b"\0" * 100)
    (data / BLOCK / "chunks" / "000001").write_bytes(b"\x85\xbd\x40\xdd" + b"\0" * 20)
    (data / "wal").mkdir()
    (data / "wal" / "00000000").write_bytes(b"\0" * 32768)
    (data / "lock").write_text("")
    return data


def _found(folder: Path) -> None:
    data = database(folder)
    assert find_database(folder) == data
    found = inspect(data)
    assert [Path(block.path).name for block in found.blocks] == [BLOCK]
    assert found.wal
    (folder / "empty" / "prometheus").mkdir(parents=True)
    with pytest.raises(InputError):
        find_database(folder / "empty")


def _untouched(folder: Path) -> None:
    data = database(folder)
    before = {path: path.stat().st_mtime_ns for path in sorted(data.rglob("*"))}
    mirror_steadily(data, folder / "copy")
    assert {path: path.stat().st_mtime_ns for path in sorted(data.rglob("*"))} == before
    assert (data / "lock").exists()
    assert not (folder / "copy" / "lock").exists()
    assert (folder / "copy" / BLOCK).exists()


def _port(folder: Path) -> None:
    first = free_port()
    with socket.create_server(("127.0.0.1", first)):
        assert free_port(first) > first
    assert free_port(first) == first


def _timed(folder: Path) -> None:
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            body = b'{"status":"success","data":{"resultType":"matrix","result":[]}}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        source = PrometheusSource(f"http://127.0.0.1:{server.server_address[1]}")
        source.query_range(Selector("hw_gpu_power_watts"), 1000.0, 2000.0, 30.0, "max")
    finally:
        server.shutdown()
        server.server_close()
    (query,) = (parse_qs(urlsplit(path).query) for path in asked if "query" in path)
    assert query["query"][0] == "max_over_time(hw_gpu_power_watts[30000ms])"
    assert float(query["start"][0]) >= 1000.0
    assert float(query["end"][0]) <= 2000.0


def stock(plant: Plant = nothing, logs: LogFacts | None = None):  # type: ignore[no-untyped-def]
    """The inventory of a job."""
    held = case(plant)
    if logs is not None:
        held.logs = logs
    return take_stock(held)


def family(group: str, name: str) -> Check:
    """The series of that kind are counted in their group."""

    def run(folder: Path) -> None:
        groups, other = trust.groups(frozenset({name, "someone_elses_total"}))
        assert groups == {group: 1}
        assert other == ("someone_elses_total",)

    return Check("diagnose: inventory", run)


def _hosts(folder: Path) -> None:
    found = stock()
    assert found.hosts == ("node001", "node002", "node003")
    assert found.gpus == 6


def _span(folder: Path) -> None:
    found = stock()
    assert found.span is not None
    assert found.steps is not None
    assert 2000 < found.span[1] - found.span[0] < 2600


def logged(offset: float = 0.0, factor: float = 1.0) -> LogFacts:
    """The log of the small job, or of another one."""
    world = played()
    steps = tuple(
        LoggedStep(step=float(step) + offset, loss=float(loss) * factor)
        for step, loss in zip(world.numbers, world.scalars["tb_learning_loss"], strict=True)
    )
    return LogFacts(steps=steps)


def _right_job(folder: Path) -> None:
    assert "losses agree" in stock(logs=logged()).right_job
    assert "wrong job" in stock(logs=logged(offset=100_000.0)).right_job
    assert "wrong job" in stock(logs=logged(factor=1.5)).right_job


def window(text: str, lead: float) -> Check:
    """The window begins so many seconds before the end of the data."""

    def run(folder: Path) -> None:
        source = MemorySource()
        times = 1e6 + 10.0 * np.arange(1000)
        source.add("tb_step", {}, times, np.arange(1000.0))
        start, end = parse_window(text, source)
        assert end - start == pytest.approx(lead, abs=40.0)
        assert parse_window("last-1m", source)[0] > start

    return Check("diagnose --window", run)


def _step_time(folder: Path) -> None:
    line = case().line
    early, late = line.time_of(100.0), line.time_of(200.0)
    assert early is not None
    assert late is not None
    assert 400 < late - early < 800
    assert line.time_of(1e9) is None


# The logs beside them


def _waves(folder: Path) -> None:
    def log(*minutes: int) -> list[str]:
        return [f"2026-01-02 03:{minute:02d}:01 {INIT}" for minute in minutes]

    assert init_waves(log(0, 0, 5), 2026) == 2
    assert init_waves(log(0, 0, 5, 9), 2026) == 3


def counted(line: str) -> Check:
    """Lines of that kind in workers' logs are counted, to be compared between jobs."""

    def run(folder: Path) -> None:
        assert sum(count_lines([line, line]).values()) == 2
        assert not count_lines(["2026-01-02 03:00:01 INFO hello"])

    return Check("compare: workers' logs", run)


def worker(line: str) -> Check:
    """A line of a worker's log that bears on the series is told."""

    def run(folder: Path) -> None:
        (fact,) = worker_facts("worker.out", [line, "2026-01-02 03:00:01 INFO hello"])
        assert line in fact.text

    return Check("diagnose: workers' logs", run)


def main_log(line: str, tell: Callable[[LogFacts], object], expected: object) -> Check:
    """What a line of the job's log says, and a log without it does not."""

    def run(folder: Path) -> None:
        found, silent = MainLog("job.log", 2026), MainLog("job.log", 2026)
        found.feed(line.splitlines())
        silent.feed(["2026-01-02 03:00:01 INFO hello"])
        assert tell(found.as_facts()) == expected
        assert tell(silent.as_facts()) != expected

    return Check("diagnose: the job's log", run)


# What is missing, and what must not be believed


def without(*skipped: str) -> Plant:
    """A job in which these series are not there."""

    def plant(world: World) -> None:
        world.skip |= set(skipped)

    return plant


def missing(*skipped: str, says: str, see: str) -> Check:
    """That series are missing is told, and which log may say why."""

    def run(folder: Path) -> None:
        source = MemorySource()
        for name, labels, times, values in played().series():
            if not any(name.startswith(prefix) for prefix in skipped):
                source.add(name, labels, times, values)
        span = source.span()
        assert span is not None
        (text,) = [one for one in trust.missing(View(source, *span)) if says in one]
        assert see in text
        assert not [one for one in stock().missing if says in one]

    return Check("diagnose: inventory", run)


def monitoring(line: str, *says: str, exporter: bool = True) -> Check:
    """A line of an exporter's or a Prometheus's own log explains why series are missing."""

    def run(folder: Path) -> None:
        def facts(*lines: str) -> list[str]:
            found = exporter_facts("x", "a", lines) if exporter else prometheus_facts("x", lines)
            return [one.text for one in found]

        (text,) = facts(line)
        assert not [word for word in says if word not in text], text
        assert facts("all is well") == []

    return Check("diagnose: monitoring's logs", run)


def gap(world: World) -> None:
    """Nobody was scraped for five minutes."""
    world.alive[:, world.after(1200.0, 1500.0)] = False


def _gaps(folder: Path) -> None:
    assert len(stock(gap).gaps) == 1
    assert any("gap" in text for text in stock(gap).warnings)
    assert not stock().gaps


def _unseen(folder: Path) -> None:
    few = stock(logs=LogFacts(arguments={"NNODES": "6"})).warnings
    assert any("only 3 of 6 nodes" in text for text in few)
    assert not any("NNODES" in text for text in stock().warnings)


def _ghosts(folder: Path) -> None:
    source = MemorySource()
    world = played()
    for name, labels, times, values in world.series():
        held = np.array(values, dtype=float)
        if labels.get("host") == "node002" and name.startswith("hw_"):
            late = times >= world.begin + 1200.0
            held[late] = held[np.flatnonzero(late)[0]] if late.any() else held[late]
        source.add(name, labels, times, held)
    assert any(
        "ghosts" in text and "node002" in text for text in examine(source).inventory.warnings
    )
    assert not any("ghosts" in text for text in stock().warnings)


def _plugin(folder: Path) -> None:
    (folder / "fans.py").write_text("one")
    (folder / "_helper.py").write_text("two")
    assert list(plugin_files([folder])) == ["fans.py"]


def _private(folder: Path, what: str, remedy: str) -> None:
    def told(address: str) -> tuple[str, str]:
        facts = Offers((Offer(what, address, 8265),), ("8.8.4.4",))
        (one,) = ExposureCheck().judge(DoctorCase(plan=RunPlan(), seen={"head": facts}))
        return one.outcome, one.remedy

    assert told("10.0.0.1")[0] == "ok"
    assert told("127.0.0.1")[0] == "ok"
    assert told("0.0.0.0")[0] == "failure"
    assert remedy in told("0.0.0.0")[1]


def output(*keys: str) -> Check:
    """A diagnosis as JSON has these."""

    def run(folder: Path) -> None:
        source = MemorySource()
        for name, labels, times, values in played(slower(1.2)).series():
            source.add(name, labels, times, values)
        data = diagnosis_dict(examine(source))
        for key in keys:
            assert data[key] not in (None, "", [], {}), key
        assert "no_such_key" not in data

    return Check("diagnose --json", run)


ROWS = [
    # Safety
    Row(
        "safe.dashboard",
        "Ray's dashboard is on no public address",
        Check(
            "doctor: exposure",
            partial(_private, what="dashboard", remedy="--dashboard-host=127.0.0.1"),
        ),
    ),
    Row(
        "safe.store",
        "nor is its control store",
        Check(
            "doctor: exposure", partial(_private, what="control store", remedy="--node-ip-address")
        ),
    ),
    Row(
        "safe.lock",
        "data and lock of a running Prometheus stay as they are",
        Check("diagnose: data folder", _untouched),
    ),
    Row(
        "safe.exporter",
        "exporters are started anew without touching a rank",
        command("agents", "restart", "node1"),
    ),
    Row(
        "safe.inspect",
        "processes, kernel log and versions of any node, without a shell there",
        command("inspect", "node1", node="node1"),
    ),
    # Reaching the data
    Row(
        "reach.folder",
        "a job's data folder: blocks and a write-ahead log",
        Check("diagnose: data folder", _found),
    ),
    Row(
        "reach.live",
        "a running job's Prometheus is asked itself",
        command("diagnose", "http://127.0.0.1:9190", source="http://127.0.0.1:9190"),
    ),
    Row("reach.port", "a port that nobody holds, from 9190 up", Check("diagnose: ports", _port)),
    Row(
        "reach.view",
        "a finished job's data in a Prometheus of its own",
        command("prometheus", "view", "/jobs/1/prometheus"),
    ),
    Row(
        "reach.several",
        "several jobs beside each other",
        command("compare", "/jobs/1", "/jobs/2", jobs=["/jobs/1", "/jobs/2"]),
    ),
    Row(
        "reach.time",
        "queries name their time: data of a finished job end in the past",
        Check("diagnose: queries", _timed),
    ),
    Row(
        "reach.logs",
        "logs that lie elsewhere",
        command("diagnose", "/jobs/1", "--logs", "/logs/1", logs="/logs/1"),
    ),
    # What is there
    *(
        Row(f"stock.{name.split('_')[1]}-{number}", f"{name}* is told", family(group, name))
        for number, (group, name) in enumerate(
            (
                ("GPU", "hw_gpu_power_watts"),
                ("TCP", "hw_tcp_retransmits_total"),
                ("RDMA", "hw_rdma_port_state"),
                ("I/O and memory", "hw_io_pressure_full_pct"),
                ("I/O and memory", "hw_mem_dirty_bytes"),
                ("host", "hw_oom_kills_total"),
                ("network", "hw_net_rx_bytes_total"),
                ("host", "hw_procs_running"),
                ("host", "hw_dmesg_gpu_errors_total"),
                ("Ray", "ray_node_mem_used"),
                ("training", "tb_step"),
            )
        )
    ),
    Row("stock.hosts", "which hosts have series", Check("diagnose: inventory", _hosts)),
    Row("stock.span", "which time they cover", Check("diagnose: inventory", _span)),
    Row(
        "stock.right",
        "steps and losses are those of the job's log",
        Check("diagnose: right job", _right_job),
    ),
    Row("window.last", "the last minutes", window("last-30m", 1800.0)),
    Row("window.crash", "around the end", window("crash", 1800.0)),
    Row("window.step", "before the last step", window("last-step", 1800.0)),
    Row("window.steps", "between two steps", window("step-200..", 8000.0)),
    Row("window.step-time", "when a step was done", Check("diagnose: timeline", _step_time)),
    Row(
        "window.heartbeat",
        "heartbeats stopped a time-out before the crash",
        command("diagnose", ".", "--heartbeat-timeout", "100", heartbeat_timeout=100.0),
    ),
    # The job's log
    Row(
        "log.period",
        "how often it saves",
        main_log("Config param checkpoint_period: 50", lambda facts: facts.checkpoint_period, 50),
    ),
    Row(
        "log.arguments",
        "the arguments that were passed on",
        main_log(
            "PASSTHROUGH_ARGS: steps=500 remat_policy='full'",
            lambda facts: facts.arguments.get("remat_policy"),
            "full",
        ),
    ),
    Row(
        "log.nodes",
        "the number of nodes",
        main_log("NNODES=4", lambda facts: facts.arguments.get("NNODES"), "4"),
    ),
    Row(
        "log.step",
        "completed steps",
        main_log(
            "completed step: 1, seconds: 30.10, TFLOP/s/device: 12.0, Tokens/s/device: 900.1, loss: 10.812",
            lambda facts: [(one.step, one.loss) for one in facts.steps],
            [(1.0, 10.812)],
        ),
    ),
    Row(
        "log.summary",
        "the summary at the end",
        main_log("JOB SUMMARY", lambda facts: facts.summary, True),
    ),
    Row(
        "log.timeout",
        "the time-out of heartbeats",
        main_log(
            "Config param jax_distributed_heartbeat_timeout_seconds: 180",
            lambda facts: facts.heartbeat_timeout,
            180.0,
        ),
    ),
    Row(
        "log.accused",
        "the accused tasks' hosts",
        main_log(
            "NODE_LIST=n[001-004]\n2026-01-02 03:04:05.000000: E external/xla/coordination_service.cc:1] The following tasks are unhealthy (stopped sending heartbeats):\n/job:jax_worker/replica:0/task:2",
            lambda facts: facts.accused,
            ("n003",),
        ),
    ),
    Row(
        "log.restored",
        "the step that it was restored from",
        main_log("Restoring checkpoint of step 200", lambda facts: facts.restored_step, 200.0),
    ),
    Row(
        "log.failed-save",
        "the checkpoint that could not be written",
        main_log(
            "FileNotFoundError: /ckpt/2800/items/manifest.ocdbt.__lock: No such file",
            lambda facts: facts.failed_checkpoint,
            2800.0,
        ),
    ),
    # Workers' logs
    Row(
        "worker.waves",
        "waves in which communicators are made: two, or three after a restore",
        Check("compare: waves", _waves),
    ),
    Row("worker.compiled", "compilations", counted("Compilation of jit_train_step took 30 s")),
    Row(
        "worker.warnings",
        "warnings of NCCL and RCCL",
        worker("node1:1:2 [0] NCCL WARN something odd"),
    ),
    Row("worker.tracebacks", "tracebacks", counted("Traceback (most recent call last):")),
    Row(
        "worker.restore",
        "a restore by broadcast",
        worker("SingleReplicaArrayHandler: broadcast_one_replica_to_all"),
    ),
    # Missing series
    Row("missing.database", "no data: why", Check("diagnose: data folder", _found)),
    Row("missing.gaps", "gaps in time", Check("diagnose: inventory", _gaps)),
    Row(
        "missing.restarts",
        "Prometheus was started again",
        monitoring("Watchdog: exited with code 2, restart #1", "restarted", exporter=False),
    ),
    Row(
        "missing.hw",
        "no hardware series: the exporter's log",
        missing("hw_gpu_power", says="no GPU power", see="exporter"),
    ),
    Row(
        "missing.skipped",
        "a plugin that gave up for good",
        monitoring("gpu_metrics_plugin.sh exit code 99, skipped", "gave up", "99"),
    ),
    Row(
        "missing.tb",
        "no series of TensorBoard: not written yet, or not found",
        missing("tb_", says="no training steps", see="event files"),
    ),
    Row(
        "missing.old",
        "samples that came too late",
        monitoring(
            'level=warn msg="Error on ingesting samples that are too old"',
            "too old",
            exporter=False,
        ),
    ),
    Row(
        "missing.ray",
        "no series of Ray: its own logs",
        missing("ray_", "hw_mem_", says="no Ray's series", see="gcs_server.out"),
    ),
    Row("missing.hosts", "hosts that have none", Check("diagnose: inventory", _unseen)),
    Row(
        "missing.deadline",
        "targets that were not scraped in time",
        monitoring("scrape failed: context deadline exceeded", "deadline", exporter=False),
    ),
    Row(
        "missing.refused",
        "or refused",
        monitoring("Get http://a:9400/metrics: connection refused", "refused", exporter=False),
    ),
    Row(
        "missing.slow",
        "cycles that take long: a plugin runs into its deadline",
        monitoring("gpu_metrics_plugin.sh timed out", "timed out"),
    ),
    Row(
        "missing.ghosts",
        "values that stand still, and the exporter's cycle with them, are ghosts",
        Check("diagnose: ghosts", _ghosts),
    ),
    Row(
        "missing.corrupt",
        "a damaged write-ahead log",
        monitoring("WAL corruption detected: corrupt segment", "corrupt", exporter=False),
    ),
    Row(
        "missing.killed",
        "an exporter that was killed",
        monitoring("Watchdog: exited with code 137, restart #3", "killed", "137"),
    ),
    Row(
        "missing.port",
        "a port that was still taken",
        monitoring("OSError: [Errno 98] Address already in use", "still taken"),
    ),
    Row(
        "missing.event-files",
        "event files are the truth where series have gaps",
        command("diagnose", "/jobs/1/tensorboard", "--run", "exp1", run="exp1"),
    ),
    # Exporters
    Row(
        "exporter.plugin",
        "a plugin that is written anew is taken without a restart",
        Check("plugins: discovery", _plugin),
    ),
    Row(
        "exporter.push",
        "and reaches all nodes past a lagging file system",
        command("plugins", "push", "fans.py"),
    ),
    Row(
        "exporter.dstate",
        "processes that no signal ends are counted",
        served("ray_sentinel_collector_unkillable_processes", "gauge", "collector"),
    ),
    Row(
        "exporter.dstate-where",
        "with the function of the kernel that they wait in",
        served("hw_dstate_processes", "gauge", "wchan", "host"),
    ),
    Row(
        "exporter.versions",
        "kernel and driver versions",
        served("hw_host_info", "gauge", "kernel", "amdgpu", "host"),
    ),
    Row(
        "exporter.restarts",
        "restarts are counted",
        served("ray_sentinel_collector_restarts_total", "counter", "collector"),
    ),
    # What a diagnosis says
    *(
        Row(f"output.{key}", f"the answer's {key}", output(key))
        for key in (
            "analysis",
            "window",
            "root_cause",
            "evidence",
            "next_steps",
            "chain",
            "inventory",
            "confidence",
            "tables",
        )
    ),
]
