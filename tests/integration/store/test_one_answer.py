"""One value gets one answer: the engine's rule, the alert under promtool, the diagnosis, the doctor
and the health report agree just above a limit of the table, and just below it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import msgspec
import numpy as np
import pytest

from ray_sentinel.diagnose.examine import examine
from ray_sentinel.doctor.check import CheckInput
from ray_sentinel.doctor.checks.disk import DiskCheck, DiskFacts, FolderReading
from ray_sentinel.doctor.checks.gpu_errors import GpuErrorsCheck, GpuErrorsFacts
from ray_sentinel.doctor.plan import RunPlan
from ray_sentinel.engine.rule import known_rules
from ray_sentinel.evidence.node.judge import Seen, judge
from ray_sentinel.evidence.node.nvidia_smi import SmiGpu
from ray_sentinel.model.health import GpuState, NodeView
from ray_sentinel.model.thresholds import TABLE, Threshold
from ray_sentinel.store.alerts_and_dashboards import RULES_FILE, alerts, rules_file
from tests.support.alert_cases.case import INTERVAL
from tests.support.parts import require
from tests.support.plain_job import BEGIN, Phase, watched
from tests.support.telemetry_sim.job import TelemetryJob

pytestmark = pytest.mark.integration

GPU = 'gpu="1"'
PORT = 'device="mlx5_0",port="1"'


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table and who reads it. ``series``: name and labels, but for the host."""

    name: str
    series: str
    counter: bool = False
    total: str = ""
    """The series of which the row is a share; its value is 1e11."""
    rule: str = ""
    alert: str = ""
    cause: str = ""
    """What the diagnosis calls it."""

    @property
    def limit(self) -> Threshold:
        return TABLE[self.name]

    def value(self, *, over: bool) -> float:
        """A value a tenth beyond the limit, or before it; whole for a counter."""
        limit = self.limit
        beyond = limit.limit * (1.1 if over != (limit.comparison == "<") else 0.9)
        if self.counter:
            return float(np.ceil(beyond) if over else np.floor(beyond))
        return beyond * 1e11 if self.total else beyond


def gpu_counter(name: str, family: str, **more: str) -> Row:
    return Row(name=name, series=f"{family}{{{GPU}}}", counter=True, **more)


ROWS = (
    Row(name="gpu_hot", series=f"hw_gpu_temperature_celsius{{{GPU}}}", rule="gpu.hot",
        alert="GpuHot", cause="overheating"),
    gpu_counter("gpu_uncorrected", "hw_gpu_ecc_uncorrected_total", rule="gpu.memory_errors",
                alert="GpuEccUncorrected", cause="uncorrectable-memory-error"),
    gpu_counter("gpu_uncorrected", "hw_gpu_ras_gfx_ue_total", rule="gpu.memory_errors",
                alert="GpuRasUncorrected", cause="uncorrectable-gpu-error"),
    gpu_counter("gpu_corrected", "hw_gpu_ecc_corrected_total", alert="GpuEccCorrectedOften"),
    gpu_counter("gpu_corrected_over_peers", "hw_gpu_ecc_corrected_total",
                cause="degrading-memory"),
    gpu_counter("gpu_pcie_fatal", "hw_gpu_pcie_fatal_total", rule="gpu.pcie_errors",
                alert="GpuPcieFatal", cause="pcie-fatal"),
    gpu_counter("gpu_pcie_nonfatal", "hw_gpu_pcie_nonfatal_total", rule="gpu.pcie_errors",
                alert="GpuPcieNonfatal", cause="degrading-link"),
    gpu_counter("gpu_pcie_replays", "hw_gpu_pcie_replay_total", alert="GpuPcieReplaysOften",
                cause="degrading-link"),
    Row(name="nvlink_recoveries", counter=True, rule="gpu.nvlink", alert="GpuNvlinkErrors",
        series=f'hw_gpu_nvlink_errors_total{{{GPU},link="5",kind="recovery"}}',
        cause="degrading-link"),
    Row(name="nvlink_replays", counter=True, rule="gpu.nvlink", alert="GpuNvlinkErrors",
        series=f'hw_gpu_nvlink_errors_total{{{GPU},link="5",kind="replay"}}'),
    Row(name="rdma_retries_exceeded", counter=True, rule="net.rdma_retry_exhausted",
        series=f"hw_rdma_req_tx_retry_excd_err_total{{{PORT}}}", alert="RdmaRetriesExceeded"),
    Row(name="oom_kills", counter=True, series="hw_oom_kills_total", rule="host.oom_kill",
        alert="OutOfMemoryKill"),
    Row(name="memory_low", series="hw_mem_available_bytes", total="hw_mem_total_bytes",
        rule="host.memory_low", alert="OutOfMemorySoon"),
    Row(name="disk_full", series='hw_disk_free_bytes{mount="/"}', rule="host.disk_full",
        total='hw_disk_total_bytes{mount="/"}', alert="DiskFull"),
    Row(name="io_pressure", series="hw_io_pressure_full_pct", rule="host.io_pressure"),
    Row(name="io_pressure", series="hw_io_pressure_full_avg300_pct", alert="IoPressure"),
    Row(name="blocked_processes", series='hw_dstate_processes{wchan="nfs_wait"}',
        rule="host.dstate", alert="TasksBlocked"),
)  # fmt: skip
both = pytest.mark.parametrize("over", [True, False], ids=["above", "below"])


