"""Who holds the job up: all evidence of a case, weighed into one verdict.

The culprit is the rank that the others wait for. So what counts against a rank is that it stands
still *outside* the operation in which its peers wait; silence alone counts against nobody. Proof
from the process table weighs most, then the flight recorder, then stacks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from ray_sentinel.engine.incidents.case import Case
from ray_sentinel.engine.ranks import RankView
from ray_sentinel.engine.telemetry.hardware import device_kind, weigh_alerts
from ray_sentinel.engine.verdicts.judgement import EvidenceScores
from ray_sentinel.evidence.movement import Movement
from ray_sentinel.evidence.stacks.frames.meanings import TASKLESS
from ray_sentinel.model.identity import ProcessId, RankId
from ray_sentinel.model.incident import FaultKind
from ray_sentinel.model.recorder import RecorderCulprit, RecorderKind
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.waitgraph.confidence import (
    AWAY,
    MOVED,
    MOVES,
    RAS,
    RAS_WAITS,
    RECORDER,
    RECORDER_WAITS,
    STACKS,
    stacks_weight,
    tool_weight,
)
from ray_sentinel.waitgraph.stack_facts import TRANSFERS, kind_of
from ray_sentinel.waitgraph.stacks import judge


def ras_mismatches(case: Case) -> set[int]:
    """World ranks that RAS names because they called other collectives than their peers."""
    culprits = case.ras.culprits if case.ras is not None else ()
    return {c.rank for c in culprits if c.rank is not None and c.kind == "collective-mismatch"}


# The kind of fault of one rank, from what its process, its stacks and the recorder show.

BY_RECORDER: dict[RecorderKind, FaultKind] = {
    "device-stuck": "device-stuck",
    "collective-mismatch": "collective-mismatch",
}


def fault_kind(
    view: RankView, fact: StackFact | None, movement: Movement, recorder: RecorderKind | None
) -> FaultKind:
    """The most certain reason why a rank stands still. ``movement`` is that of its stack."""
    if view.exit is not None and recorder != "collective-mismatch":
        return "oom-killed" if view.exit.oom_killed else "rank-dead"
    if not view.alive and recorder != "collective-mismatch":
        return "rank-dead"
    if "stopped" in view.state_since:
        return "rank-stopped"
    if "gil-held" in view.state_since or _keeps_gil(view, fact, movement):
        return "gil-held"
    if "blocked" in view.state_since:
        return "kernel-blocked"
    if recorder in BY_RECORDER:
        return BY_RECORDER[recorder]
    return _from_stack(view, fact, movement)


def _from_stack(view: RankView, fact: StackFact | None, movement: Movement) -> FaultKind:
    if fact is None:
        return "cpu-spin" if view.spinning else "host-stuck"
    # A tool sees the GIL held or a thread active for a moment in everyday work.
    told = msgspec.structs.replace(fact, keeps_gil=False)
    found = kind_of(told, movement)
    if found == "host-stuck" and view.process.state == "t":
        return "rank-stopped"
    if found == "host-stuck" and "starved" in view.state_since:
        return "starved"
    if found == "cpu-spin" and view.unfed:
        return "starved"
    return "cpu-spin" if found == "host-stuck" and view.spinning else found


def _keeps_gil(view: RankView, fact: StackFact | None, movement: Movement) -> bool:
    # A rank with a companion thread tells by its stamp; without one, a thread that has the GIL and
    # does not run. One that runs may be in a loop of Python: rank.gil-seen takes more looks at it.
    if fact is None or movement != "stuck":
        return False
    if not fact.keeps_gil and (not fact.holds_gil or fact.active):
        return False
    return view.process.interpreter in ("unknown", "gil-held")


WAITS = -2.0
"""The score of a rank that waits for others according to its stack."""
WAITING = ("waits",)
"""What is said of it."""
LEFT_BEFORE = 2.0
"""Seconds before the last movement in which a leaving rank may still be what is waited for."""
JOIN = "init_process_group ("
"""The beginning of a place in which PyTorch ranks meet for the first time."""
TRAINING_COLLECTIVES = ("all_reduce", "reduce_scatter", "all_to_all")
"""Collectives of gradients, shards and experts; a rank that starts up waits in barriers, broadcasts
and gathers."""


def weigh(case: Case, now: float) -> EvidenceScores:
    """The scores of all evidence about the ranks of a case."""
    scores = EvidenceScores()
    by_rank = case.job.by_number
    _from_findings(case, scores, by_rank)
    _from_exits(case, scores, now)
    _from_recorder(case, scores, by_rank)
    _from_ras(case, scores, by_rank)
    weigh_alerts(case, scores, by_rank)
    _from_stacks(case, scores)
    return scores


def _from_findings(case: Case, scores: EvidenceScores, by_rank: Mapping[int, RankView]) -> None:
    for finding in case.findings.values():
        for item in finding.evidence:
            view = by_rank.get(item.rank) if item.rank is not None else None
            scores.put(view.rank.process if view and item.weight else None, item)


def _from_exits(case: Case, scores: EvidenceScores, now: float) -> None:
    """Weigh ranks that exited cleanly, or in an unknown way, while others still wait."""
    if not case.job.live or any(f.rule == "rank.exited" for f in case.findings.values()):
        return
    if case.job.ending():
        _from_the_end(case, scores)
        return
    if not _somebody_waits(case):
        return  # the ranks of an ending job leave one after the other, each when it is done
    since = case.job.moved_at() - max(LEFT_BEFORE, case.job.pace.usual or 0.0)
    for process, view in case.job.ranks.items():
        ended = view.ended_at
        # The job went on without those that left earlier: it does not wait for them. Those that
        # left with a node that was taken away are waited for, and are not to blame.
        if view.alive or process in case.job.departed or ended is None or ended < since:
            continue
        said = f"left {now - ended:.0f} s ago while {len(case.job.live)} ranks still run"
        scores.add(view.rank, "exit", said, AWAY)


def _somebody_waits(case: Case) -> bool:
    """Whether a rank that is there was seen waiting for others, and has stood still since."""
    if case.recorder is not None and case.recorder.waits:
        return True
    return any(
        fact.waits_for_others and case.movement(fact.process) != "moved" for _, fact in case.seen
    )


def _from_the_end(case: Case, scores: EvidenceScores) -> None:
    """Weigh ranks that hang on the way out. Most ranks have exited cleanly, and these are still
    there and wait for nobody."""
    ended = sum(view.left_in_peace for view in case.job.ranks.values())
    for view, fact in case.seen:
        if not fact.waits_for_others:
            said = f"is still there, and {ended} others have ended"
            scores.add(view.rank, "exit", said, AWAY)


def _from_recorder(case: Case, scores: EvidenceScores, by_rank: Mapping[int, RankView]) -> None:
    facts = case.recorder
    if facts is None:
        return
    weight = tool_weight(facts)
    blamed = {culprit.rank for culprit in recorded(case)}
    said: dict[int, _Said] = {}
    for culprit in facts.culprits:
        hidden = f"{culprit.reason}; but it is in a transfer, which its recorder does not show"
        is_blamed = culprit.rank in blamed
        told = _Said(culprit.reason, weight, (culprit.kind,))
        said[culprit.rank] = told if is_blamed else _Said(hidden, 0.0)
    for wait in facts.waits:
        if wait.rank not in blamed:
            whom = ", ".join(map(str, wait.waits_for)) or "its peers"
            said[wait.rank] = _Said(
                f"waits for {whom} in {wait.operation}", RECORDER_WAITS, WAITING
            )
    context = () if facts.culprits else facts.evidence
    _from_a_tool(RECORDER, said, context, scores, by_rank)


def _from_ras(case: Case, scores: EvidenceScores, by_rank: Mapping[int, RankView]) -> None:
    """A count that is behind says that the rank has not made the call that its peers are in; that
    no mismatch is listed means nothing, and clears nobody."""
    facts = case.ras
    if facts is None:
        return
    waits = facts.waits if facts.culprits else ()
    said = {
        rank: _Said(f"is ahead in {wait.text}", RAS_WAITS, WAITING)
        for wait in waits
        for rank in wait.ranks
    }
    weight = tool_weight(facts)
    said |= {
        one.rank: _Said(one.reason, weight, (one.kind,))
        for one in facts.culprits
        if one.rank is not None
    }
    _from_a_tool(RAS, said, () if facts.culprits else facts.evidence, scores, by_rank)


class _Said(NamedTuple):
    """What a tool says of one rank: a predicate, its weight, and by what it is proven."""

    text: str
    weight: float
    proof: tuple[str, ...] = ()


def _from_a_tool(
    source: str,
    said: Mapping[int, _Said],
    context: Sequence[str],
    scores: EvidenceScores,
    by_rank: Mapping[int, RankView],
) -> None:
    """Weigh what a tool has ``said`` of each rank."""
    for rank, (text, weight, proof) in said.items():
        if (view := by_rank.get(rank)) is not None:
            scores.add(view.rank, source, text, weight, proof)
    if context:
        scores.note(source, "; ".join(context[:2]))


def _from_stacks(case: Case, scores: EvidenceScores) -> None:
    # Beside one that was named for certain, the others are judged by themselves.
    known = _proven(case) if case.later_rounds else set()
    facts = {fact.process: fact for view, fact in case.seen if view.rank.id not in known}
    facts = _without_twins(case, facts)
    waiting = [fact for fact in facts.values() if fact.waits_for_others]
    judgement = judge(facts.values(), {process: case.movement(process) for process in facts})
    accused = {one.fact.process for one in judgement.culprits}
    # To accuse a rank that waits takes more evidence than the place where it stands.
    if not accused or any(one.fact.waits_for_others for one in judgement.culprits):
        for reason in judgement.reasons:
            scores.note(STACKS, reason)
    weight = stacks_weight(judgement.strength)
    for fact, told, proof in judgement.culprits:
        rank = case.job.ranks[fact.process].rank
        scores.add(rank, STACKS, told, weight, proof)
        if case.movement(fact.process) == "moved":
            scores.add(rank, STACKS, "moves: slow", MOVED, MOVES)
    called = recorder_kinds(case)
    for fact in waiting:
        rank = case.job.ranks[fact.process].rank
        # A rank that called another collective than its peers waits too, for them.
        if fact.process not in accused and called.get(rank.id.rank) != "collective-mismatch":
            scores.add(rank, STACKS, f"waits: {fact.label}", WAITS, WAITING)


def _without_twins(case: Case, facts: dict[ProcessId, StackFact]) -> dict[ProcessId, StackFact]:
    """``facts`` without processes that have a rank's number only through their variables, as a
    side-car has, if another process of that number waits with its peers: nobody waits for them."""
    ranks = {process: case.job.ranks[process].rank for process in facts}
    waiting = {ranks[process].id.rank for process, fact in facts.items() if fact.waits_for_others}
    return {
        process: fact
        for process, fact in facts.items()
        if fact.waits_for_others
        or ranks[process].source != "environ"
        or ranks[process].id.rank not in waiting
    }


def _proven(case: Case) -> set[RankId]:
    return {rank for finding in case.findings.values() if finding.hard for rank in finding.suspects}


def recorded(case: Case) -> tuple[RecorderCulprit, ...]:
    """The ranks that the flight recorder accuses.

    gloo's does not record transfers: a rank that waits in one seems to have nothing to wait for.
    """
    if case.recorder is None:
        return ()
    by_rank = case.job.by_number
    return tuple(
        culprit
        for culprit in case.recorder.culprits
        if culprit.kind != "not-enqueued" or not _transfers(case, by_rank.get(culprit.rank))
    )


def _transfers(case: Case, view: RankView | None) -> bool:
    fact = case.latest(view.rank.process) if view is not None else None
    return fact is not None and bool(fact.waits_for_others) and fact.operation in TRANSFERS


def recorder_kinds(case: Case) -> dict[int, RecorderKind]:
    """World rank → the fault kind by the flight recorder, or else by NCCL's RAS."""
    told: dict[int, RecorderKind] = dict.fromkeys(ras_mismatches(case), "collective-mismatch")
    return told | {culprit.rank: culprit.kind for culprit in reversed(recorded(case))}


