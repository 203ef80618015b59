"""Who hangs a job, from answers of NCCL's RAS service: the roots of the graph of their facts.

The evidence at a root decides the kind and the strength. Of several findings the hardest proof
decides, because the others may be its echoes: a process that is gone, an error, a rank that is
behind, one that is outside of its communicator. Nobody is named if those found are no exception
among their equals.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import chain

import msgspec

from ray_sentinel.errors import InputError
from ray_sentinel.evidence.alignment import odd_ones
from ray_sentinel.evidence.minority import excepted, half, most_odd
from ray_sentinel.evidence.movement import too_young
from ray_sentinel.evidence.nccl_ras.load import in_order, read, watchdog_note
from ray_sentinel.evidence.nccl_ras.meshes import communicator_views
from ray_sentinel.evidence.nccl_ras.poll import Member, Poll
from ray_sentinel.evidence.nccl_ras.world import Known, Names
from ray_sentinel.model.ras import RasCulprit, RasFacts, RasKind
from ray_sentinel.waitgraph.facts import FactKind, ProcessFact, WaitNode
from ray_sentinel.waitgraph.ras_facts import (
    CALLED_ANOTHER,
    RasOperation,
    RasRank,
    RasWaits,
    stands,
)
from ray_sentinel.waitgraph.solver import GraphRoot, solve

CLEAR_LEAD = 2
"""Collectives that no rank is behind in a job that moves."""
PROOFS: Mapping[FactKind, tuple[RasKind, float, float]] = {
    "rank-dead": ("rank-dead", 0.95, 0.3),
    "rank-unresponsive": ("rank-unresponsive", 0.85, 0.3),
    "communicator-error": ("communicator-error", 0.8, 0.3),
    "remote-error": ("cannot-tell", 0.3, 0.3),
    "collective-mismatch": ("collective-mismatch", 0.85, 0.3),
    "not-enqueued": ("not-enqueued", 0.85, 0.3),
    "startup-stuck": ("startup-stuck", 0.6, 0.2),
    "left-communicator": ("left-communicator", 0.6, 0.2),
    "rank-unlisted": ("rank-unresponsive", 0.6, 0.3),
    "cannot-tell": ("cannot-tell", 0.2, 0.2),
}
"""What a root shows, the hardest first, with its kind, how sure that is, and how sure it is that
nothing can be told if nobody can be named."""
A_CIRCLE = "every rank that is behind waits elsewhere itself: a circle"
NO_SIDE = "the ranks called different collectives, and no side is the exception"
SEEN_ONCE = 0.6
"""How sure a wrong call is that was seen once."""
_OF_ALL: Mapping[FactKind, float] = {
    "collective-mismatch": 0.3,
    "startup-stuck": 0.6,
    "left-communicator": 0.6,
}
"""What is true of a communicator though no few of its ranks stand out, and how sure that is."""


def explain(files: Mapping[str, bytes], *, ranks: Known | None = None) -> RasFacts:
    """Who hangs the job, from outputs of ``ncclras`` or ``rcclras`` by name, oldest first.

    ``ranks`` joins processes to the job's ranks, by (host or address, pid). Several polls are
    compared: a rank that has launched more since is not stuck. Never raises for what a file holds:
    what is unreadable is in ``problems``, and ``polls`` is 0 if nothing could be read.
    """
    polls: list[Poll] = []
    problems: list[str] = []
    for name, data in files.items():
        try:
            polls += read(data, name)
        except InputError as error:
            problems.append(f"{name}: {error}")
    facts = reason(polls, problems=problems, ranks=ranks)
    notes = (watchdog_note(data, name) for name, data in files.items())
    return msgspec.structs.replace(facts, evidence=(*facts.evidence, *filter(None, notes)))


def reason(
    polls: Sequence[Poll], *, problems: Sequence[str] = (), ranks: Known | None = None
) -> RasFacts:
    """The explanation from polls that have already been read."""
    told = [*problems, *(line for poll in polls for line in poll.problems)]
    if not polls:
        return RasFacts(
            kind="cannot-tell", evidence=("no poll could be read",), problems=tuple(told)
        )
    ordered = in_order(polls)
    found = communicator_views(ordered)
    names = Names(ordered, ranks)
    waits = RasWaits(ordered, found, names)
    verdict = _RasVerdict(waits)
    kind, strength = verdict.conclude(len(ordered) > 1)
    evidence = [*waits.lines, *verdict.lines]
    if names.note and (verdict.culprits or waits.waits):
        evidence.append(names.note)
    last = ordered[-1]
    return RasFacts(
        kind=kind,
        culprits=verdict.culprits,
        waits=tuple(waits.waits),
        strength=round(strength * (0.8 if any(poll.cut for poll in ordered) else 1.0), 2),
        evidence=tuple(evidence),
        problems=tuple(told),
        version=next((poll.version for poll in reversed(ordered) if poll.version), ""),
        library=next((poll.library for poll in reversed(ordered) if poll.library), ""),
        polls=len(ordered),
        communicators=max(len(found), sum(row.communicators for row in last.rows)),
    )


Held = tuple[RasOperation, list[Member]]
"""An operation, and those to whom it is the next one."""


def _seen(held: Sequence[Held]) -> tuple[int, bool]:
    """How often it was seen that ranks have not come to operations, and whether all of them were
    seen standing still."""
    moved = {one.look.movement(member) for one, side in held for member in side}
    return 1 if "unknown" in moved else 2, moved <= {"stuck"}


class _RasVerdict:
    """Names the roots, unless they are no exception."""

    def __init__(self, waits: RasWaits) -> None:
        self._waits = waits
        self._accused: dict[object, RasCulprit] = {}
        self.lines: list[str] = []

    @property
    def culprits(self) -> tuple[RasCulprit, ...]:
        """Who is named, in the order of their numbers."""
        accused = self._accused.values()
        return tuple(sorted(accused, key=lambda one: (one.rank is None, one.rank or 0)))

    def conclude(self, again: bool) -> tuple[RasKind, float]:
        """The kind and the strength. ``again``: there was a poll before the last one."""
        roots, young = self._roots()
        stuck = [root for root in roots["not-enqueued"] if root.kind != "works"]
        settled = False
        for fault, (kind, _, unsure) in PROOFS.items():
            if fault == "not-enqueued":
                if stuck:
                    return self._of_behind(stuck)
                settled = bool(self._waits.operations)
            elif any(root.members[0] in self._waits.ranks for root in roots[fault]):
                return self._of_fault(fault, roots)
            elif (roots[fault] or fault in young) and not settled:
                known = roots[fault] and fault in _OF_ALL
                return (kind, _OF_ALL[fault]) if known else ("cannot-tell", unsure)
        if roots["not-enqueued"]:
            self.lines.append(
                "those behind have launched more between the polls: slow perhaps, not hung"
            )
            return "running", 0.9
        if settled:
            self.lines.append(
                "all that are ahead have launched more in other communicators since, and not in "
                "this one: they do not wait here"
            )
            return "running", 0.7
        return self._of_counts(again)

    def _roots(self) -> tuple[Mapping[FactKind, list[GraphRoot]], set[FactKind]]:
        """The roots by what is proven of them, and what was seen too shortly to prove anything."""
        facts = self._waits.facts
        # A job cannot go on without any of its ranks, whether or not another is seen waiting.
        needed = {fact.process for fact in facts if isinstance(fact, ProcessFact)}
        roots: dict[FactKind, list[GraphRoot]] = defaultdict(list)
        young: set[FactKind] = set()
        found = solve(facts, needed)
        split = (self._odd_ones(root) if root.kind == "circle" else (root,) for root in found)
        for root in chain.from_iterable(split):
            if not too_young(root.looks):
                roots[root.fault or "not-enqueued"].append(root)
                continue
            young.add(root.fault)
            if root.waiters:
                roots["not-enqueued"].append(root)
        return roots, young

    def _of_fault(
        self, fault: FactKind, roots: Mapping[FactKind, list[GraphRoot]]
    ) -> tuple[RasKind, float]:
        """Processes and ranks that cannot go on, by what is seen of them alone."""
        kind, sure, unsure = PROOFS[fault]
        found = [r for shown, some in roots.items() if PROOFS[shown][0] == kind for r in some]
        ranks = [rank for root in found for rank in self._waits.ranks.get(root.members[0], ())]
        if not self._few(fault, ranks):
            return (kind, _OF_ALL[fault]) if fault in _OF_ALL else ("cannot-tell", unsure)
        if fault == "rank-dead" and roots["rank-unresponsive"]:
            self.lines.append("what only does not answer now may be an echo of what is dead")
        for root in found:
            self._accuse(root.members[0], kind, root.why)
        lost = Counter(host for host, _ in {(one.host, one.pid) for one in ranks if not one.size})
        if whole := [host for host, count in sorted(lost.items()) if count > 1]:
            self.lines.append(f"several of them are on {', '.join(whole)}: look at that node")
        once = fault == "collective-mismatch" and any(root.looks is None for root in found)
        return kind, SEEN_ONCE if once else sure

    def _few(self, fault: FactKind, ranks: Sequence[RasRank]) -> bool:
        """Whether they are at most half of the job, and fewer than half of each communicator."""
        gone, total = self._waits.gone.get(fault, 0), self._waits.total
        if half(total) < gone < total:  # if these are all that we know of, others may well live
            self.lines.append(
                f"{gone} of {total} processes at once: the one that answered may be cut off itself"
            )
            return False
        seen = [rank.size for rank in ranks if rank.size]
        most = most_odd if fault == "collective-mismatch" else half
        if all(excepted([len(seen)], size, most(size)) for size in set(seen)):
            return True
        self.lines.append("no few ranks stand out")
        return False

    def _of_behind(self, stuck: Sequence[GraphRoot]) -> tuple[RasKind, float]:
        """Ranks that have not launched what others wait in."""
        accused = {root.members[0] for root in stuck if root.kind != "circle"}
        held = [(one, side) for one in self._waits.operations if (side := self._of(one, accused))]
        waiters = set().union(*(root.waiters for root in stuck))
        if accused and any(self._of(one, waiters) for one in self._waits.operations):
            self.lines.append(
                "ranks that are behind in one communicator and ahead in another wait themselves"
            )
        looks, still = _seen(held)
        circles = [self._keys(root.members) for root in stuck if root.kind == "circle"]
        unclear = [{one.look.last.key} for one, _ in held] if looks == 1 else []
        unclear = [keys for keys in unclear if keys & self._waits.contradictory]
        if circles or unclear:
            within = set().union(*circles, *unclear)
            self.lines.append(NO_SIDE if len(within) == 1 else A_CIRCLE)
            return "collective-mismatch", _OF_ALL["collective-mismatch"]
        if reason_not := self._cannot_name(accused, held, looks):
            self.lines.append(reason_not)
            return "cannot-tell", PROOFS["not-enqueued"][2]
        for one, side in held:
            for node in {self._waits.node(one.look, member): None for member in side}:
                self._accuse(node, "not-enqueued", one.not_reached)
        return "not-enqueued", PROOFS["not-enqueued"][1] if still else 0.5

    def _of(self, operation: RasOperation, nodes: Container[WaitNode]) -> list[Member]:
        """Those of some nodes to which an operation is the next one."""
        return [m for m in operation.next if self._waits.node(operation.look, m) in nodes]

    def _keys(self, members: Container[WaitNode]) -> set[str]:
        """The communicators of the operations among some nodes."""
        return {one.look.last.key for one in self._waits.operations if one.node in members}

    def _odd_ones(self, circle: GraphRoot) -> Iterator[GraphRoot]:
        """The members of a circle that made other calls than the others, in whichever of its
        communicators; the circle itself if that is not clear."""
        found = stands(self._waits.counts[key] for key in sorted(self._keys(circle.members)))
        odd = {self._waits.node(*view) for view in odd_ones(found)} & set(circle.members)
        held = [(one, side) for one in self._waits.operations if (side := self._of(one, odd))]
        looks, still = _seen(held)
        if not odd or self._cannot_name(odd, held, looks):
            yield circle
            return
        for node in sorted(odd):
            yield msgspec.structs.replace(
                circle,
                kind="broken",
                members=(node,),
                why=CALLED_ANOTHER,
                fault="collective-mismatch",
                looks=2 if still else None,
            )

    def _cannot_name(
        self,
        accused: set[WaitNode],
        held: Sequence[Held],
        looks: int,
    ) -> str:
        """Why ranks that are behind are not named; empty if there is no reason."""
        # The excused are not counted: a group that waits for one of its own is one rank behind.
        sizes = ((len(side), one.look.last.size) for one, side in held)
        if not all(excepted([count], size, most_odd(size)) for count, size in sizes):
            return "too many are behind to be the exception: they may wait for another"
        nodes = ({self._waits.node(one.look, member) for member in side} for one, side in held)
        if accused not in nodes or self._waits.send_to_each_other(accused):
            return (
                "ranks of several communicators are behind and wait in none; they may wait for "
                "each other's sends, which RAS does not count"
            )
        if all(self._waits.ahead_of_all(one) for one, _ in held):
            return (
                "nobody in communicators of that size has launched so many: who did may have made "
                "one call too many, and those behind have come as far as their equals"
            )
        if any(too_young(looks, one.lead, CLEAR_LEAD) for one, _ in held):
            return (
                "one poll and a lag of one: usual in a job that moves; a second poll some seconds "
                "later tells"
            )
        return ""

    def _accuse(self, node: WaitNode, kind: RasKind, why: str) -> None:
        """Name the ranks of a node, each once."""
        for one in self._waits.ranks.get(node, ()):
            place = one.host, one.pid, one.gpu
            self._accused.setdefault(
                place if one.rank is None else one.rank,
                RasCulprit(
                    rank=one.rank,
                    host=one.host,
                    pid=one.pid,
                    gpu=one.gpu,
                    kind=kind,
                    reason=why,
                ),
            )

    def _of_counts(self, again: bool) -> tuple[RasKind, float]:
        """If nothing distinguishes the ranks: whether anything moves at all."""
        if self._waits.moved:
            return "running", 0.9
        if self._waits.still:
            self.lines.append(
                "all have launched the same and none goes on: they wait in a collective that does "
                "not end (device, network), in a send or receive, or outside of NCCL"
            )
            return "stall", 0.4
        if again:
            self.lines.append(
                "the polls are text for people, which has no counts: whether anything moved "
                "between them does not show; `ncclras -f json` tells it"
            )
        self.lines.append(
            "RAS reports no mismatch. That does not prove health: sends and receives are not "
            "counted, and ranks that hang in the same collective look alike"
        )
        return "no-mismatch", 0.0
