"""Whether all is well, in one document. Pure."""

from __future__ import annotations

from typing import Any

from ray_sentinel.model.status import Status

STALE_SECONDS = 5.0


def health_of(status: Status) -> dict[str, Any]:
    """The keys of ``health --json``; a part that nobody has looked at is None.

    >>> health_of(Status(state="healthy", verdict="all is well"))["healthy"]
    True
    """
    issues = [] if status.state in ("healthy", "unknown") else [status.verdict]
    issues += [f"{node.host} is not watched: {node.reason}" for node in status.unwatched]
    issues += [
        f"{node.host} has not reported for {node.snapshot_age_seconds:.0f} s"
        for node in status.nodes
        if (node.snapshot_age_seconds or 0.0) > STALE_SECONDS
    ]
    failing = {
        f"{node.host}/{collector.name}": collector.message or collector.state
        for node in status.nodes
        for collector in node.collectors
        if collector.state in ("quarantined", "stuck")
        or (collector.state == "running" and collector.success is False)
    }
    issues += [f"collector {name}: {message}" for name, message in failing.items()]
    return {
        "healthy": not issues,
        "issues": issues,
        "gpu": None,
        "ray": {"nodes": len(status.nodes), "unwatched": len(status.unwatched)},
        "transport": None,
        "checkpoints": None,
        "progress": {
            job.job: {"state": job.state, "step": job.step, "step_age": job.step_age_seconds}
            for job in status.jobs
            if not job.ended
        },
        "collectors": {"failing": failing},
    }