def kinds_of(case: Case, views: Sequence[RankView]) -> list[FaultKind]:
    """The kind of fault of each of these ranks: the proven one, or else the one that the evidence
    suggests."""
    called = recorder_kinds(case)
    early = joining(case) or not (case.job.training() or _trained(case))
    return [
        _proven_kind(case, view) or _seen_kind(case, view, called.get(view.rank.id.rank), early)
        for view in views
    ]


def _proven_kind(case: Case, view: RankView) -> FaultKind | None:
    for finding in case.findings.values():
        if finding.hard and finding.kind != "unknown" and view.rank.id in finding.suspects:
            return finding.kind
    return None


def _seen_kind(case: Case, view: RankView, called: RecorderKind | None, early: bool) -> FaultKind:
    """The kind of fault that a stack shows. ``early`` is whether the job has not trained yet."""
    fact = case.latest(view.rank.process)
    kind = fault_kind(view, fact, case.movement(view.rank.process), called)
    if kind == "device-stuck":
        return device_kind(case, view.rank.id.rank) or kind
    if kind != "host-stuck":
        return kind
    # An actor outlives the training that ran in it: an exception ends only its task.
    taskless = fact is not None and fact.label == TASKLESS.label
    return "startup-stuck" if early else "rank-dead" if taskless else kind


def _trained(case: Case) -> bool:
    """Whether some rank waits in a collective that start-up has no use for."""
    return any(
        fact.waits_for_others and fact.operation.startswith(TRAINING_COLLECTIVES)
        for _, fact in case.seen
    )


def joining(case: Case) -> bool:
    """Whether some rank still waits for others to join the job."""
    return any(
        fact.waits_for_others and any(place.startswith(JOIN) for place in fact.signature)
        for _, fact in case.seen
    )
