# ruff: noqa: E501 - log lines are as long as they are
"""Launchers below launchers, and the numbers that each of them gives."""

from __future__ import annotations

from tests.support.log_cases.parts import (
    ANYBODY,
    GLOO_CLOSED,
    NOBODY,
    Case,
    bad_batch,
    minutes,
    rank_log,
    torchrun_table,
    watchdog,
    watchdog_detail,
)


def _behind(prefix: str, text: str) -> str:
    return "".join(f"{prefix}{line}\n" for line in text.splitlines())


_TABLE = torchrun_table(11, 3, 203, 1, "01")
_ELEVEN = {"rank": 11, "node": "node01", "pid": 203}
_OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79 GiB\n"
_LATE = [
    watchdog(rank, 119 if rank == 11 else 120, op="ALLREDUCE").splitlines(keepends=True)
    for rank in range(16)
]


def _watchdogs() -> str:
    """All ranks but the eleventh wait for the same collective."""
    return "".join(
        f"{0 if rank < 8 else 1}: {line}"
        for rank, lines in enumerate(_LATE)
        if rank != 11
        for line in lines
    )


def _redirected(error: str) -> dict[str, str]:
    """torchrun's folder of a node on which all but rank 3 wait until the time-out."""
    said = [watchdog(rank) + watchdog_detail(rank, 120, 121, 119) for rank in range(3)]
    folder = "run/attempt_0"
    outputs = {f"{folder}/{rank}/stderr.log": text for rank, text in enumerate([*said, error])}
    return outputs | {f"{folder}/{rank}/stdout.log": rank_log(rank) for rank in range(4)}


CASES: dict[str, Case] = {
    "srun around torchrun, rank's own prefix": Case(
        "python-exception",
        _ELEVEN,
        minutes(prefix="0: ") + bad_batch(11, "1: ") + _behind("1: ", _TABLE),
    ),
    "srun around torchrun, local rank": Case(
        "python-exception",
        _ELEVEN,
        minutes(prefix="0: ") + bad_batch(None, "1: [default3]:") + _behind("1: ", _TABLE),
    ),
    "srun around torchrun, the task alone": Case(
        "python-exception",
        _ELEVEN,
        minutes(prefix="0: ") + bad_batch(None, "1: ") + _behind("1: ", _TABLE),
    ),
    "srun around torchrun, another task's table": Case(
        "python-exception",
        NOBODY,
        minutes(prefix="0: ") + bad_batch(None, "2: ") + _behind("1: ", _TABLE),
    ),
    "srun around ranks": Case(
        "python-exception",
        {"rank": 11},
        minutes(prefix=" 0: ") + bad_batch(None, "11: "),
    ),
    "srun around torchrun, watchdogs": Case(
        "nccl-timeout", {"rank": 11}, minutes(prefix="0: ") + _watchdogs()
    ),
    "the local rank, and a table": Case(
        "python-exception", _ELEVEN, minutes() + bad_batch(None, "[default3]:") + _TABLE
    ),
    "a local rank's file, and a table": Case(
        "python-exception",
        _ELEVEN,
        {
            "run/attempt_0/3/stderr.log": bad_batch(),
            "job.log": minutes() + _TABLE,
        },
    ),
    "a local rank, and a table of another one": Case(
        "python-exception",
        {"rank": None},
        minutes() + bad_batch(None, "[default2]:") + _TABLE,
    ),
    **{
        f"no rank of the job: {prefix}": Case("oom-gpu", {"rank": None}, minutes() + prefix + _OOM)
        for prefix in ("[TP rank 1] ", "[node rank 1] ", "[step100]: ")
    },
    "srun ends the others": Case(
        "unknown-death",
        {"rank": 14, "node": "n07"},
        minutes()
        + "srun: error: n07: task 14: Exited with exit code 1\n"
        + "slurmstepd: error: *** STEP 1.0 ON n00 CANCELLED AT 2025-03-01T10:13:00 ***\n"
        + "srun: error: n00: tasks 0-7: Killed\n",
    ),
    "srun names a range": Case(
        "unknown-death",
        {"rank": None, "node": "n01"},
        minutes() + "srun: error: n01: tasks 8-15: Exited with exit code 1\n",
    ),
    "srun sees a task killed first": Case(
        "signal-kill",
        {"rank": 5, "node": "n00"},
        minutes()
        + "srun: error: n00: task 5: Killed\n"
        + "srun: Terminating StepId=1.0\n"
        + "srun: error: n01: tasks 8-15: Terminated\n",
    ),
    "srun ends the tasks of a cancelled job": Case(
        "cancelled",
        ANYBODY,
        minutes()
        + "slurmstepd: error: *** JOB 1 ON n00 CANCELLED AT 2025-03-01T10:13:00 ***\n"
        + "srun: error: n00: tasks 0-7: Killed\n",
    ),
    "DeepSpeed's launcher of one node ends": Case(
        "signal-kill",
        {"rank": None, "node": "worker-1"},
        minutes()
        + "worker-1: [2025-03-01 10:12:27,879] [INFO] [launch.py:428:sigkill_handler] Killing subprocess 13266\n"
        + "worker-1: [2025-03-01 10:12:28,885] [ERROR] [launch.py:434:sigkill_handler] ['/usr/bin/python3', '-u', 'main.py', '--local_rank=3'] exits with return code = -9\n"
        + "pdsh@head: worker-1: ssh exited with exit code 247\n",
    ),
    "a crash before the others' start-up fails": Case(
        "signal-kill",
        {"rank": 0},
        "0: Fatal Python error: Segmentation fault\n"
        + "0: E0909 14:03:50.013000 22579 torch/distributed/elastic/multiprocessing/api.py:833] failed (exitcode: -11) local_rank: 0 (pid: 2128) of binary: /env/bin/python\n"
        + "1: [E909 14:03:51.000000000 socket.cpp:957] [c10d] The client socket has timed out after 60000ms while trying to connect to (g1002, 29500).\n",
    ),
    **{
        f"an undated {name} of the rank that the others wait for": Case(
            kind, {"rank": 3}, _redirected(error)
        )
        for name, kind, error in (
            ("error", "python-exception", bad_batch()),
            ("error, long ago,", "nccl-timeout", bad_batch() + "loading shard\n" * 400),
            ("loss of its peer", "nccl-timeout", f"{GLOO_CLOSED}\n"),
        )
    },
    "a launcher that is streamed": Case(
        "signal-kill",
        {"rank": 3, "pid": 5024},
        minutes()
        + "(head, rank=0, pid=4503) E0301 10:12:02.100000 4503 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -9) local_rank: 3 (pid: 5024) of binary: /opt/conda/bin/python\n",
    ),
}
