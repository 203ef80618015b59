"""Alerts on memory, disks and the kernel of a host."""

from __future__ import annotations

from ray_sentinel.store.alerts.model import WATCHED, Alert, AlertGroup, grew

_MOUNT = "{{ $labels.mount }} of {{ $labels.host }}"
_FREE = "hw_disk_free_bytes / hw_disk_total_bytes"
_HOST_READ = 'ray_sentinel_collector_success{collector="host"} == 1'

MEMORY = (
    Alert(
        name="OutOfMemorySoon",
        expr="hw_mem_available_bytes / hw_mem_total_bytes < 0.03",
        severity="critical",
        wait="1m",
        summary="{{ $labels.host }} has less than 3 % of its memory left",
        action="The kernel will kill a process, likely a rank: look for what grows.",
    ),
    Alert(
        name="CgroupOutOfMemorySoon",
        # The page cache counts as used, and a full one is healthy: only with pressure it is not.
        expr="hw_cgroup_mem_used_bytes / hw_cgroup_mem_limit_bytes > 0.95"
        " and on (host) hw_mem_pressure_some_pct > 10",
        severity="warning",
        wait="1m",
        summary="The container on {{ $labels.host }} is at its memory limit, and waits for memory",
        action="Raise the limit, or use fewer data workers.",
    ),
    Alert(
        name="OutOfMemoryKill",
        expr=f"({grew('hw_oom_kills_total')}) or ({grew('hw_cgroup_oom_kills_total')})",
        severity="critical",
        summary="The kernel killed a process for lack of memory on {{ $labels.host }}",
        action="The kernel log names the process; a rank that was killed leaves no message.",
    ),
)
DISKS = (
    Alert(
        name="DiskFull",
        expr=f"{_FREE} < 0.03",
        severity="critical",
        wait="1m",
        summary=f"{_MOUNT} is full to 97 %",
        action="The next checkpoint or log line fails: make room.",
    ),
    Alert(
        name="DiskFillsUp",
        expr=f"predict_linear(hw_disk_free_bytes[1h], 4 * 3600) < 0 and {_FREE} < 0.25",
        severity="warning",
        wait="10m",
        summary=f"{_MOUNT} will be full within four hours",
        action="Make room, or keep fewer checkpoints.",
    ),
    Alert(
        name="MountDoesNotAnswer",
        expr="(last_over_time(hw_disk_total_bytes[30m]) unless hw_disk_total_bytes)"
        f" and on (host) ({_HOST_READ})",
        severity="warning",
        wait="2m",
        summary=f"{_MOUNT} does not answer any more",
        action="A file server that is gone hangs every process that touches it: look at the mount.",
    ),
    Alert(
        name="IoPressure",
        expr="hw_io_pressure_full_avg300_pct > 50",
        severity="warning",
        wait="10m",
        summary="{{ $labels.host }} spends half of its time waiting for storage",
        action="Look at the file server, or at what else uses this disk.",
    ),
)
KERNEL = (
    Alert(
        name="TasksHang",
        expr=grew('hw_dmesg_errors_total{kind="hung_task"}'),
        severity="warning",
        summary="The kernel of {{ $labels.host }} reports a task that hangs",
        action="`ray-sentinel inspect` shows what it waits in.",
    ),
    Alert(
        name="HardwareErrors",
        expr=grew('hw_dmesg_errors_total{kind=~"mce|nvme"}'),
        severity="warning",
        summary="The kernel of {{ $labels.host }} reports errors ({{ $labels.kind }})",
        action="Drain the node if they come back.",
    ),
    Alert(
        name="TasksBlocked",
        expr="sum by (host) (hw_dstate_processes) >= 5",
        severity="warning",
        wait="10m",
        summary="Processes of {{ $labels.host }} hang in the kernel",
        action="hw_dstate_processes tells in which function: storage, network or a driver.",
    ),
)
PRESENCE = (
    Alert(
        name="NodeLost",
        # A rank that ended is served as 0 before its node goes: what was alive to the last, and is
        # on no host that is watched, went with its node.
        expr="count by (host) (last_over_time(train_rank_alive[10m]) == 1)"
        f" unless on (host) {WATCHED}",
        severity="critical",
        wait="30s",
        summary="{{ $labels.host }} is gone, with the ranks that ran on it",
        action="Look at the machine; the job cannot go on without these ranks.",
    ),
)

HOST = AlertGroup("host", PRESENCE + MEMORY + DISKS + KERNEL)
