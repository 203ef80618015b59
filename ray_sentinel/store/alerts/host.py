"""Alerts on memory, disks and the kernel of a host."""

from __future__ import annotations

from ray_sentinel.store.alerts.model import WATCHED, AlertGroup, critical, grew, warning

_MOUNT = "{{ $labels.mount }} of {{ $labels.host }}"
_FREE = "hw_disk_free_bytes / hw_disk_total_bytes"
_HOST_READ = 'ray_sentinel_collector_success{collector="host"} == 1'

MEMORY = (
    critical(
        "OutOfMemorySoon",
        "hw_mem_available_bytes / hw_mem_total_bytes < 0.03",
        "{{ $labels.host }} has less than 3 % of its memory left",
        "The kernel will kill a process, likely a rank: look for what grows.",
        wait="1m",
    ),
    warning(
        "CgroupOutOfMemorySoon",
        # The page cache counts as used, and a full one is healthy: only with pressure it is not.
        "hw_cgroup_mem_used_bytes / hw_cgroup_mem_limit_bytes > 0.95"
        " and on (host) hw_mem_pressure_some_pct > 10",
        "The container on {{ $labels.host }} is at its memory limit, and waits for memory",
        "Raise the limit, or use fewer data workers.",
        wait="1m",
    ),
    critical(
        "OutOfMemoryKill",
        f"({grew('hw_oom_kills_total')}) or ({grew('hw_cgroup_oom_kills_total')})",
        "The kernel killed a process for lack of memory on {{ $labels.host }}",
        "The kernel log names the process; a rank that was killed leaves no message.",
    ),
)
DISKS = (
    critical(
        "DiskFull",
        f"{_FREE} < 0.03",
        f"{_MOUNT} is full to 97 %",
        "The next checkpoint or log line fails: make room.",
        wait="1m",
    ),
    warning(
        "DiskFillsUp",
        f"predict_linear(hw_disk_free_bytes[1h], 4 * 3600) < 0 and {_FREE} < 0.25",
        f"{_MOUNT} will be full within four hours",
        "Make room, or keep fewer checkpoints.",
        wait="10m",
    ),
    warning(
        "MountDoesNotAnswer",
        "(last_over_time(hw_disk_total_bytes[30m]) unless hw_disk_total_bytes)"
        f" and on (host) ({_HOST_READ})",
        f"{_MOUNT} does not answer any more",
        "A file server that is gone hangs every process that touches it: look at the mount.",
        wait="2m",
    ),
    warning(
        "IoPressure",
        "hw_io_pressure_full_avg300_pct > 50",
        "{{ $labels.host }} spends half of its time waiting for storage",
        "Look at the file server, or at what else uses this disk.",
        wait="10m",
    ),
)
KERNEL = (
    warning(
        "TasksHang",
        grew('hw_dmesg_errors_total{kind="hung_task"}'),
        "The kernel of {{ $labels.host }} reports a task that hangs",
        "`ray-sentinel inspect` shows what it waits in.",
    ),
    warning(
        "HardwareErrors",
        grew('hw_dmesg_errors_total{kind=~"mce|nvme"}'),
        "The kernel of {{ $labels.host }} reports errors ({{ $labels.kind }})",
        "Drain the node if they come back.",
    ),
    warning(
        "TasksBlocked",
        "sum by (host) (hw_dstate_processes) >= 5",
        "Processes of {{ $labels.host }} hang in the kernel",
        "hw_dstate_processes tells in which function: storage, network or a driver.",
        wait="10m",
    ),
)
PRESENCE = (
    critical(
        "NodeLost",
        # A rank that ended is served as 0 before its node goes: what was alive to the last, and is
        # on no host that is watched, went with its node.
        f"count by (host) (last_over_time(train_rank_alive[10m]) == 1) unless on (host) {WATCHED}",
        "{{ $labels.host }} is gone, with the ranks that ran on it",
        "Look at the machine; the job cannot go on without these ranks.",
        wait="30s",
    ),
)

HOST = AlertGroup("host", PRESENCE + MEMORY + DISKS + KERNEL)
