"""Lanes as Chrome's trace events, which Perfetto and ``chrome://tracing`` open.

A job is a process and a lane one of its threads; a stretch is a complete event ("X"), whose times
are in microseconds since the trace's beginning.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ray_sentinel.model.last_hour import JobLanes, LanesReport

TENTH = 100_000
"""A tenth of a second in microseconds."""


def trace_of(report: LanesReport) -> dict[str, Any]:
    """The trace as an object for JSON."""
    return {
        "traceEvents": [
            event for pid, job in enumerate(report.jobs, start=1) for event in _events(pid, job)
        ],
        "displayTimeUnit": "ms",
        "otherData": {"begin_unix_seconds": report.begin, "end_unix_seconds": report.end},
    }


def _events(pid: int, job: JobLanes) -> Iterator[dict[str, Any]]:
    attempt = f" (attempt {job.attempt})" if job.attempt else ""
    yield _named("process_name", pid, 0, name=f"{job.job}{attempt}")
    for tid, lane in enumerate(job.lanes, start=1):
        yield _named("thread_name", pid, tid, name=lane.name)
        yield _named("thread_sort_index", pid, tid, sort_index=tid)
        for kind, begin, length in lane.stretches:
            yield {
                "ph": "X",
                "name": job.kinds[kind],
                "cat": job.of,
                "pid": pid,
                "tid": tid,
                "ts": begin * TENTH,
                "dur": length * TENTH,
            }


def _named(what: str, pid: int, tid: int, **args: str | int) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": args}
