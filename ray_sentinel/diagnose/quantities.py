"""The metric names that each quantity has in different exporters: the one table of synonyms.

Our own names, the older exporter's (the same ``hw_*`` and ``tb_*``, utilisation and memory from
``ray_node_*`` by ip), Ray's, NVIDIA's dcgm-exporter's and node_exporter's. The first name that has
series wins.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Kind = Literal["gauge", "counter"]


class Name(msgspec.Struct, frozen=True):
    """One metric name: its values times ``scale`` are in the quantity's unit."""

    metric: str
    scale: float = 1.0
    equal: tuple[tuple[str, str], ...] = ()


class Quantity(msgspec.Struct, frozen=True, kw_only=True):
    """A measured quantity, whatever its metric is called."""

    key: str
    title: str
    unit: str
    kind: Kind
    names: tuple[Name, ...]
    by: tuple[str, ...] = ()
    """Labels beside host and GPU that distinguish the quantity's series."""
    group: str = ""


def _quantity(
    key: str, title: str, unit: str, kind: Kind, names: tuple[str | Name, ...], by: str = ""
) -> Quantity:
    return Quantity(
        key=key,
        title=title,
        unit=unit,
        kind=kind,
        names=tuple(Name(name) if isinstance(name, str) else name for name in names),
        by=tuple(by.split()),
        group=key.split(".")[0],
    )


_SCLK = (("type", "sclk"),)

_GPU = (
    _quantity(
        "gpu.util", "GPU utilisation", "%", "gauge",
        (Name("hw_gpu_utilization_ratio", 100.0), "ray_node_gpus_utilization",
         "DCGM_FI_DEV_GPU_UTIL"),
    ),
    _quantity("gpu.power", "GPU power", "W", "gauge",
              ("hw_gpu_power_watts", "DCGM_FI_DEV_POWER_USAGE")),
    _quantity("gpu.power_limit", "GPU power limit", "W", "gauge",
              ("hw_gpu_power_limit_watts", "DCGM_FI_DEV_POWER_MGMT_LIMIT")),
    _quantity("gpu.temp", "GPU temperature", "°C", "gauge",
              ("hw_gpu_temperature_celsius", "DCGM_FI_DEV_GPU_TEMP")),
    _quantity("gpu.memory_temp", "GPU memory temperature", "°C", "gauge",
              ("hw_gpu_memory_temperature_celsius", "DCGM_FI_DEV_MEMORY_TEMP")),
    _quantity("gpu.clock", "GPU core clock", "MHz", "gauge",
              (Name("hw_gpu_clock_mhz", 1.0, _SCLK), "DCGM_FI_DEV_SM_CLOCK")),
    _quantity("gpu.vram_used", "GPU memory used", "B", "gauge",
              ("hw_gpu_vram_used_bytes", Name("ray_node_gram_used", 1048576.0),
               Name("DCGM_FI_DEV_FB_USED", 1048576.0))),
    _quantity("gpu.vram_total", "GPU memory", "B", "gauge", ("hw_gpu_vram_total_bytes",)),
    _quantity("gpu.throttle", "GPU throttling", "", "gauge", ("hw_gpu_throttle_reason",),
              "reason"),
    _quantity("gpu.processes", "processes on the GPUs", "", "gauge", ("hw_gpu_user_processes",)),
)  # fmt: skip

