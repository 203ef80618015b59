# ruff: noqa: E501 - log lines are as long as they are
"""What a machine's own records say of other times than that of the job."""

from __future__ import annotations

from tests.support.log_cases.parts import (
    ANYBODY,
    NOBODY,
    REMOTE_EXITED,
    Case,
    bad_batch,
    minutes,
    torchrun_table,
)

_RESET = "[Sat Mar  1 10:20:58 2025] usb 1-1: reset high-speed USB device number 2\n"
_OOM = "Out of memory: Killed process 999 ({name}) total-vm:1kB, anon-rss:1kB\n"
_XID = "NVRM: Xid (PCI:0000:0f:00): {code}, pid=77, name=python\n"
_WEDNESDAY = "[Wed Feb 26 08:11:58 2025] "
_TIME_LIMIT = (
    "slurmstepd: error: *** JOB 7 ON n09 CANCELLED AT 2025-03-01T10:00:00 DUE TO TIME LIMIT ***\n"
)
_SERVED = "INFO 03-01 10:11:50 [loggers.py:116] Engine 000: Avg prompt throughput: 30.0 tokens/s, Avg generation throughput: 120.5 tokens/s, Running: 3 reqs, Waiting: 0 reqs\n"
_ENGINE_DIED = "ERROR 03-01 10:12:04 [core_client.py:564] Engine core proc EngineCore_DP0 died unexpectedly, shutting down client.\n"
_STOPPING = "INFO:     Shutting down\n"
_STOPPED = "INFO:     Application shutdown complete.\nINFO:     Finished server process [1]\n"
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
    **{
        f"a killed container of {place}": Case(
            "oom-host",
            {"rank": rank, "node": "n09", "pid": 999},
            {
                **_with_kernel(
                    minutes()
                    + torchrun_table(13, 5, 76, -9, "7")
                    .replace("2025-05-01_10:10:05", "2025-03-01_10:11:51")
                    .replace("node7", host),
                    "[Sat Mar  1 10:11:50 2025] " + _OOM.format(name="python"),
                ),
                "n08/dmesg.txt": _RESET,
            },
        )
        for place, host, rank in (("that machine", "pod-1", 13), ("another machine", "n08", None))
    },
    "a crash of a serving engine": Case(
        "signal-kill",
        {"node": "n09", "pid": 48812},
        _with_kernel(
            _SERVED + _ENGINE_DIED,
            "[Sat Mar  1 10:12:03 2025] VLLM::EngineCor[48812]: segfault at 18 ip 00007f21 sp 00007ffd error 4 in libtorch_python.so[7f21]\n",
        ),
    ),
    "a serving engine that ended for no known reason": Case(
        "signal-kill", NOBODY, _SERVED + _ENGINE_DIED
    ),
    **{
        f"a server that {name}": Case(kind, NOBODY, _SERVED + first + then + _STOPPED)
        for name, kind, first, then in (
            ("was stopped", "completed", _STOPPING, _ENGINE_DIED),
            ("lost its engine", "signal-kill", _ENGINE_DIED, _STOPPING),
        )
    },
    "a pod evicted from a full node": Case(
        "preempted",
        {"node": "pt-worker-3"},
        {
            "pt-worker-3/describe.txt": "Reason:           Evicted\nMessage:          The node was low on resource: ephemeral-storage. Threshold quantity: 10737418240, available: 8123456Ki.\n",
            "pt-worker-0/pytorch.log": minutes() + f"{REMOTE_EXITED}\n",
        },
    ),
    "a pod evicted, in the events of its namespace": Case(
        "preempted",
        {"node": "pt-worker-3"},
        {
            "events.txt": "2025-03-01T10:12:30Z   Warning   Evicted   pod/pt-worker-3   The node was low on resource: memory.\n",
            "train.log": minutes() + f"{REMOTE_EXITED}\n",
        },
    ),
    **{
        f"{about}, and training went on": Case(
            "unknown-death",
            NOBODY,
            _with_kernel(minutes(30), f"[Sat Mar  1 10:02:00 2025] {record}"),
        )
        for about, record in (
            ("an exporter was killed", _OOM.format(name="node_exporter")),
            (
                "a row was remapped",
                "NVRM: Xid (PCI:0000:1a:00): 63, pid='<unknown>', name=<unknown>, Row remapping event\n",
            ),
        )
    },
    "a worker of the engine ended, and its engine stopped waiting": Case(
        "signal-kill",
        ANYBODY,
        _SERVED
        + "ERROR 03-01 10:12:04 [multiproc_executor.py:231] Worker proc VllmWorker-2 died unexpectedly, shutting down executor.\n"
        + "".join(
            f"(EngineCore_DP0 pid=1555) ERROR 03-01 10:12:05 [core.py:866] {line}\n"
            for line in (
                "EngineCore encountered a fatal error.",
                "Traceback (most recent call last):",
                '  File "/venv/vllm/distributed/device_communicators/shm_broadcast.py", line 464, in acquire_read',
                '    raise RuntimeError("cancelled")',
                "RuntimeError: cancelled",
            )
        )
        + "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.\n",
    ),
    "a spot machine's notice, then SIGTERM": Case(
        "preempted",
        ANYBODY,
        minutes()
        + "2025-03-01 10:12:00 WARNING spot: Instance termination notice received: i-0abc will be terminated\n"
        + "2025-03-01 10:13:55 INFO Received SIGTERM: 15\n",
    ),
}
