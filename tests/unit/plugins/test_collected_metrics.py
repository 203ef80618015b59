"""Names, labels and types that dashboards, playbooks and users' queries depend on: they are fixed.

``name{label,...}: gauge|counter``, without ``host``, which all series have; ``{a,b}`` inside a name
stands for each.
"""

from __future__ import annotations

import itertools
import re

import pytest

from ray_sentinel.actors import metrics as actors
from ray_sentinel.actors.coordinator import metrics as coordinator
from ray_sentinel.api import Collector, Metric
from ray_sentinel.collect import runner, selfmetrics
from ray_sentinel_plugins.amdgpu import AmdgpuCollector
from ray_sentinel_plugins.host import HostCollector
from ray_sentinel_plugins.kernel_log import KernelLogCollector
from ray_sentinel_plugins.nvml import NvmlCollector
from ray_sentinel_plugins.rdma import RdmaCollector
from ray_sentinel_plugins.tensorboard import TensorboardCollector
from ray_sentinel_plugins.train_logs import TrainLogsCollector

COLLECTORS: tuple[type[Collector], ...] = (
    AmdgpuCollector,
    HostCollector,
    KernelLogCollector,
    NvmlCollector,
    RdmaCollector,
    TensorboardCollector,
    TrainLogsCollector,
)
CATALOG = """
hw_gpu_info{gpu,uuid,name,vendor,driver,pci}: gauge
hw_gpu_(temperature,memory_temperature)_celsius{gpu}: gauge
hw_gpu_power_(watts,limit_watts){gpu}: gauge
hw_gpu_energy_joules_total{gpu}: counter
hw_gpu_(utilization,memory_utilization)_ratio{gpu}: gauge
hw_gpu_clock_mhz{gpu,type}: gauge
hw_gpu_vram_(used,total)_bytes{gpu}: gauge
hw_gpu_throttle_reason{gpu,reason}: gauge
hw_gpu_xid_errors_total{gpu,xid}: counter
hw_gpu_ecc_(corrected,uncorrected)_total{gpu}: counter
hw_gpu_remapped_rows_total{gpu,cause}: counter
hw_gpu_row_remap_pending{gpu,cause}: gauge
hw_gpu_ras_(umc,xgmi,gfx,mmhub,sdma)_(ue,ce)_total{gpu}: counter
hw_gpu_pcie_(correctable,nonfatal,fatal,replay)_total{gpu}: counter
hw_gpu_pcie_(rx,tx)_bytes_per_second{gpu}: gauge
hw_gpu_nvlink_errors_total{gpu,link,kind}: counter
hw_gpu_user_processes: gauge
hw_gpu_process_memory_bytes{gpu,pid}: gauge
hw_net_(rx,tx)_(bytes,errors,drop)_total{device}: counter
hw_tcp_(retransmits,estab_resets,listen_overflows,listen_drops,abort_on_timeout)_total: counter
hw_rdma_(rx,tx)_(bytes,pkts)_total{device,port}: counter
hw_rdma_tx_retx_(bytes,pkts)_total{device,port}: counter
hw_rdma_tx_ack_timeout_total{device,port}: counter
hw_rdma_(rx,tx)_cnp_pkts_total{device,port}: counter
hw_rdma_(req_rx_cqe_err,req_tx_retry_excd_err)_total{device,port}: counter
hw_rdma_port_state{device,port}: gauge
hw_rdma_(link_downed,symbol_errors)_total{device,port}: counter
hw_procs_(running,blocked): gauge
hw_context_switches_total: counter
hw_(oom,cgroup_oom)_kills_total: counter
hw_host_info{kernel,amdgpu,nvidia,os}: gauge
hw_cpu_seconds_total{mode}: counter
hw_load1: gauge
hw_disk_(read,written)_bytes_total{device}: counter
hw_disk_io_seconds_total{device}: counter
hw_mem_(total,available,dirty,writeback)_bytes: gauge
hw_cgroup_mem_(used,limit)_bytes: gauge
hw_cpu_pressure_some_pct: gauge
hw_(mem,io)_pressure_(some,full)_pct: gauge
hw_io_pressure_(some,full)_avg300_pct: gauge
hw_io_pressure_full_total_us: counter
hw_disk_(free,total)_bytes{mount}: gauge
hw_dstate_processes{wchan}: gauge
hw_dmesg_gpu_errors_total: counter
hw_dmesg_errors_total{kind}: counter
hw_scrape_duration_seconds: gauge
tb_(step,metrics_plugin_staleness_fill): gauge
train_(step,step_seconds,step_age_seconds,rank_alive){job,rank}: gauge
train_phase{job,rank,phase}: gauge
train_world_size{job}: gauge
train_scalar{job,rank,name}: gauge
ray_sentinel_collector_(success,duration_seconds){collector}: gauge
ray_sentinel_collector_last_success_timestamp_seconds{collector}: gauge
ray_sentinel_collector_(timeouts,restarts)_total{collector}: counter
ray_sentinel_collector_state{collector,state}: gauge
ray_sentinel_collector_unkillable_processes{collector}: gauge
ray_sentinel_(agent_nodes,nodes_unwatched,coordinator_cycle_seconds): gauge
ray_sentinel_coordinator_last_cycle_timestamp_seconds: gauge
ray_sentinel_(reports,event_log_missing)_total: counter
ray_sentinel_(series_bytes,event_log_waiting_bytes,report_seconds): gauge
ray_sentinel_(series_limit_bytes,event_log_waiting_limit_bytes,reports_due_per_second,relays): gauge
ray_sentinel_relays_wanted: gauge
ray_sentinel_relayed_reports_total: counter
ray_sentinel_(memory_bytes,memory_limit_bytes){process}: gauge
ray_sentinel_memory_shed_total{part}: counter
ray_sentinel_agent_lost_total{what}: counter
ray_sentinel_incidents_total{kind,severity}: counter
ray_sentinel_incident_active{job,kind}: gauge
ray_sentinel_capture_seconds: gauge
ray_sentinel_captures_total{tool,outcome}: counter
"""


def names(pattern: str) -> list[str]:
    """All names that a pattern with alternatives stands for."""
    parts = re.split(r"\(([^)]*)\)", pattern)
    choices = [part.split(",") if i % 2 else [part] for i, part in enumerate(parts)]
    return ["".join(chosen) for chosen in itertools.product(*choices)]


def documented() -> dict[str, tuple[tuple[str, ...], str]]:
    found = {}
    for line in CATALOG.split("\n"):
        if match := re.fullmatch(r"([^{:]+)(?:\{(.*)\})?: (\w+)", line):
            pattern, labels, kind = match.groups()
            for name in names(pattern):
                found[name] = (tuple(labels.split(",")) if labels else (), kind)
    return found


def declared() -> dict[str, set[tuple[tuple[str, ...], str]]]:
    metrics = [metric for kind in COLLECTORS for metric in kind.metrics]
    for module in (actors, coordinator, runner, selfmetrics):
        metrics += [value for value in vars(module).values() if isinstance(value, Metric)]
    found: dict[str, set[tuple[tuple[str, ...], str]]] = {}
    for metric in metrics:
        found.setdefault(metric.name, set()).add((metric.labels, metric.kind))
    return found


@pytest.mark.parametrize("name", documented())
def test_it_is_declared_as_it_is_promised(name: str) -> None:
    assert declared().get(name) == {documented()[name]}


def test_nothing_else_is_made_up() -> None:
    more = declared().keys() - documented().keys()
    assert more == {
        "ray_sentinel_build_info",
        "tb_corrupt_records_total",
        "train_raylet_log_timestamp_seconds",
    }