def on_host(series: str) -> str:
    name, _, labels = series.rstrip("}").partition("{")
    return f'{name}{{host="n1"{"," if labels else ""}{labels}}}'


@both
def test_the_engine_says_it(over: bool) -> None:
    job = TelemetryJob(11, nodes=1)
    node = job.hosts[0]
    heat = TABLE["gpu_hot"].limit * (1.1 if over else 0.9)
    ours = [row for row in ROWS if row.rule]
    for row in ours:
        if row.counter:
            node.counters[row.series] = 0.0
        elif row.total:
            node.gauges[row.total] = 1e11
    job.run(60)
    for row in ours:
        if row.name == "gpu_hot":
            card = node.cards[1]
            seen = [v for k, v in node.sent.items() if k == row.series]
            card.heat += heat - seen[0]
        elif row.counter:
            node.counters[row.series] = row.value(over=over)
        else:
            node.gauges[row.series] = row.value(over=over)
    job.run(150)
    said = {alert.rule for alert in job.alerts.values()}
    wanted = {row.rule for row in ours}
    assert said & wanted == (wanted if over else set())


@both
def test_the_alert_rules_say_it(over: bool, tmp_path: Path) -> None:
    known = {alert.name: alert for alert in alerts()}
    (tmp_path / RULES_FILE).write_text(rules_file())
    tests = []
    for row in (row for row in ROWS if row.alert):
        value = f"{row.value(over=over):.12g}"
        series = {on_host(row.series): f"0x20 {value}x40" if row.counter else f"{value}x60"}
        if row.total:
            series[on_host(row.total)] = "1e11x60"
        firing = {"expr": f'ALERTS{{alertname="{row.alert}",alertstate="firing"}}'}
        tests.append({
            "name": f"{row.name} {row.alert} {known[row.alert].expr}",
            "interval": INTERVAL,
            "input_series": [{"series": k, "values": v} for k, v in series.items()],
            "promql_expr_test": [
                {"expr": f"count({firing['expr']})", "eval_time": "15m",
                 "exp_samples": [{"labels": "{}", "value": 1}] if over else []},
            ],
        })  # fmt: skip
    path = tmp_path / "tests.json"
    path.write_text(json.dumps({"rule_files": [str(tmp_path / RULES_FILE)], "tests": tests,
                                "evaluation_interval": "15s"}))  # fmt: skip
    done = subprocess.run(
        [require("promtool"), "test", "rules", str(path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@both
@pytest.mark.parametrize("row", [row for row in ROWS if row.cause], ids=lambda row: row.series)
def test_the_diagnosis_says_it(row: Row, over: bool) -> None:
    source = watched([Phase(3600)], hosts=2)
    name, _, labels = row.series.rstrip("}").partition("{")
    own = dict(pair.replace('"', "").split("=") for pair in labels.split(","))
    times = BEGIN + np.arange(0.0, 3600.0, 10.0)
    for host in ("n0", "n1"):
        for gpu in ("0", "1"):
            values = np.full(times.size, 0.0 if row.counter else 50.0)
            if (host, gpu) == ("n1", "1"):
                values[times > BEGIN + 1800] = row.value(over=over)
            source.add(name, {**own, "host": host, "gpu": gpu}, times, values)
    found = examine(source).diagnosis
    assert (found.cause == row.cause) is over, (found.cause, found.root_cause)


def ask_doctor(check: object, facts: object) -> set[str]:
    case = CheckInput(plan=RunPlan(need_bytes=0), seen={"n1": facts})
    return {result.outcome for result in check.judge(case)}  # type: ignore[attr-defined]


@both
def test_the_doctor_says_it(over: bool) -> None:
    wanted = {"warning"} if over else {"ok"}
    heat = next(row for row in ROWS if row.name == "gpu_hot").value(over=over)
    hot = SmiGpu(state=GpuState(index="1", temperature_celsius=heat))
    assert ask_doctor(GpuErrorsCheck(), GpuErrorsFacts((hot,))) == wanted
    errors = SmiGpu(state=GpuState(index="1"), ecc_uncorrected=int(over))
    assert ask_doctor(GpuErrorsCheck(), GpuErrorsFacts((errors,))) == wanted
    free = next(row for row in ROWS if row.name == "disk_full").value(over=over)
    place = FolderReading(path="/", free_bytes=int(free), total_bytes=10**11)
    assert ask_doctor(DiskCheck(), DiskFacts((place,))) == wanted


@both
def test_the_health_report_says_it(over: bool) -> None:
    heat = next(row for row in ROWS if row.name == "gpu_hot").value(over=over)
    node = NodeView(host="n1", gpus=(GpuState(index="1", temperature_celsius=heat),))
    told = judge(Seen(nodes=(node,)))
    assert told.healthy is not over
    assert any("GPU 1 is at" in issue for issue in told.issues) is over


def test_the_defaults_of_the_rules_are_the_tables() -> None:
    fields = {"gpu.hot": "celsius", "gpu.memory_errors": "least", "gpu.pcie_errors": "least",
              "host.oom_kill": "least", "net.rdma_retry_exhausted": "least",
              "host.memory_low": "share", "host.disk_full": "share",
              "host.io_pressure": "percent", "host.dstate": "processes"}  # fmt: skip
    rules = known_rules()
    for row in ROWS:
        if row.rule in fields:
            assert getattr(rules[row.rule].Thresholds(), fields[row.rule]) == row.limit.limit
