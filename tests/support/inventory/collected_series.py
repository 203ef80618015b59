"""The series that are collected and understood: names, kinds and labels."""

from __future__ import annotations

from itertools import product
from pathlib import Path

from ray_sentinel.diagnose.quantities import QUANTITIES
from tests.support.inventory.metrics import served
from tests.support.inventory.row import Check, Row


def understood(name: str, key: str) -> Check:
    """A series of Ray's or of TensorBoard's is read as what it is."""

    def run(folder: Path) -> None:
        assert name in [one.metric for one in QUANTITIES[key].names]
        assert not [
            other
            for other, quantity in QUANTITIES.items()
            if other != key and name in [one.metric for one in quantity.names]
        ]

    return Check(f"diagnose: series {name}", run)


def expanded(pattern: str) -> list[str]:
    """``a_{b,c}_d`` is ``a_b_d`` and ``a_c_d``."""
    parts = pattern.replace("}", "{").split("{")
    return ["".join(one) for one in product(*(part.split(",") for part in parts))]


GPU = tuple(
    (pattern, "counter" if pattern.endswith("_total") else "gauge", ("gpu", "host"))
    for pattern in (
        "hw_gpu_temperature_celsius", "hw_gpu_power_watts", "hw_gpu_vram_{used,total}_bytes",
        "hw_gpu_ras_{umc,xgmi,gfx,mmhub,sdma}_{ue,ce}_total",
        "hw_gpu_pcie_{correctable,nonfatal,fatal}_total",
    )
)  # fmt: skip
HOST = (
    ("hw_gpu_clock_mhz", "gauge", ("gpu", "host", "type")),
    ("hw_net_{rx,tx}_{bytes,errors,drop}_total", "counter", ("device", "host")),
    ("hw_tcp_{retransmits,listen_overflows,listen_drops,estab_resets,abort_on_timeout}_total",
     "counter", ("host",)),
    ("hw_rdma_{rx,tx}_{bytes,pkts,cnp_pkts}_total", "counter", ("device", "port", "host")),
    ("hw_rdma_tx_retx_{bytes,pkts}_total", "counter", ("device", "port", "host")),
    ("hw_rdma_{tx_ack_timeout,req_rx_cqe_err,req_tx_retry_excd_err}_total", "counter",
     ("device", "port", "host")),
    ("hw_rdma_port_state", "gauge", ("device", "port", "host")),
    ("hw_procs_{running,blocked}", "gauge", ("host",)),
    ("hw_{context_switches,oom_kills}_total", "counter", ("host",)),
    ("hw_mem_{dirty,writeback}_bytes", "gauge", ("host",)),
    ("hw_io_pressure_{some,full}_{pct,avg300_pct}", "gauge", ("host",)),
    ("hw_io_pressure_full_total_us", "counter", ("host",)),
    ("hw_dmesg_gpu_errors_total", "counter", ("host",)),
    ("hw_gpu_user_processes", "gauge", ("host",)),
    ("hw_scrape_duration_seconds", "gauge", ("host",)),
    ("tb_step", "gauge", ("host",)),
    ("tb_metrics_plugin_staleness_fill", "gauge", ("host",)),
)  # fmt: skip
SCALARS = (
    ("tb_learning_loss", "train.loss"), ("tb_learning_grad_norm", "train.grad_norm"),
    ("tb_learning_raw_grad_norm", "train.raw_grad_norm"),
    ("tb_learning_param_norm", "train.param_norm"),
    ("tb_learning_current_learning_rate", "train.lr"),
    ("tb_perf_step_time_seconds", "train.step_time"),
    ("tb_perf_per_device_tflops", "train.throughput"),
    ("tb_perf_per_device_tokens_per_sec", "train.throughput"),
    ("tb_learning_moe_lb_loss", "train.moe"),
    ("ray_node_gpus_utilization", "gpu.util"), ("ray_node_mem_used", "mem.used"),
    ("ray_node_mem_total", "mem.total"), ("ray_node_cpu_utilization", "host.cpu"),
)  # fmt: skip

ROWS = [
    *(
        Row(f"series.{name}", f"{name} is served", served(name, kind, *labels))
        for pattern, kind, labels in (*GPU, *HOST)
        for name in expanded(pattern)
    ),
    *(
        Row(f"series.{name}", f"{name} is understood", understood(name, key))
        for name, key in SCALARS
    ),
    Row(
        "series.disk",
        "traffic of disks",
        served("hw_disk_read_bytes_total", "counter", "device", "host"),
        "of disks our own host collector tells more than ray_node_disk_*, with the device",
    ),
    Row(
        "series.weights",
        "the number of weights is a scalar like others",
        served("train_scalar", "gauge", "name"),
    ),
]
