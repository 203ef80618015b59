# ruff: noqa: E501 - log lines are as long as they are
"""What a machine's own records say of other times than that of the job."""

from __future__ import annotations

from tests.support.log_cases.parts import ANYBODY, Case, bad_batch, minutes

_RESET = "[Sat Mar  1 10:20:58 2025] usb 1-1: reset high-speed USB device number 2\n"
_OOM = "Out of memory: Killed process 999 ({name}) total-vm:1kB, anon-rss:1kB\n"
_XID = "NVRM: Xid (PCI:0000:0f:00): {code}, pid=77, name=python\n"
_WEDNESDAY = "[Wed Feb 26 08:11:58 2025] "
_TIME_LIMIT = (
    "slurmstepd: error: *** JOB 7 ON n09 CANCELLED AT 2025-03-01T10:00:00 DUE TO TIME LIMIT ***\n"
)
_NIGHT = "".join(minutes(60, hour) for hour in range(10))


def _with_kernel(job: str, record: str) -> dict[str, str]:
    return {"job.log": job, "n09/dmesg.txt": record + _RESET}


CASES: dict[str, Case] = {
    "a browser killed days before": Case(
        "python-exception",
        {"rank": 3},
        _with_kernel(minutes() + bad_batch(3), _WEDNESDAY + _OOM.format(name="chrome")),
    ),
    **{
        f"xid {code} days before": Case(
            "python-exception",
            {"rank": 3},
            _with_kernel(minutes() + bad_batch(3), _WEDNESDAY + _XID.format(code=code)),
        )
        for code in (79, 63)
    },
    **{
        f"{name} long before the time limit": Case(
            "cancelled",
            ANYBODY,
            _with_kernel(_NIGHT + _TIME_LIMIT, "[Sat Mar  1 00:30:00 2025] " + record),
        )
        for name, record in {
            "tensorboard killed": _OOM.format(name="tensorboard"),
            "xid 63": _XID.format(code=63),
            "xid 31": _XID.format(code=31),
        }.items()
    },
    "a record in the machine's own time zone": Case(
        "oom-host",
        {"node": "n09"},
        _with_kernel(minutes(), "[Sat Mar  1 02:10:40 2025] " + _OOM.format(name="python")),
    ),
    "a machine lost at the end": Case(
        "gpu-lost",
        ANYBODY,
        _with_kernel(
            minutes() + bad_batch(3),
            "[Sat Mar  1 10:11:50 2025] NVRM: Xid (PCI:0000:0f:00): 79, pid=77, GPU has fallen off the bus.\n",
        ),
    ),
}
