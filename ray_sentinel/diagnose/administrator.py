"""The report that a cluster's administrator needs to act on a node with a hardware or driver fault.

Node, kernel and driver versions, call stack, error count, processes in D state, onset, and that the
other nodes are clean.
"""

from __future__ import annotations

from ray_sentinel.diagnose.case import JobCase
from ray_sentinel.diagnose.detect import driver, faults
from ray_sentinel.diagnose.panel import listed
from ray_sentinel.diagnose.wording import moment

UNKNOWN = "not recorded"


def report(case: JobCase, hosts: list[str]) -> str:
    """One section a host, in Markdown."""
    return "\n\n".join(_section(case, host) for host in hosts)


def _section(case: JobCase, host: str) -> str:
    own = [fault for fault in case.once(faults.find) if fault.host == host]
    sick = next((one for one in case.once(driver.find) if one.host == host), None)
    info = _versions(case, host)
    onset = min([fault.at for fault in own] + ([sick.at] if sick else []), default=None)
    kernel = sum(fault.count for fault in own if fault.kind == "dmesg-gpu")
    lines = [
        f"**Node:** {host}",
        f"**Kernel:** {info.get('kernel') or UNKNOWN}",
        f"**GPU driver:** {info.get('amdgpu') or info.get('nvidia') or UNKNOWN}",
        f"**Onset:** {_moment(onset)}",
        f"**GPU errors in the kernel log during the job:** {kernel:.0f}",
        f"**Processes in D state:** {f'{sick.dstate:.0f} {sick.wchan}'.strip() if sick else '0'}",
        *(f"**Error:** {fault.anomaly.text}" for fault in own if fault.kind != "dmesg-gpu"),
        *(f"**Sign:** {sign.text}" for sign in (sick.anomalies if sick else ())),
        f"**Kernel log:** {_kernel_log(case, host)}",
        f"**Other nodes:** {_others(case, host)}",
    ]
    return "\n".join(f"- {line}" for line in lines)


def _versions(case: JobCase, host: str) -> dict[str, str]:
    panel = case.view.panel("host.info").of(host)
    return dict(panel.rows[0].labels) if panel.rows else {}


def _kernel_log(case: JobCase, host: str) -> str:
    lines = [fact.text for fact in case.logs.facts if fact.source == "kernel" and fact.host == host]
    if lines:
        return "\n" + "\n".join(f"      {line}" for line in lines[-40:])
    return f"{UNKNOWN}; `ray-sentinel inspect {host}` reads it now"


def _others(case: JobCase, host: str) -> str:
    dirty = sorted(
        {fault.host for fault in case.once(faults.find) if fault.severity != "note"} - {host}
    )
    count = len(case.hosts) - 1
    if not dirty:
        return f"all {count} clean" if count > 0 else "there are none"
    return f"{count - len(dirty)} of {count} clean; also with errors: {listed(dirty)}"


def _moment(at: float | None) -> str:
    if at is None:
        return UNKNOWN
    return moment(at)
