"""From the weighed evidence of a case to a decision: name a rank, name nobody, or wait."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ray_sentinel.engine.activities import LONG_ACTIVITIES, all_idle, takes_long
from ray_sentinel.engine.incidents.case import Case
from ray_sentinel.engine.jobs import STARTUP_QUIET_SECONDS
from ray_sentinel.engine.ranks import RankView
from ray_sentinel.engine.verdicts.abstain import EVERYDAY_TIMEOUTS, name_nobody
from ray_sentinel.engine.verdicts.exits import describe_exit
from ray_sentinel.engine.verdicts.judgement import (
    EvidenceScores,
    Judgement,
    supporting_stacks,
    waiting_lines,
)
from ray_sentinel.engine.verdicts.suspects import joining, kinds_of, recorded, weigh
from ray_sentinel.evidence.movement import too_young
from ray_sentinel.model.fault_kinds import KINDS
from ray_sentinel.model.identity import ProcessId, RankId
from ray_sentinel.model.incident import Culprit, FaultKind, Finding, Verdict
from ray_sentinel.waitgraph.confidence import confidence

MOMENTARY = frozenset({"rank.gil-held", "rank.gil-seen", "rank.blocked", "hang.silent"})
"""Rules whose proof is of a moment, and may be everyday work that ends."""
EVERYDAY_WORK = "saving, loading or compiling"


def judge(case: Case, now: float, *, host_of: dict[str, str], proven: bool) -> Judgement:
    """Weigh a case. ``host_of`` maps node ids to host labels; ``proven`` is whether hard findings
    still hold.

    Pure: the same case gives the same judgement.
    """
    for finding in case.findings.values():
        if finding.verdict is not None:
            return Judgement(decision="confirm", verdict=finding.verdict)
    lost = case.findings.get("node.lost")
    if lost is not None and proven:
        return Judgement(decision="confirm", verdict=_node_lost(case, lost))
    if case.about_ourselves:
        return Judgement(decision="confirm", verdict=_blind(next(iter(case.findings.values()))))
    scores = weigh(case, now)
    found = _decided(case, scores, now, host_of, proven=proven)
    return msgspec.structs.replace(found, scores=scores)


def _decided(
    case: Case, scores: EvidenceScores, now: float, host_of: dict[str, str], *, proven: bool
) -> Judgement:
    """The judgement that follows from the scores."""
    named = scores.named()
    if proven:
        # The proven fault has only just happened: the others may be anywhere, on their way to where
        # they will wait, or failing because a peer has gone. Their stacks accuse nobody yet.
        guilty = {rank for f in case.findings.values() if f.hard for rank in f.suspects}
        guilty = guilty or _accused_by_recorder(case)
        named = [process for process in named if case.job.ranks[process].rank.id in guilty]
    if not named or (not proven and _all_rest(case)):
        return name_nobody(case, scores, now)
    verdict = _named(case, scores, named, host_of)
    if proven and set(case.findings) <= MOMENTARY and _spared(case, named, now):
        why = EVERYDAY_WORK
    elif proven or any(not case.job.ranks[p].alive for p in named):
        why = ""
    else:
        why = _why_wait(case, named, now)
    return Judgement(decision="wait" if why else "confirm", verdict=verdict, why=why)


def _all_rest(case: Case) -> bool:
    """Whether every rank waits for work or for requests, though in different places."""
    facts = [fact for _, fact in case.seen]
    return 0 < len(facts) == len(case.job.live) and all_idle(facts)


def _accused_by_recorder(case: Case) -> set[RankId]:
    """The ranks that the recorders accuse: recorders remember what happened before."""
    blamed = {culprit.rank for culprit in recorded(case)}
    return {view.rank.id for view in case.job.ranks.values() if view.rank.id.rank in blamed}


def _why_wait(case: Case, named: list[ProcessId], now: float) -> str:
    """Why the named ranks have not stood still for long enough; "" if they have."""
    silence, timeout = case.job.silence(now), case.job.timeout()
    if _spared(case, named, now):
        return EVERYDAY_WORK
    if any(case.moves_data(process, now) for process in named):
        return "slow: it reads or writes"
    if joining(case) and silence < STARTUP_QUIET_SECONDS:
        return "the ranks are still gathering"
    usual = EVERYDAY_TIMEOUTS * timeout
    young = [p for p in named if too_young(case.times_seen(p), silence, usual)]
    if young and all(case.movement(process) == "moved" for process in young):
        return "slow: its stack still changes"
    return "seen at one moment only" if young else ""


def _spared(case: Case, named: list[ProcessId], now: float) -> bool:
    """Whether a rank does something that keeps the GIL, or sits in the kernel, in everyday work."""
    if case.job.silence(now) >= EVERYDAY_TIMEOUTS * case.job.timeout():
        return False
    facts = [case.latest(process) for process in named]
    return any(f is not None and (f.activity in LONG_ACTIVITIES or takes_long(f)) for f in facts)


def _named(
    case: Case, scores: EvidenceScores, named: list[ProcessId], host_of: dict[str, str]
) -> Verdict:
    views = [case.job.ranks[process] for process in named]
    kinds = kinds_of(case, views)
    culprits = tuple(
        Culprit(
            rank=view.rank.id.rank,
            host=host_of.get(view.node, view.rank.process.host),
            pid=view.rank.process.pid,
            reason=_reason(case, view, kind),
        )
        for view, kind in zip(views, kinds, strict=True)
    )
    phrases = [_phrase(view, kind) for view, kind in zip(views, kinds, strict=True)]
    told = _describe(culprits, phrases)
    return Verdict(
        kind=kinds[0],
        summary=f"{told}; {_others(case, len(culprits))}",
        culprits=culprits,
        confidence=confidence([scores.testimony(process) for process in named]),
        evidence=scores.lines(named),
        waiting=waiting_lines(case, set(named)),
        next_steps=KINDS[kinds[0]].next_steps,
        stacks=supporting_stacks(case, named),
    )


def _describe(culprits: Sequence[Culprit], phrases: Sequence[str]) -> str:
    """The summary, such as ``rank 2 on a is stopped, likewise rank 5 on b; rank 0 on c waits for
    input``."""
    by_phrase: dict[str, list[str]] = {}
    for culprit, phrase in zip(culprits, phrases, strict=True):
        place = f" on {culprit.host}" if culprit.host else ""
        by_phrase.setdefault(phrase, []).append(f"rank {culprit.rank}{place}")
    return "; ".join(
        f"{names[0]} {phrase}" + (f", likewise {' and '.join(names[1:])}" if names[1:] else "")
        for phrase, names in by_phrase.items()
    )


def _reason(case: Case, view: RankView, kind: FaultKind) -> str:
    fact = case.latest(view.rank.process)
    place = ""
    if fact is not None and fact.signature:
        place = (
            f": {fact.label}, at {fact.signature[-1]}" if fact.label else f": {fact.signature[-1]}"
        )
    if kind == "kernel-blocked" and view.process.wchan:
        place += f" (in the kernel: {view.process.wchan})"
    return _phrase(view, kind) + place


def _phrase(view: RankView, kind: FaultKind) -> str:
    dying = view.dying()
    exit_ = view.exit or (dying[1] if dying is not None and kind == "rank-dead" else None)
    return describe_exit(exit_) if exit_ is not None else KINDS[kind].phrase


def _others(case: Case, culprits: int) -> str:
    count = len({view.rank.id.rank for view in case.job.present}) - culprits
    return f"{count} other ranks wait or have ended" if count > 0 else "it has no peers"


def _blind(finding: Finding) -> Verdict:
    return Verdict(
        kind="sentinel",
        summary=finding.summary,
        confidence=0.9,
        evidence=finding.evidence,
        next_steps=KINDS["sentinel"].next_steps,
    )


def _node_lost(case: Case, finding: Finding) -> Verdict:
    known = case.job.by_number
    ranks = [known.get(rank.rank) for rank in finding.suspects]
    return Verdict(
        kind="node-lost",
        summary=finding.summary,
        culprits=tuple(
            Culprit(
                rank=view.rank.id.rank,
                host=finding.host,
                pid=view.rank.process.pid,
                reason="its node is lost",
            )
            for view in ranks
            if view is not None
        ),
        confidence=0.95,
        evidence=finding.evidence,
        next_steps=KINDS["node-lost"].next_steps,
    )
