"""The verdict on what holds a Ray job up, with the chain that leads to it."""

from __future__ import annotations

import msgspec

from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.engine.ray.devices import at_devices_text
from ray_sentinel.engine.ray.job_view import RayJobView
from ray_sentinel.engine.ray.jobs import RayTrack
from ray_sentinel.engine.ray.placement import Missing, missing_text
from ray_sentinel.engine.ray.rank_jobs import above_ranks, fellows, rank_of, ray_job_of
from ray_sentinel.model.fault_kinds import KINDS
from ray_sentinel.model.incident import ChainLink, Culprit, EvidenceItem, FaultKind, Verdict
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.waitgraph.chain import GOES_ON
from ray_sentinel.waitgraph.confidence import CALLS, by_calls, confidence
from ray_sentinel.waitgraph.engine_work import SERVER
from ray_sentinel.waitgraph.facts import HANDED_TO
from ray_sentinel.waitgraph.picture import RootMember, WaitRoot
from ray_sentinel.waitgraph.ray_calls import OWN_WAIT
from ray_sentinel.waitgraph.unmet import NO_NODE
from ray_sentinel.waitgraph.wakers import RESTS

NOBODY = 0.3
"""The confidence of an answer that names nobody, because nothing can be learned of whom all wait
for."""
ENVIRONMENTS = frozenset({"environment", "environment agent"})
"""What a root lacks that waits for a runtime environment to be built."""
BUILD_STEPS = (
    "Read runtime_env_setup-*.log and runtime_env_agent.log in the node's Ray session; an index, "
    "a repository or a bucket that does not answer holds it up.",
    'Give it less time with runtime_env={"config": {"setup_timeout_seconds": ...}}, or have the '
    "packages in the nodes' image.",
)
ENGINE_STEPS = (
    "The engine has requests, and none of its ranks is to blame: its front end or scheduler, in "
    "the actor or below it, does not hand them on. Look at its log, and restart the engine.",
)
"""What to do about an actor whose inference engine hangs."""
MOST_NODES = 4
"""Most nodes whose free resources are listed."""


def _culprit(view: ClusterView, member: RootMember, root: WaitRoot, kind: FaultKind) -> Culprit:
    rank = rank_of(view, member.process)
    return Culprit(
        rank=rank[1].rank.id.rank if rank is not None else None,
        host=member.process.host,
        pid=member.process.pid,
        reason=KINDS[kind].phrase if root.kind == "circle" else root.why.removeprefix(GOES_ON),
        role=member.role,
        actor=member.label if member.role != "driver" else "",
        method=", ".join(member.methods[:3]),
    )


def verdict_on(view: ClusterView, job: RayJobView, root: WaitRoot, kind: FaultKind) -> Verdict:
    """The verdict on a root of which a kind of fault is proven."""
    return Verdict(
        kind=kind,
        summary=_summary(view, job, root, kind),
        culprits=tuple(_culprit(view, member, root, kind) for member in root.processes)
        if kind != "unknown"
        else (),
        confidence=NOBODY if kind == "unknown" else confidence([by_calls(root.kind)]),
        evidence=(
            EvidenceItem(source=CALLS, text=root.sentence, proof=(root.kind,)),
            *(EvidenceItem(source=CALLS, text=text) for text in job.failed_before(root)),
            *(EvidenceItem(source=CALLS, text=note) for note in job.notes),
        ),
        chain=root.chain,
        stacks=_stacks(job, root),
        next_steps=BUILD_STEPS if root.lacks in ENVIRONMENTS else KINDS[kind].next_steps,
    )


def _stacks(job: RayJobView, root: WaitRoot) -> tuple[StackFact, ...]:
    """The stacks of those who hold it up, then of one process that waits for them."""
    shown = (*(member.process for member in root.processes), *root.waiting[:1])
    return tuple(job.stacks[process] for process in shown if process in job.stacks)


