"""A status and an incident that the page must show, with hostile text in every place of them."""

from __future__ import annotations

from ray_sentinel.model.incident import ChainLink, Culprit, EvidenceItem, Incident, Verdict
from ray_sentinel.model.metrics import CollectorStatus
from ray_sentinel.model.status import (
    CoordinatorStatus,
    JobStatus,
    MemberStatus,
    NodeStatus,
    RankStatus,
    Status,
    Unwatched,
)

HOSTILE = "<img src=x onerror=\"document.title='owned'\">&amp;\x1b[31m"
NOW = 1_800_000_000.0


def status(*, ranks: int = 8, hostile: str = "") -> Status:
    """A hung job: rank 3 is stopped, the others wait."""
    lines = tuple(
        RankStatus(
            rank=number,
            host=f"node-{number % 2}{hostile}",
            pid=4000 + number,
            step=1204 if number != 3 else 1203,
            state="stopped" if number == 3 else "waiting",
            phase=f"train{hostile}",
            step_age_seconds=14.2,
        )
        for number in range(ranks)
    )
    job = JobStatus(
        job=f"llama{hostile}",
        attempt=1,
        step=1204,
        phase="train",
        step_age_seconds=14.2,
        ranks=lines,
        state="hung",
        world_size=ranks,
        step_seconds=0.83,
        expected=f"train for 14 s, usually up to 2.5 s{hostile}",
    )
    collectors = (
        CollectorStatus(name="host", state="running", success=True),
        CollectorStatus(name="nvml", state="quarantined", success=False, message=hostile or "slow"),
        CollectorStatus(name="amdgpu", state="skipped"),
    )
    nodes = tuple(
        NodeStatus(
            id=f"n{number}",
            host=f"node-{number}",
            address=f"10.0.0.{number + 1}",
            metrics_url=f"http://10.0.0.{number + 1}:9400/metrics",
            snapshot_age_seconds=0.4,
            is_head=number == 0,
            collectors=collectors,
        )
        for number in range(2)
    )
    return Status(
        state="hung",
        verdict=f"rank 3 on node-1 is stopped by a signal and 7 ranks wait for it{hostile}",
        nodes=nodes,
        unwatched=(Unwatched(id="n9", host="node-9", reason=f"no agent yet{hostile}"),),
        jobs=(job, _job_of_actors(hostile)),
        time=NOW,
        log_dir="/data/llama",
        notes=(f"port 9401 is taken{hostile}",),
        coordinator=CoordinatorStatus(
            reports_per_second=2.0,
            reports_due_per_second=2.0,
            cycle_seconds=0.0042,
            memory_bytes=181_000_000,
            memory_limit_bytes=2_000_000_000,
            series_bytes=640_000,
            series_limit_bytes=256_000_000,
            log_missing=3,
        ),
    )


def _job_of_actors(hostile: str) -> JobStatus:
    """A rollout stands still, and the driver waits for it."""
    driver = MemberStatus(label="driver", role="driver", host="node-0", pid=70, state="waiting")
    rollout = MemberStatus(
        label=f"Rollout 2{hostile}",
        role="Rollout",
        host="node-1",
        pid=72,
        method=f"Rollout.generate{hostile}",
        seconds=93.0,
        usual_seconds=2.5,
        state="silent",
    )
    return JobStatus(
        job="train_rl-1",
        attempt=0,
        step=None,
        phase="train",
        step_age_seconds=93.0,
        state="hung",
        ray_job="02000000",
        members=(driver, rollout),
        waits=f"driver waits 93 s in ray.get for Rollout.generate at Rollout 2{hostile}",
    )


def incident_of_actors(*, hostile: str = "") -> Incident:
    """The incident of the rollout that stands still."""
    steps = (
        ChainLink(start="driver", end="Trainer 1", how="ray.get", since=NOW - 93.0),
        ChainLink(start="Trainer 1", end="all_reduce of Trainer", how="in"),
        ChainLink(
            start="all_reduce of Trainer", end=f"Rollout 2{hostile}", how="has not come to it"
        ),
    )
    return Incident(
        id="0002",
        job="train_rl-1",
        attempt=0,
        kind="actor-stuck",
        severity="critical",
        state="captured",
        summary="Rollout 2 on node-1 stands still: sleeping in score (reward.py:88)",
        rule="ray.waits",
        suspected_at=NOW - 12.0,
        confirmed_at=NOW,
        last_progress=NOW - 93.0,
        verdict=Verdict(
            kind="actor-stuck",
            summary="Rollout 2 stands still",
            culprits=(
                Culprit(
                    rank=None, host="node-1", pid=72, reason="sleeping", role="Rollout",
                    actor="Rollout 2", method="Rollout.generate",
                ),
            ),
            chain=steps,
            confidence=0.9,
        ),
    )  # fmt: skip


def incident(*, number: str = "0001", hostile: str = "") -> Incident:
    """The stopped rank's incident."""
    return Incident(
        id=number,
        job="llama",
        attempt=1,
        kind="rank-stopped",
        severity="critical",
        state="captured",
        summary=f"rank 3 on node-1 is stopped{hostile}",
        rule="rank.stopped",
        suspected_at=NOW - 12.0,
        confirmed_at=NOW - 10.5,
        last_progress=NOW - 14.2,
        verdict=Verdict(
            kind="rank-stopped",
            summary="rank 3 is stopped",
            culprits=(
                Culprit(rank=3, host="node-1", pid=4003, reason=f"stopped by a signal{hostile}"),
            ),
            confidence=0.99,
            evidence=(
                EvidenceItem(
                    source="process",
                    text=f"its process has been stopped by a signal{hostile}",
                    rank=3,
                ),
            ),
        ),
        bundle=f"/data/llama/incidents/x-{number}{hostile}",
    )
