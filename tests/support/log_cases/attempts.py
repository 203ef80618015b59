"""Several attempts, each in a file of its own."""

from __future__ import annotations

from tests.support.log_cases.parts import ANYBODY, Case, bad_batch, minutes

_OOM = "[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
_TIME_LIMIT = (
    "slurmstepd: error: *** JOB {job} ON n09 CANCELLED AT 2025-03-01T{at} DUE TO TIME LIMIT ***\n"
)
_FIRST = minutes(100, 0) + bad_batch(3)


def _second(end: str) -> dict[str, str]:
    return {"attempt1.log": _FIRST, "attempt2.log": minutes(300, 2, 6) + end}


CASES: dict[str, Case] = {
    "a failed attempt, the next one went on": Case("unknown-death", ANYBODY, _second("")),
    "a failed attempt, and another failure": Case("oom-gpu", {"rank": 5}, _second(_OOM)),
    "a failed attempt, and the time limit": Case(
        "cancelled", ANYBODY, _second(_TIME_LIMIT.format(job=7, at="07:06:00"))
    ),
    "two jobs of whole half hours": Case(
        "completed",
        ANYBODY,
        {
            "slurm-1001.out": minutes(241, 0) + _TIME_LIMIT.format(job=1001, at="04:00:30"),
            "slurm-1002.out": minutes(238, 4, 1)
            + "[2025-03-01 07:59:30] Training finished successfully\n",
        },
    ),
}