def _summary(view: ClusterView, job: RayJobView, root: WaitRoot, kind: FaultKind) -> str:
    others = f"{root.waiters} process{'es' * (root.waiters != 1)} wait{'s' * (root.waiters == 1)}"
    meeting = f" in {root.meeting}" if root.meeting else ""
    if kind == "call-deadlock":
        names = " and ".join(member.label for member in root.processes)
        return f"{names} wait for each other's calls{meeting}"
    if root.lacks in ENVIRONMENTS:
        return f"{root.who[0]} is not being built any more: {root.why}; {others}"
    what = root.chain[-1].start if root.chain else "a call"
    if root.lacks == "memory":
        return (
            f"the object store of a node has no room for the arguments of {what}, which the node "
            f"could run; {others}"
        )
    if root.lacks == "worker":
        return f"Ray starts no worker for {what}, although a node has room for it; {others}"
    if kind in ("pending", "object-store"):
        missing = job.missing.get(root.who[0], Missing())
        has = _free(view, job) if kind == "pending" and not missing.bound else ""
        if missing.never and missing.bound:
            scaler = f"; {missing.autoscaler}" if missing.autoscaler else ""
            return f"there can never be {root.who[0]}: {missing.never}{scaler}; {others}"
        if missing.never:
            name = root.who[0].removeprefix("a node with ").removesuffix(" free")
            what = name.replace(NO_NODE, "")
            scaler = f"; {missing.autoscaler}" if missing.autoscaler else ""
            return f"the cluster as it is can never hold {what}: {missing.never}{scaler}; {others}"
        return f"nothing in the cluster has {root.who[0]}{has}{missing_text(missing)}; {others}"
    member = root.processes[0]
    if kind == "unknown" and root.kind == "standing":
        names = at_devices_text(job, member, fellows(view, member.process))
        return f"{names} wait for their devices, and nothing tells them apart; {others}{meeting}"
    if kind == "unknown":
        return (
            f"{others} for {member.label} on {member.process.host}, of which nothing can be "
            f"learned: {root.why}"
        )
    others = f"; {others}{meeting}" if root.waiters else ""
    if kind == "actor-dead":
        return f"{member.label} on {member.process.host} {root.why}{others}"
    runs = f" in {member.methods[0]}" if member.methods else ""
    if root.kind == "works":
        place = root.why.removeprefix(GOES_ON)
        return f"{member.label} on {member.process.host} spins{runs}: {place}{others}"
    awaits = root.why == OWN_WAIT or root.why.startswith(RESTS)
    failed = job.failed_before(root) if awaits else ()
    before = f"; {failed[-1]}" if failed else ""
    return f"{member.label} on {member.process.host} stands still{runs}: {root.why}{before}{others}"


def _free(view: ClusterView, job: RayJobView) -> str:
    """How much is free on the nodes that have most of what the job requests. The sum over many
    nodes is of no use to something that needs it on one node."""
    nodes = sorted(
        ((view.host_of(node), free) for node, free in job.free_on.items() if any(free.values())),
        key=lambda node: (sorted(node[1].values(), reverse=True), node[0]),
        reverse=True,
    )
    if not nodes:
        return "; nothing of it is free on any node" if job.free_on else ""
    told = ", ".join(
        f"{' and '.join(f'{amount:g} {name}' for name, amount in free.items())} on {host}"
        for host, free in nodes[:MOST_NODES]
    )
    more = len(nodes) - MOST_NODES
    return f"; free are {told}{f' and no more on {more} others' if more > 0 else ''}"


def with_chain(view: ClusterView, job: JobView, verdict: Verdict) -> Verdict:
    """A verdict about ranks that are Ray actors, with the wait chain that leads to its culprit."""
    ray_job = ray_job_of(view, job)
    if ray_job is None or verdict.chain:
        return verdict
    if (above := above_ranks(view, job)) is not None:
        return _of_engine(view, above, job, verdict)
    if not verdict.culprits:
        return verdict
    members = {
        (member.process.host, member.process.pid): (seen.root, member)
        for seen in ray_job.roots
        for member in seen.root.processes
    }
    found = [members.get((one.host, one.pid or 0)) for one in verdict.culprits]
    if found[0] is None:
        return verdict
    return msgspec.structs.replace(
        verdict,
        chain=found[0][0].chain,
        culprits=tuple(
            one
            if known is None
            else msgspec.structs.replace(
                one,
                role=known[1].role,
                actor=known[1].label,
                method=", ".join(known[1].methods[:3]),
            )
            for one, known in zip(verdict.culprits, found, strict=True)
        ),
    )


def _of_engine(view: ClusterView, above: RayTrack, engine: JobView, verdict: Verdict) -> Verdict:
    """A verdict about an inference engine, with the chain through the process above it. If the
    engine has requests and none of its ranks is to blame, that process is: it, or what it has
    started, does not pass them on."""
    ray_job = ray_job_of(view, engine)
    roots = ray_job.roots if ray_job is not None else ()
    members = ((seen.root, one) for seen in roots for one in seen.root.processes)
    found = next(((root, one) for root, one in members if one.process == above.process), None)
    if found is None:
        return verdict
    root, member = found
    if verdict.culprits:
        ranks = " and ".join(f"rank {one.rank}" for one in verdict.culprits)
        start = root.chain[-1].end if root.chain else member.label
        end = f"{ranks} of {engine.job}"
        link = ChainLink(start=start, end=end, how=HANDED_TO, witness=SERVER)
        return msgspec.structs.replace(verdict, chain=(*root.chain, link))
    if root.engine != engine.job:
        return verdict
    runs = f" in {member.methods[0]}" if member.methods else ""
    return msgspec.structs.replace(
        verdict,
        summary=f"{verdict.summary}; {member.label} on {member.process.host} waits for it{runs}",
        culprits=(_culprit(view, member, root, verdict.kind),),
        chain=root.chain,
        next_steps=ENGINE_STEPS,
    )
