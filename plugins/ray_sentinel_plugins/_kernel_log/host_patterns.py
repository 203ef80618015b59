"""Lines of the kernel itself and of its drivers for storage and networks."""

from __future__ import annotations

from ray_sentinel_plugins._kernel_log.patterns import PCI, Pattern, row

OOM = "kernel.oom"

_LINK = r"\b(?P<device>[\w.-]+)(?: port \d+)?: (?:Port: (?P<port>\d+) )?(?:NIC )?[Ll]ink (?:is )?"
_SLAVE = r"\(slave (?P<device>[\w.-]+)\): link status definitely "

TASKS: tuple[Pattern, ...] = (
    # Before 5.1 a line "Kill process" came first; only the killing itself is counted.
    row(
        OOM,
        "Killed process",
        r"Killed process (?P<pid>\d+),? (?:UID (?P<uid>\d+), )?\((?P<comm>.*?)\)",
        r"(?:,? total-vm:\d+kB, anon-rss:(?P<anon_rss_kb>\d+)kB)?",
        counted="oom",
        severity="critical",
    ),
    row(
        "kernel.hung_task",
        "blocked",
        r"INFO: task (?P<comm>.+):(?P<pid>\d+) (?:<[^>]*> )?(?:is )?blocked ",
        r"(?:in I/O wait )?for more than (?P<seconds>\d+) seconds",
        counted="hung_task",
    ),
    row(
        "kernel.lockup",
        "lockup",
        r"BUG: (?P<what>soft lockup|workqueue lockup)(?:.* CPU#(?P<cpu>\d+))?",
        severity="critical",
    ),
    row(
        "kernel.lockup",
        "hard LOCKUP",
        r"(?P<what>hard LOCKUP) on cpu (?P<cpu>\d+)",
        severity="critical",
    ),
    row("kernel.rcu_stall", "rcu", r"\brcu\w*[: ].*detected (?:expedited )?stalls?\b"),
)

STORAGE: tuple[Pattern, ...] = (
    row(
        "kernel.nvme",
        "nvme",
        r"\b(?P<device>nvme\d+)(?:c\d+)?(?:n\d+)?: .*(?:timeout, (?:abort|reset|disabl|completion)",
        r"|controller is down|will reset|resetting controller|not ready|after probe failure",
        r"|after reset failure|frozen state error|I/O error|critical \w+ error|Abort status)",
        counted="nvme",
    ),
    row(
        "kernel.nvme",
        "error, dev nvme",
        r"error, dev (?P<device>nvme\w+), sector (?P<sector>\d+)",
        counted="nvme",
    ),
    row("kernel.disk", "error, dev ", r"error, dev (?P<device>[\w.-]+), sector (?P<sector>\d+)"),
)

NETWORK: tuple[Pattern, ...] = (
    row("kernel.link_down", "ink", _LINK, r"(?:[Dd]own|DOWN)\b", counted="net"),
    row("kernel.link_down", "definitely", _SLAVE, r"down", counted="net"),
    row("kernel.link_up", "ink", _LINK, r"(?:[Uu]p|UP|ACTIVE)\b", severity="info"),
    row("kernel.link_up", "definitely", _SLAVE, r"up", severity="info"),
    row(
        "kernel.net_timeout",
        "NETDEV WATCHDOG",
        r"NETDEV WATCHDOG: .*?(?P<device>[\w.-]+) \((?P<driver>\w+)\): ",
        r"transmit queue (?P<queue>\d+) timed out",
        counted="net",
    ),
    row(
        "kernel.mlx5",
        "mlx5_core",
        rf"mlx5_core {PCI}.*(?:health compromised|assert_var|firmware internal error|Fatal error",
        r"|timeout\. Will cause a leak)",
        counted="net",
    ),
    row(
        "kernel.aer",
        "severity=Uncorrect",
        rf"{PCI}: (?:AER: )?PCIe Bus Error: severity=(?P<error>Uncorrect\w+ \(\w+-?\w*\))",
    ),
    row(
        "kernel.aer",
        "PCIe Bus Error",
        rf"{PCI}: (?:AER: )?PCIe Bus Error: severity=",
        r"(?P<error>Correct\w+)",
        severity="warning",
    ),
)
