"""ray.deaths: an actor or the driver of a Ray job has ended unintentionally."""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.ray.deaths import first_cause
from ray_sentinel.engine.ray.job_view import RayJobView
from ray_sentinel.engine.rule import Rule
from ray_sentinel.engine.verdicts.exits import is_abnormal
from ray_sentinel.model.fault_kinds import KINDS
from ray_sentinel.model.incident import Culprit, EvidenceItem, FaultKind, Finding, Severity, Verdict
from ray_sentinel.model.ray_deaths import RayDeath


class RayDeaths(Rule):
    """Names the first that ended; those that ended because of it are echoes."""

    name = "ray.deaths"

    def evaluate(self, view: ClusterView, now: float) -> Iterator[Finding]:
        for job in view.ray.jobs.values():
            deaths = view.deaths_of(job, now)
            first = first_cause(deaths)
            if first is None or (job.name, 0) not in view.jobs:
                continue
            if first.cause != "exception" and _belongs_to_rank_exited(view, first):
                continue
            yield self._finding(view, job, first, deaths)

    def _finding(
        self, view: ClusterView, job: RayJobView, first: RayDeath, deaths: list[RayDeath]
    ) -> Finding:
        rank = view.rank_at(first.node, first.pid)
        kind = _kind(first, is_rank=rank is not None)
        driver = next((death for death in deaths if death.what == "driver"), None)
        well = driver is None or driver.cause == "finished"
        severity: Severity = "warning" if well and first.what != "driver" else "critical"
        host = view.host_of(first.node) if first.node else view.host_at(first.address)
        reason = f"{PHRASES[first.cause]}: {first.detail}" if first.detail else PHRASES[first.cause]
        ended = (
            ""
            if driver is None
            else ", and the job ended well without it"
            if well
            else (", and the job with it" if first.what != "driver" else "")
        )
        # An actor whose runtime environment could not be built never came to a node.
        where = f"{first.label} on {host}" if host else first.label
        summary = f"{where} {reason}{ended}"
        echoes = sum(death.is_echo for death in deaths)
        verdict = Verdict(
            kind=kind,
            summary=summary,
            culprits=(
                Culprit(
                    rank=rank,
                    host=host,
                    pid=first.pid or None,
                    reason=reason,
                    role=first.role,
                    actor=first.label if first.what == "actor" else "",
                    method=first.method,
                ),
            ),
            confidence=0.95,
            evidence=tuple(_evidence(death) for death in deaths if not death.is_echo)
            + ((EvidenceItem(source="ray", text=_echoes(echoes)),) if echoes else ()),
            next_steps=KINDS[kind].next_steps,
        )
        return Finding(
            rule=self.name,
            job=job.name,
            attempt=0,
            kind=kind,
            severity=severity,
            summary=summary,
            hard=True,
            settled=True,
            verdict=verdict,
        )


def _belongs_to_rank_exited(view: ClusterView, death: RayDeath) -> bool:
    """Whether it is a rank's death that ``rank.exited`` reports, or still may. Not the death of a
    rank that left with status 0 while all others ended because the driver did."""
    found = view.job_at(death.node, death.pid)
    if found is None:
        return False
    job, rank = found
    ends = [exit_ for _, exit_ in job.exits_and_dying()]
    if all(exit_.rank.process != rank.rank.process for exit_ in ends):
        return True
    failed = (exit_.rank for exit_ in ends if is_abnormal(exit_))
    return not all(view.deaths.spares(one.node, one.process) for one in failed)


PHRASES = {
    "exception": "raised",
    "constructor": "raised in its constructor",
    "signal": "was killed",
    "exited": "left",
    "oom-kernel": "was killed because memory ran out",
    "oom-ray": "was killed by Ray's memory monitor",
    "runtime-env": "has no runtime environment",
}


def _kind(first: RayDeath, *, is_rank: bool) -> FaultKind:
    if first.cause in ("oom-kernel", "oom-ray"):
        return "oom-killed"
    if is_rank:
        return "rank-dead"
    return "driver-dead" if first.what == "driver" else "actor-dead"


def _evidence(death: RayDeath) -> EvidenceItem:
    said = f": {death.detail}" if death.detail else ""
    return EvidenceItem(
        source="ray", text=f"{death.label} ended ({death.cause}){said}, by {death.witness}"
    )


def _echoes(count: int) -> str:
    return (
        "one process ended because of it: an echo"
        if count == 1
        else f"{count} processes ended because of it: echoes"
    )
