"""A case made of recorded evidence alone, without a cluster: the contents of a folder, judged as
live evidence is.

The weights, the kinds and the sentence are those of the live verdict (``suspects``, ``verdict``).
What only the live engine knows is left out: how long the job has been silent, what its ranks'
processes did, what the nodes' metrics say; except for what an incident's record has kept of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ray_sentinel.config import HangConfig
from ray_sentinel.engine.incidents.case import OURSELVES, Case
from ray_sentinel.engine.jobs import LEARNING_SECONDS, JobView
from ray_sentinel.engine.phases import PhaseBook
from ray_sentinel.engine.verdicts.judgement import Judgement
from ray_sentinel.engine.verdicts.verdict import judge
from ray_sentinel.model.identity import ProcessId, Rank, RankId
from ray_sentinel.model.incident import EvidenceItem, Finding, Incident
from ray_sentinel.model.progress import ProcessState, RankSnapshot
from ray_sentinel.model.ras import RasFacts
from ray_sentinel.model.recorder import RecorderFacts
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.waitgraph.confidence import PROOF, RAS, RECORDER, STACKS

JOB = "the job"
_APART = 60.0
"""Seconds that are assumed between two looks where the files do not tell: they were made by hand,
one after the other."""


class FolderEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """The evidence that was read about one job."""

    rounds: Sequence[Sequence[StackFact]] = ()
    """Rounds of stacks, the oldest first, one fact for each process; those without a rank are left
    out."""
    recorder: RecorderFacts | None = None
    ras: RasFacts | None = None
    incident: Incident | None = None
    """Its record: what processes, exits and nodes showed then counts as recorded."""
    processes: dict[int, ProcessId] = {}
    """Processes of ranks, if more is known than the stacks show."""


def judged(evidence: FolderEvidence) -> Judgement:
    """The judgement that the live engine would give on this evidence. With "wait", the verdict says
    why it would not be published yet."""
    case = _case(evidence)
    hosts = {view.node: view.node for view in case.job.ranks.values()}
    proven = any(finding.hard for finding in case.findings.values())
    found = judge(case, 0.0, host_of=hosts, proven=proven)
    culprits = tuple(
        msgspec.structs.replace(one, pid=one.pid or None) for one in found.verdict.culprits
    )
    verdict = msgspec.structs.replace(found.verdict, culprits=culprits)
    return msgspec.structs.replace(found, verdict=verdict)


def recorded_items(evidence: FolderEvidence) -> tuple[EvidenceItem, ...]:
    """Evidence that only the incident's record contains: on processes, exits, progress and nodes,
    and on stacks, recorders and RAS where their files are not there to be judged again."""
    verdict = evidence.incident.verdict if evidence.incident is not None else None
    again = {
        STACKS: any(evidence.rounds),
        RECORDER: evidence.recorder is not None,
        RAS: evidence.ras is not None,
    }
    items = verdict.evidence if verdict is not None else ()
    return tuple(item for item in items if not again.get(item.source))


def _case(evidence: FolderEvidence) -> Case:
    incident = evidence.incident
    job = incident.job if incident is not None else JOB
    attempt = incident.attempt if incident is not None else 0
    processes = _processes(evidence)
    view = JobView(number=1, job=job, attempt=attempt, first_seen=0.0, last_moved=0.0)
    view.bind(HangConfig(), PhaseBook())
    # Unless something shows that it still waits for its ranks to join, it had trained, like most
    # jobs that hang.
    view.busy_seconds = LEARNING_SECONDS
    for number, process in sorted(processes.items()):
        rank = Rank(
            id=RankId(job, attempt, number),
            process=process,
            node=process.host,
            world_size=max(processes) + 1,
        )
        seen = RankSnapshot(rank=rank, process=ProcessState(state="S"))
        view.apply(seen, process.host, 0.0, 0.0)
    case = Case(incident_id="", job_number=1, opened_at=0.0, asked_round_at=0.0)
    case.bind({"": _opened(job, attempt, incident)}, view)
    known = set(processes.values())
    rounds = [
        {
            fact.process: msgspec.structs.replace(fact, at=0.0)
            for fact in facts
            if fact.process in known
        }
        for facts in evidence.rounds
    ]
    count = len(rounds)
    case.rounds = [(_APART * (index - count), facts) for index, facts in enumerate(rounds)]
    case.recorder, case.ras = evidence.recorder, evidence.ras
    if (finding := _finding(job, attempt, evidence)) is not None:
        case.findings[finding.rule] = finding
    return case


def _opened(job: str, attempt: int, incident: Incident | None) -> Incident:
    if incident is not None:
        return incident
    return Incident(
        id="",
        job=job,
        attempt=attempt,
        kind="unknown",
        severity="critical",
        state="suspected",
        summary="",
        rule="",
        suspected_at=0.0,
    )


def _finding(job: str, attempt: int, evidence: FolderEvidence) -> Finding | None:
    """The finding that the record's evidence makes."""
    items, incident = recorded_items(evidence), evidence.incident
    if incident is None or not items or incident.rule.startswith(OURSELVES):
        return None
    proven = {item.rank for item in items if item.rank is not None and item.weight >= PROOF}
    return Finding(
        rule=incident.rule,
        job=job,
        attempt=attempt,
        kind=incident.kind,
        severity=incident.severity,
        summary=incident.summary,
        suspects=tuple(RankId(job, attempt, rank) for rank in sorted(proven)),
        evidence=items,
        hard=bool(proven),
    )


def _processes(evidence: FolderEvidence) -> dict[int, ProcessId]:
    """The process of each rank; a rank about which nothing is known gets a made-up process
    number."""
    found: dict[int, ProcessId] = {}
    for facts in evidence.rounds:
        for fact in facts:
            if fact.rank is not None:
                found[fact.rank.rank] = fact.process
    found = evidence.processes | found
    numbers: set[int] = set()
    if (recorder := evidence.recorder) is not None:
        numbers |= {*recorder.ranks, *(one.rank for one in recorder.culprits)}
        numbers |= {rank for wait in recorder.waits for rank in (wait.rank, *wait.waits_for)}
    if (ras := evidence.ras) is not None:
        numbers |= {rank for wait in ras.waits for rank in wait.ranks}
        for one in ras.culprits:
            if one.rank is not None:
                numbers.add(one.rank)
                found.setdefault(one.rank, ProcessId(one.host, one.pid or 0, 0))
    for item in recorded_items(evidence):
        if item.rank is not None:
            numbers.add(item.rank)
    return {rank: ProcessId("", 0, rank + 1) for rank in numbers} | found
