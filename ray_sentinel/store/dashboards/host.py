"""Processors, memory, storage and the kernel of the nodes."""

from __future__ import annotations

from ray_sentinel.store.dashboards.model import (
    BAD_FROM_ONE,
    Dashboard,
    PanelRow,
    graph,
    table,
)
from ray_sentinel.store.dashboards.model import (
    HOST as HOST_VARIABLE,
)

OF = '{host=~"$host"}'
RATE = "[$__rate_interval]"
BUSY = 'host=~"$host",mode!="idle"'

CPU = PanelRow(
    "Processors",
    (
        graph(
            "Processors in use",
            "short",
            (
                f"sum by (host, mode) (rate(hw_cpu_seconds_total{{{BUSY}}}{RATE}))",
                "{{host}} {{mode}}",
            ),
            stacked=True,
        ),
        graph(
            "Processes that run, and that hang in the kernel",
            "none",
            (f"hw_procs_running{OF}", "{{host}} run"),
            (f"hw_procs_blocked{OF}", "{{host}} blocked"),
        ),
        graph("Load", "short", (f"hw_load1{OF}", "{{host}}")),
        graph(
            "Context switches", "cps", (f"rate(hw_context_switches_total{OF}{RATE})", "{{host}}")
        ),
        graph(
            "Waiting for a processor",
            "percent",
            (f"hw_cpu_pressure_some_pct{OF}", "{{host}}"),
            most=100.0,
        ),
        graph(
            "Processes that hang in the kernel, by where",
            "none",
            (f"sum by (host, wchan) (hw_dstate_processes{OF})", "{{host}} {{wchan}}"),
            stacked=True,
        ),
    ),
)
MEMORY = PanelRow(
    "Memory",
    (
        graph("Available", "bytes", (f"hw_mem_available_bytes{OF}", "{{host}}")),
        graph(
            "Memory in use",
            "percentunit",
            (f"1 - hw_mem_available_bytes{OF} / hw_mem_total_bytes{OF}", "{{host}}"),
            most=1.0,
            steps=((0.97, "red"),),
        ),
        graph(
            "Of the container's limit",
            "percentunit",
            (f"hw_cgroup_mem_used_bytes{OF} / hw_cgroup_mem_limit_bytes{OF}", "{{host}}"),
            most=1.0,
            about="Page cache counts as used.",
            hardware="a container with a memory limit",
        ),
        graph(
            "Waiting for memory",
            "percent",
            (f"hw_mem_pressure_some_pct{OF}", "{{host}} some"),
            (f"hw_mem_pressure_full_pct{OF}", "{{host}} all"),
            most=100.0,
        ),
        graph(
            "Not written yet",
            "bytes",
            (f"hw_mem_dirty_bytes{OF}", "{{host}} dirty"),
            (f"hw_mem_writeback_bytes{OF}", "{{host}} being written"),
        ),
        graph(
            "Processes killed for lack of memory",
            "none",
            (f"increase(hw_oom_kills_total{OF}{RATE})", "{{host}}"),
            (f"increase(hw_cgroup_oom_kills_total{OF}{RATE})", "{{host}} container"),
            steps=BAD_FROM_ONE,
        ),
    ),
)
STORAGE = PanelRow(
    "Storage",
    (
        graph(
            "Free space",
            "percentunit",
            (f"hw_disk_free_bytes{OF} / hw_disk_total_bytes{OF}", "{{host}} {{mount}}"),
            most=1.0,
            about="A line that ends: the mount does not answer any more.",
        ),
        graph(
            "Read and written",
            "Bps",
            (f"rate(hw_disk_read_bytes_total{OF}{RATE})", "{{host}} {{device}} read"),
            (f"rate(hw_disk_written_bytes_total{OF}{RATE})", "{{host}} {{device}} written"),
        ),
        graph(
            "Busy",
            "percentunit",
            (f"rate(hw_disk_io_seconds_total{OF}{RATE})", "{{host}} {{device}}"),
            most=1.0,
        ),
        graph(
            "Waiting for storage",
            "percent",
            (f"hw_io_pressure_some_pct{OF}", "{{host}} some"),
            (f"hw_io_pressure_full_pct{OF}", "{{host}} all"),
            most=100.0,
        ),
        graph(
            "Waiting for storage, over five minutes",
            "percent",
            (f"hw_io_pressure_some_avg300_pct{OF}", "{{host}} some"),
            (f"hw_io_pressure_full_avg300_pct{OF}", "{{host}} all"),
            most=100.0,
            steps=((50.0, "red"),),
        ),
        graph(
            "All waited for storage",
            "percentunit",
            (f"rate(hw_io_pressure_full_total_us{OF}{RATE}) / 1e6", "{{host}}"),
            most=1.0,
            about="The share of time, from the kernel's own sum: no peak is missed.",
        ),
    ),
)
KERNEL = PanelRow(
    "Kernel",
    (
        graph(
            "Errors in the kernel log",
            "none",
            (f"increase(hw_dmesg_errors_total{OF}{RATE})", "{{host}} {{kind}}"),
            steps=BAD_FROM_ONE,
            width=12,
        ),
        table("Systems", f"hw_host_info{OF}", width=12),
    ),
)

HOST = Dashboard(
    name="host",
    title="Hosts",
    about="Processors, memory, storage and the kernel of the nodes.",
    rows=(CPU, MEMORY, STORAGE, KERNEL),
    variables=(HOST_VARIABLE,),
)