_ERRORS = (
    *(
        _quantity(
            f"err.ras_{block}_{kind}",
            f"{where} {'uncorrectable' if kind == 'ue' else 'correctable'} errors",
            "",
            "counter",
            (f"hw_gpu_ras_{block}_{kind}_total",),
        )
        for block, where in (
            ("umc", "GPU memory (HBM)"),
            ("xgmi", "GPU link (XGMI)"),
            ("gfx", "compute engine"),
            ("mmhub", "memory hub"),
            ("sdma", "SDMA engine"),
        )
        for kind in ("ue", "ce")
    ),
    _quantity("err.ecc_ue", "uncorrectable ECC errors", "", "counter",
              ("hw_gpu_ecc_uncorrected_total", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL")),
    _quantity("err.ecc_ce", "correctable ECC errors", "", "counter",
              ("hw_gpu_ecc_corrected_total", "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL")),
    _quantity("err.pcie_fatal", "fatal PCIe errors", "", "counter", ("hw_gpu_pcie_fatal_total",)),
    _quantity("err.pcie_nonfatal", "non-fatal PCIe errors", "", "counter",
              ("hw_gpu_pcie_nonfatal_total",)),
    _quantity("err.pcie_ce", "correctable PCIe errors", "", "counter",
              ("hw_gpu_pcie_correctable_total",)),
    _quantity("err.pcie_replay", "PCIe replays", "", "counter",
              ("hw_gpu_pcie_replay_total", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER")),
    _quantity("err.xid", "Xid errors", "", "counter", ("hw_gpu_xid_errors_total",), "xid"),
    _quantity("err.xid_last", "Xid errors", "", "gauge", ("DCGM_FI_DEV_XID_ERRORS",)),
    _quantity("err.remapped", "remapped memory rows", "", "counter",
              ("hw_gpu_remapped_rows_total", "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
               "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS"), "cause"),
    _quantity("err.nvlink", "NVLink errors", "", "counter",
              ("hw_gpu_nvlink_errors_total", "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL"),
              "link kind"),
    _quantity("err.dmesg_gpu", "GPU errors in the kernel log", "", "counter",
              ("hw_dmesg_gpu_errors_total",)),
    _quantity("err.dmesg", "errors in the kernel log", "", "counter",
              ("hw_dmesg_errors_total",), "kind"),
)  # fmt: skip


def _rdma(key: str, title: str, unit: str, kind: Kind, *metrics: str) -> Quantity:
    return _quantity(f"rdma.{key}", title, unit, kind, metrics, "device port")


_NETWORK = (
    _rdma("retx", "RDMA retransmits", "packets", "counter", "hw_rdma_tx_retx_pkts_total"),
    _rdma("ack_timeout", "RDMA ACK timeouts", "", "counter", "hw_rdma_tx_ack_timeout_total"),
    _rdma("retry_exceeded", "RDMA retry exhaustion", "", "counter",
          "hw_rdma_req_tx_retry_excd_err_total"),
    _rdma("cqe_err", "RDMA completion errors", "", "counter", "hw_rdma_req_rx_cqe_err_total"),
    _rdma("cnp", "RDMA congestion notifications received", "packets", "counter",
          "hw_rdma_rx_cnp_pkts_total"),
    _rdma("port", "RDMA port state", "", "gauge", "hw_rdma_port_state"),
    _rdma("link_downed", "RDMA link downs", "", "counter", "hw_rdma_link_downed_total",
          "node_infiniband_link_downed_total"),
    _rdma("symbol", "RDMA symbol errors", "", "counter", "hw_rdma_symbol_errors_total",
          "node_infiniband_symbol_error_total"),
    _rdma("tx", "RDMA bytes sent", "B", "counter", "hw_rdma_tx_bytes_total",
          "node_infiniband_port_data_transmitted_bytes_total"),
    _rdma("rx", "RDMA bytes received", "B", "counter", "hw_rdma_rx_bytes_total",
          "node_infiniband_port_data_received_bytes_total"),
    _quantity("tcp.retx", "TCP retransmits", "segments", "counter",
              ("hw_tcp_retransmits_total", "node_netstat_Tcp_RetransSegs")),
    _quantity("tcp.resets", "TCP connection resets", "", "counter",
              ("hw_tcp_estab_resets_total",)),
    _quantity("tcp.listen_drops", "TCP listen drops", "", "counter",
              ("hw_tcp_listen_drops_total",)),
    _quantity("tcp.listen_overflows", "TCP listen overflows", "", "counter",
              ("hw_tcp_listen_overflows_total",)),
    _quantity("tcp.aborts", "TCP connections aborted on timeout", "", "counter",
              ("hw_tcp_abort_on_timeout_total",)),
    _quantity("net.rx_errors", "NIC receive errors", "", "counter",
              ("hw_net_rx_errors_total", "node_network_receive_errs_total"), "device"),
    _quantity("net.tx_errors", "NIC transmit errors", "", "counter",
              ("hw_net_tx_errors_total", "node_network_transmit_errs_total"), "device"),
)  # fmt: skip

_HOST = (
    _quantity("host.procs_running", "runnable threads", "", "gauge",
              ("hw_procs_running", "node_procs_running")),
    _quantity("host.procs_blocked", "blocked processes", "", "gauge",
              ("hw_procs_blocked", "node_procs_blocked")),
    _quantity("host.context_switches", "context switches", "", "counter",
              ("hw_context_switches_total", "node_context_switches_total")),
    _quantity("host.cpu", "CPU utilisation", "%", "gauge", ("ray_node_cpu_utilization",)),
    _quantity("host.load", "load average", "", "gauge", ("hw_load1", "node_load1")),
    _quantity("host.cpu_pressure", "CPU pressure", "%", "gauge", ("hw_cpu_pressure_some_pct",)),
    _quantity("mem.used", "host memory used", "B", "gauge", ("ray_node_mem_used",)),
    _quantity("mem.total", "host memory", "B", "gauge",
              ("hw_mem_total_bytes", "ray_node_mem_total", "node_memory_MemTotal_bytes")),
    _quantity("mem.available", "host memory available", "B", "gauge",
              ("hw_mem_available_bytes", "ray_node_mem_available",
               "node_memory_MemAvailable_bytes")),
    _quantity("mem.cgroup_used", "memory used in the container", "B", "gauge",
              ("hw_cgroup_mem_used_bytes",)),
    _quantity("mem.cgroup_limit", "memory limit of the container", "B", "gauge",
              ("hw_cgroup_mem_limit_bytes",)),
    _quantity("mem.oom", "OOM kills", "", "counter",
              ("hw_oom_kills_total", "node_vmstat_oom_kill")),
    _quantity("mem.cgroup_oom", "OOM kills in the container", "", "counter",
              ("hw_cgroup_oom_kills_total",)),
    _quantity("mem.some", "memory pressure (some)", "%", "gauge", ("hw_mem_pressure_some_pct",)),
    _quantity("mem.pressure", "memory pressure", "%", "gauge", ("hw_mem_pressure_full_pct",)),
    _quantity("io.dirty", "dirty pages", "B", "gauge",
              ("hw_mem_dirty_bytes", "node_memory_Dirty_bytes")),
    _quantity("io.writeback", "pages under writeback", "B", "gauge",
              ("hw_mem_writeback_bytes", "node_memory_Writeback_bytes")),
    _quantity("io.full", "I/O pressure (full)", "%", "gauge", ("hw_io_pressure_full_pct",)),
    _quantity("io.some", "I/O pressure (some)", "%", "gauge", ("hw_io_pressure_some_pct",)),
    _quantity("io.disk_free", "disk space free", "B", "gauge",
              ("hw_disk_free_bytes", "node_filesystem_avail_bytes"), "mount mountpoint"),
    _quantity("io.disk_total", "disk space", "B", "gauge",
              ("hw_disk_total_bytes", "node_filesystem_size_bytes"), "mount mountpoint"),
    _quantity("host.dstate", "processes in D state", "", "gauge", ("hw_dstate_processes",),
              "wchan"),
    _quantity("host.info", "kernel and driver versions", "", "gauge", ("hw_host_info",)),
    _quantity("scrape.duration", "exporter cycle", "s", "gauge",
              ("hw_scrape_duration_seconds",)),
    _quantity("scrape.up", "target up", "", "gauge", ("up",), "job instance"),
)  # fmt: skip

_TRAINING = (
    _quantity("train.step", "training step", "", "gauge",
              ("tb_step", "train_step", "tb_global_step"), "rank run"),
    _quantity("train.step_time", "step time", "s", "gauge",
              ("tb_perf_step_time_seconds", "train_step_seconds", "tb_step_time",
               "tb_train_step_time", "tb_perf_step_time", "tb_iteration_time",
               "tb_train_step_timing_in_s", "tb_timing_s_step", "tb_time_metrics_end_to_end_s_"),
              "rank run"),
    _quantity("train.throughput", "throughput", "tokens/s", "gauge",
              ("tb_perf_per_device_tokens_per_sec", "tb_throughput", "tb_tokens_per_sec",
               "tb_perf_throughput", "tb_train_tokens_per_second", "tb_perf_per_device_tflops",
               "tb_tokens_per_second_per_gpu", "tb_throughput_tps_"),
              "rank run"),
    _quantity("train.loss", "loss", "", "gauge",
              ("tb_learning_loss", "tb_loss", "tb_train_loss", "tb_training_loss", "tb_lm_loss",
               "tb_train_loss_step", "tb_loss_step", "tb_reduced_train_loss",
               "tb_loss_metrics_global_avg_loss", "tb_train_samples_train_loss",
               "tb_actor_pg_loss", "tb_batch_loss", "tb_epoch_loss",
               Name("train_scalar", 1.0, (("name", "loss"),))), "rank run"),
    _quantity("train.grad_norm", "gradient norm", "", "gauge",
              ("tb_learning_grad_norm", "tb_grad_norm", "tb_train_grad_norm", "tb_actor_grad_norm",
               Name("train_scalar", 1.0, (("name", "grad_norm"),))), "rank run"),
    _quantity("train.raw_grad_norm", "gradient norm before clipping", "", "gauge",
              ("tb_learning_raw_grad_norm",), "rank run"),
    _quantity("train.param_norm", "parameter norm", "", "gauge",
              ("tb_learning_param_norm",), "rank run"),
    _quantity("train.lr", "learning rate", "", "gauge",
              ("tb_learning_current_learning_rate", "tb_learning_rate", "tb_train_learning_rate",
               "tb_lr", "tb_train_samples_lr", "tb_actor_lr"), "rank run"),
    _quantity("train.moe", "MoE load-balance loss", "", "gauge",
              ("tb_learning_moe_lb_loss", "tb_moe_lb_loss", "tb_load_balancing_loss"),
              "rank run"),
    _quantity("train.fill", "synthetic fill", "", "gauge",
              ("tb_metrics_plugin_staleness_fill",), "run"),
    _quantity("train.alive", "rank alive", "", "gauge", ("train_rank_alive",), "rank"),
    _quantity("train.world", "world size", "", "gauge", ("train_world_size",), "job"),
)  # fmt: skip

QUANTITIES: dict[str, Quantity] = {
    quantity.key: quantity for quantity in (*_GPU, *_ERRORS, *_NETWORK, *_HOST, *_TRAINING)
}

HOST_LABELS = ("host", "Hostname", "node", "nodename", "ip")
GPU_LABELS = ("gpu", "GpuIndex", "gpu_index")
FAMILY_GROUPS = (
    ("GPU", ("hw_gpu_", "DCGM_")),
    ("RDMA", ("hw_rdma_",)),
    ("TCP", ("hw_tcp_",)),
    ("network", ("hw_net_",)),
    ("I/O and memory", ("hw_io_", "hw_mem_", "hw_disk_", "hw_cgroup_mem_")),
    ("host", ("hw_",)),
    ("Ray", ("ray_",)),
    ("training", ("tb_", "train_")),
)
"""Groups of metric names, by prefix; a name belongs to the first group that fits."""
