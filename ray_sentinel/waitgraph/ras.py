"""Who hangs a job, from answers of NCCL's RAS service: the roots of the graph of their facts.

The evidence at a root decides the kind and the confidence. Of several findings the hardest proof
decides, because the others may be its echoes: a process that is gone, an error, a rank that is
behind, one that is outside of its communicator. Nobody is named if those found are no exception
among their equals.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

import msgspec

from ray_sentinel.errors import InputError
from ray_sentinel.evidence.minority import excepted, most_odd
from ray_sentinel.evidence.nccl_ras.load import in_order, read, watchdog_note
from ray_sentinel.evidence.nccl_ras.meshes import communicator_views
from ray_sentinel.evidence.nccl_ras.poll import Member, Poll
from ray_sentinel.evidence.nccl_ras.world import Known, Names
from ray_sentinel.model.ras import RasCulprit, RasFacts, RasKind
from ray_sentinel.waitgraph.facts import Broken, FactKind, Mute, WaitNode
from ray_sentinel.waitgraph.ras_facts import (
    CALLED_ANOTHER,
    RankView,
    RasOperation,
    RasWaits,
    odd_ranks,
)
from ray_sentinel.waitgraph.solver import GraphRoot, solve

CLEAR_LEAD = 2
"""Collectives that a rank must be behind for a single poll to mean something."""
PROOFS: Mapping[FactKind, tuple[RasKind, float]] = {
    "rank-dead": ("rank-dead", 0.95),
    "rank-unresponsive": ("rank-unresponsive", 0.85),
    "communicator-error": ("communicator-error", 0.8),
    "remote-error": ("cannot-tell", 0.3),
    "collective-mismatch": ("collective-mismatch", 0.85),
    "not-enqueued": ("not-enqueued", 0.85),
    "startup-stuck": ("startup-stuck", 0.6),
    "left-communicator": ("left-communicator", 0.6),
    "rank-unlisted": ("rank-unresponsive", 0.6),
    "cannot-tell": ("cannot-tell", 0.2),
}
"""What a root shows, the hardest first, with its kind and how sure that is."""
_OF_ALL: tuple[RasKind, ...] = ("collective-mismatch", "startup-stuck", "left-communicator")
"""True of a communicator, whether or not a few of its ranks stand out."""


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
    verdict = _RasVerdict(waits, names)
    kind, confidence = verdict.conclude(len(ordered) > 1)
    evidence = [*waits.lines, *verdict.lines]
    if names.note and (verdict.culprits or waits.waits):
        evidence.append(names.note)
    last = ordered[-1]
    return RasFacts(
        kind=kind,
        culprits=verdict.culprits,
        waits=tuple(waits.waits),
        confidence=round(confidence * (0.8 if any(poll.cut for poll in ordered) else 1.0), 2),
        evidence=tuple(evidence),
        problems=tuple(told),
        version=next((poll.version for poll in reversed(ordered) if poll.version), ""),
        library=next((poll.library for poll in reversed(ordered) if poll.library), ""),
        polls=len(ordered),
        communicators=max(len(found), sum(row.communicators for row in last.rows)),
    )


class _RasVerdict:
    """Names the roots, unless they are no exception."""

    def __init__(self, waits: RasWaits, names: Names) -> None:
        self._waits, self._names = waits, names
        self._accused: dict[object, RasCulprit] = {}
        self.lines: list[str] = []

    @property
    def culprits(self) -> tuple[RasCulprit, ...]:
        """Who is named, each once."""
        return tuple(self._accused.values())

    def conclude(self, again: bool) -> tuple[RasKind, float]:
        """The kind and the confidence. ``again``: there was a poll before the last one."""
        facts = self._waits.facts
        # A job cannot go on without any of its ranks, whether or not another is seen waiting.
        gone = {fact.process for fact in facts if isinstance(fact, (Broken, Mute))}
        roots: dict[FactKind, list[GraphRoot]] = defaultdict(list)
        for root in solve(facts, gone):
            roots[root.fault or "not-enqueued"].append(root)
        stuck = [root for root in roots["not-enqueued"] if root.kind != "works"]
        settled = False
        for proof in PROOFS:
            if proof == "not-enqueued":
                if stuck:
                    return self._of_behind(stuck)
                settled = bool(self._waits.operations)
            elif roots[proof]:
                return self._of_mark(proof, roots)
            elif proof in self._waits.doubts and not settled:
                return self._waits.doubts[proof]
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

    def _of_mark(
        self, proof: FactKind, roots: Mapping[FactKind, list[GraphRoot]]
    ) -> tuple[RasKind, float]:
        """Processes and ranks that cannot go on, by what is seen of them alone."""
        kind, confidence = PROOFS[proof]
        found = [r for shown, some in roots.items() if PROOFS[shown][0] == kind for r in some]
        nodes = [root.members[0] for root in found]
        if kind == "cannot-tell" or not self._few(proof, nodes):
            return (kind, confidence) if kind in _OF_ALL else ("cannot-tell", 0.3)
        if proof == "rank-dead" and roots["rank-unresponsive"]:
            self.lines.append("what only does not answer now may be an echo of what is dead")
        for root in found:
            for culprit in self._culprits(root.members[0], kind, root.why):
                self._accuse(culprit)
        lost = {(p.host, p.pid) for node in nodes for p in self._waits.processes.get(node, ())}
        hosts = Counter(host for host, _ in lost)
        views = [view for node in nodes for view in self._waits.ranks.get(node, ())]
        if proof == "collective-mismatch" and any(look.moved(m) is None for look, m in views):
            confidence = 0.6
        if whole := [host for host, count in sorted(hosts.items()) if count > 1]:
            self.lines.append(f"several of them are on {', '.join(whole)}: look at that node")
        return kind, confidence

    def _few(self, proof: FactKind, nodes: Iterable[WaitNode]) -> bool:
        """Whether they are at most half of the job, and fewer than half of each communicator."""
        gone, total = self._waits.gone.get(proof, 0), self._waits.total
        if gone < total < 2 * gone:  # if these are all that we know of, others may well live
            self.lines.append(
                f"{gone} of {total} processes at once: the one that answered may be cut off itself"
            )
            return False
        views = [view for node in nodes for view in self._waits.ranks.get(node, ())]
        counted = proof == "collective-mismatch"
        sizes = {look.last.size for look, _ in views}
        if all(excepted([len(views)], n, most_odd(n) if counted else n // 2) for n in sizes):
            return True
        self.lines.append("no few ranks stand out")
        return False

    def _of_behind(self, stuck: Sequence[GraphRoot]) -> tuple[RasKind, float]:
        """Ranks that have not launched what others wait in, and circles of such ranks."""
        circles = [root for root in stuck if root.kind == "circle"]
        accused = {root.members[0] for root in stuck if root.kind != "circle"}
        accused = accused.union(*map(self._odd, circles))
        held = [
            (one, behind) for one in self._waits.operations if (behind := self._of(one, accused))
        ]
        waiters = set().union(*(root.waiters for root in stuck))
        if accused and any(self._of(one, waiters) for one in self._waits.operations):
            self.lines.append(
                "ranks that are behind in one communicator and ahead in another wait themselves"
            )
        kind: RasKind = "collective-mismatch" if circles else "not-enqueued"
        if reason_not := self._cannot_name(accused, held, circles):
            self.lines.append(reason_not)
            return (kind, 0.3) if circles else ("cannot-tell", 0.3)
        for one, behind in held:
            told = (
                CALLED_ANOTHER if circles else f"has not launched what its peers have: {one.text}"
            )
            for member in behind:
                self._accuse(self._culprit((one.look, member), kind, told))
        twice = all(one.look.moved(member) is False for one, behind in held for member in behind)
        return kind, PROOFS["not-enqueued"][1] if twice else 0.6 if circles else 0.5

    def _of(self, operation: RasOperation, nodes: Container[WaitNode]) -> list[Member]:
        """Those of some nodes to which an operation is the next one."""
        return [m for m in operation.next if self._waits.node(operation.look, m) in nodes]

    def _odd(self, circle: GraphRoot) -> set[WaitNode]:
        """The ranks in a circle that made other calls than the others, in whichever of its
        communicators."""
        keys = {one.look.last.key for one in self._waits.operations if one.node in circle.members}
        odd = odd_ranks(self._waits.counts[key] for key in sorted(keys))
        return {self._waits.node(*view) for view in odd} & set(circle.members)

    def _cannot_name(
        self,
        accused: set[WaitNode],
        held: Sequence[tuple[RasOperation, list[Member]]],
        circles: Sequence[GraphRoot],
    ) -> str:
        """Why nobody is named; empty if there is no reason."""
        around = {node for circle in circles for node in circle.members}
        within = {one.look.last.key for one in self._waits.operations if one.node in around}
        if not accused:
            return (
                "the ranks called different collectives, and no side is the exception"
                if len(within) == 1
                else "every rank that is behind waits elsewhere itself: a circle"
            )
        # The excused are not counted: a group that waits for one of its own is one rank behind.
        if any(len(side) > most_odd(one.look.last.size) for one, side in held):
            return "too many are behind to be the exception: they may wait for another"
        nodes = ({self._waits.node(one.look, member) for member in side} for one, side in held)
        if accused not in nodes:
            return (
                "ranks of several communicators are behind and wait in none; they may wait for "
                "each other's sends, which RAS does not count"
            )
        once = any(one.look.moved(member) is None for one, side in held for member in side)
        # The order of the calls within one communicator does not depend on timing.
        if once and len(within) != 1 and any(one.lead < CLEAR_LEAD for one, _ in held):
            return (
                "one poll and a lag of one: usual in a job that moves; a second poll some seconds "
                "later tells"
            )
        return ""

    def _culprits(self, node: WaitNode, kind: RasKind, why: str) -> Iterator[RasCulprit]:
        """The ranks of a node that cannot go on."""
        for view in self._waits.ranks.get(node, ()):
            yield self._culprit(view, kind, why)
        for process in self._waits.processes.get(node, ()):
            ranks: list[int | None] = [*self._names.of_process(process)] or [None]
            for rank in ranks:
                yield RasCulprit(
                    rank=rank,
                    host=process.host,
                    pid=process.pid,
                    gpu=",".join(map(str, process.gpus)),
                    kind=kind,
                    reason=why,
                )

    def _culprit(self, view: RankView, kind: RasKind, why: str) -> RasCulprit:
        look, member = view
        return RasCulprit(
            rank=self._names.of_member(look.last, member),
            host=member.host,
            pid=member.pid,
            gpu="" if member.gpu is None else str(member.gpu),
            kind=kind,
            reason=why,
        )

    def _accuse(self, culprit: RasCulprit) -> None:
        place = culprit.host, culprit.pid, culprit.gpu
        self._accused.setdefault(place if culprit.rank is None else culprit.rank, culprit)

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
