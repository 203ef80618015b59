"""The reasoning, in order: who is waited for and waits for nobody, and why.

1. Waited for, waiting for nobody: it stopped in its own code.
2. Its device or watchdog did not complete what its peers completed.
3. It stopped earlier than its equals that wait for the same operation: hidden behind another
   culprit.
4. Nobody is left to blame: a closed circle, judged by what was called.
5. No dump, and nothing else explains why others wait for it.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from ray_sentinel.evidence.alignment import order_votes
from ray_sentinel.evidence.flight_recorder.circles import Circles
from ray_sentinel.evidence.flight_recorder.entry import Entry
from ray_sentinel.evidence.flight_recorder.peer_roles import MOST_VOTERS, Call, Equals
from ray_sentinel.evidence.flight_recorder.waits import Operation, Waits
from ray_sentinel.evidence.sentences import OWN_CODE, counted, has_not_come, wait
from ray_sentinel.model.rank_names import name_ranks
from ray_sentinel.model.recorder import RecorderCulprit, RecorderKind
from ray_sentinel.waitgraph.recorder_facts import RecorderWaits
from ray_sentinel.waitgraph.solver import solve

_STRENGTH: dict[RecorderKind, float] = {
    "not-enqueued": 0.95,
    "device-stuck": 0.9,
    "collective-mismatch": 0.85,
    "no-dump": 0.6,
}
_IDLE = 0.8
_HIDDEN = 0.75
_DEEPEST = 256
"""Most pending operations of one rank that are looked at; later ones are not."""
_LEAST_VOTES = 2
_MOST_ASKED = 64
"""Most ranks that are asked for their earlier calls: the whole dump of each is read again for
it."""


class Findings(msgspec.Struct):
    """The result of the reasoning."""

    culprits: dict[int, RecorderCulprit] = {}
    strength: float = 1.0
    remarks: list[str] = []
    """Sentences on what cannot be told, and on what weakens the rest."""
    mismatch: bool = False
    out_of_turn: dict[int, str] = {}
    """Ranks in a call that others make later → the reason. They are looked for where transfers are
    not recorded: a rank that waits in one seems to stand still there."""
    unexplained: bool = False
    """Some rank waits, and nothing that was found explains why."""

    def blame(self, rank: int, kind: RecorderKind, reason: str, strength: float) -> None:
        """Name a culprit, unless it is already named. The whole is at most of this ``strength``
        (0..1)."""
        if rank not in self.culprits:
            self.culprits[rank] = RecorderCulprit(rank=rank, kind=kind, reason=reason)
            self.strength = min(self.strength, strength)

    def leave_open(self, remark: str) -> None:
        """Note a wait that nothing explains."""
        self.unexplained = True
        self.remarks.append(remark)


class Reasoning:
    """One pass over one set of dumps."""

    def __init__(self, waits: Waits) -> None:
        self.world = waits.world
        self.waits = waits
        self.equals = Equals(self.world)
        self.circles = Circles(waits, self.equals)
        self.findings = Findings()
        self.told = RecorderWaits(waits)
        self.outnumbered: list[int] = []
        """Waited for, but with more of their kind than there are that wait."""

    def run(self) -> Findings:
        """Find the culprits."""
        silent: list[int] = []
        circles: list[tuple[list[int], list[Operation]]] = []
        for root in solve(self.told.facts):
            ranks, operations = self.told.members(root)
            if operations:
                circles.append((ranks, operations))
            elif root.kind == "mute":
                silent += ranks
            elif ranks[0] in self.told.waited:
                self._stopped(ranks[0], root.why)
        self._note_outnumbered()
        self._behind_what_is_queued()
        if self.findings.culprits:
            self._held_back()
        for ranks, operations in sorted(circles, key=lambda circle: circle[0]):
            self._circle(ranks, operations)
        self._silent(silent)
        self._idle_laggards()
        if self.world.unrecorded_p2p:
            self._out_of_turn()
        return self.findings

    def _stopped(self, rank: int, doing: str) -> None:
        if self._device_stopped(rank):
            return
        alike = self.equals.stand_alike(rank, self._idle())
        if alike:
            self.findings.leave_open(
                f"rank {rank} is waited for, but not {name_ranks(alike)} in the same position and "
                "at the same place in the program: they wait for something outside, or the one "
                "that waits made a call too many"
            )
            return
        if all(self._outnumbered(rank, operation) for operation in self.told.waited[rank]):
            self.outnumbered.append(rank)
            return
        waiting = sum(len(operation.held) for operation in self.told.waited[rank])
        first = self._title(self.told.waited[rank][0])
        reason = f"is waited for by {counted(waiting)} in {first}; it {doing}"
        if rank in self.told.absent_somewhere:
            reason = has_not_come(first, f"in which {wait(waiting)}", f"{doing}: {OWN_CODE}")
        self.findings.blame(rank, "not-enqueued", reason, _STRENGTH["not-enqueued"])

    def _device_stopped(self, rank: int) -> bool:
        """Name a rank that has not completed what its peers have; False if it is none.

        gloo has no device that can stop: who is on its way out of a call has made it, and is judged
        by what it calls next, like one that is out already.
        """
        operation = self.told.laggards.get(rank)
        if operation is None or (operation.entry and operation.entry.library == "gloo"):
            return False
        reason = (
            f"has not completed {self._title(operation)}, which its peers have completed: its "
            "device, or the watchdog that looks at it, stopped"
        )
        self.findings.blame(rank, "device-stuck", reason, _STRENGTH["device-stuck"])
        return True

    def _note_outnumbered(self) -> None:
        if self.outnumbered:
            self.findings.leave_open(
                f"{name_ranks(self.outnumbered)}: waited for, but more idle ranks have not made "
                "that call than have made it: those that wait may have made one too many"
            )

    def _outnumbered(self, rank: int, operation: Operation) -> bool:
        kind, ident, seq, _ = operation.key
        idle = [other for other in operation.absent if not self.waits.fronts.get(other)]
        return rank in idle and kind == "collective" and self.waits.outnumber(idle, ident, seq)

    def _behind_what_is_queued(self) -> None:
        """Ranks with nothing pending that have not made a call which others made and wait to
        execute: nothing that is recorded holds them.

        None if equal ranks for which nobody waits stand at the same point: then they all wait for
        something outside.
        """
        free = set(self.waits.idle(self.findings.culprits))
        behind = self._missing(free)
        for rank, reason in behind.items():
            if not self.equals.stand_alike(rank, free - behind.keys()):
                self.findings.blame(rank, "not-enqueued", reason, _IDLE)

    def _missing(self, free: set[int]) -> dict[int, str]:
        """Which of these ranks are absent from an operation that another rank has queued, and
        why."""
        reasons: dict[int, str] = {}
        seen: set[tuple[int, int]] = set()
        for rank, dump in self.world.dumps.items():
            for entry in dump.pending[:_DEEPEST] if free else ():
                group = self.world.group_of(rank, entry)
                if group is None or (group.id, entry.seq) in seen:
                    continue
                if self.world.in_launch(rank, entry):
                    continue
                if not entry.p2p:
                    seen.add((group.id, entry.seq))
                absent = free & self._absent(rank, group.id, entry)
                several = len(absent) > 1 and not entry.p2p
                if several and self.waits.outnumber(absent, group.id, entry.seq):
                    continue
                held_up = f"which rank {rank} has queued"
                doing = f"has nothing pending of its own: {OWN_CODE}"
                for other in absent:
                    why = has_not_come(self.world.title(rank, entry), held_up, doing)
                    reasons.setdefault(other, why)
        return reasons

    def _absent(self, rank: int, ident: int, entry: Entry) -> set[int]:
        if not entry.p2p:
            return {*self.world.members(ident, entry.seq)["absent"]}
        partners = self.waits.partners.of(rank, entry)
        return {partner.rank for partner in partners if partner.state == "absent"}

    def _held_back(self) -> None:
        """Ranks that wait, but stopped issuing calls earlier than that wait explains.

        The first and last rank often do host work of their own, such as logging: they are only
        mentioned.
        """
        ends = self.world.groups.world[0], self.world.groups.world[-1]
        for rank, held in self.waits.fronts.items():
            if not held or rank in self.findings.culprits:
                continue
            beyond = self.equals.stopped_early(rank)
            if beyond and rank in ends:
                self.findings.remarks.append(
                    f"rank {rank} waits for the same as {name_ranks(beyond[:4])}, but has issued "
                    "less; the first and the last rank often do so, so it is not accused"
                )
            elif beyond:
                reason = (
                    f"stopped issuing operations before rank {beyond[0]} did, which is in the same "
                    f"position and waits for the same: {OWN_CODE}, hidden behind another"
                )
                self.findings.blame(rank, "not-enqueued", reason, _HIDDEN)

    def _circle(self, ranks: list[int], operations: list[Operation]) -> None:
        if len(ranks) == 1 and self._own_operation(ranks[0], operations):
            return
        verdict = self.circles.judge(ranks, operations)
        self.findings.mismatch |= verdict.kind == "collective-mismatch"
        for rank, reason in verdict.culprits.items():
            self.findings.blame(rank, verdict.kind, reason, _STRENGTH[verdict.kind])
        if not verdict.culprits:
            self.findings.leave_open(verdict.remark)

    def _own_operation(self, rank: int, operations: list[Operation]) -> bool:
        """A rank in an operation that involves nobody else, while others wait for it."""
        alone = all({*op.awaited, *op.inside} <= {rank} for op in operations)
        others = [op for op in self.told.waited.get(rank, ()) if op not in operations]
        if not alone or not others or any(map(self._may_have_others, operations)):
            return False
        reason = f"is stuck in an operation of its own, {self._title(operations[0])}"
        self.findings.blame(rank, "device-stuck", reason, _STRENGTH["device-stuck"])
        return True

    def _may_have_others(self, operation: Operation) -> bool:
        """Whether a rank may be in it that left no dump: of a group that no dump lists, the members
        are those that were seen in it."""
        group = self.world.group(operation.group)
        if group.closed:
            return False
        told = operation.entry.implied_size if operation.entry is not None else None
        if told is not None:
            return told > len(group.members)
        return any(map(self.world.says_nothing, self.world.groups.world))

    def _silent(self, silent: list[int]) -> None:
        """Rule 5, where nobody else can be what the silent rank waits for in its turn."""
        silent = [rank for rank in silent if rank in self.told.waited]
        if not silent:
            return
        others = self.findings.culprits or self.findings.unexplained or self._idle()
        if others or len(silent) > 1:
            self.findings.unexplained |= not self.findings.culprits
            self.findings.remarks.append(
                f"{name_ranks(silent)} left no dump that says anything: others wait there, but a "
                "rank without a dump may itself wait for another"
            )
            return
        held = self.told.waited[silent[0]]
        reason = (
            "left no dump that says anything, and nothing else explains why "
            f"{wait(sum(len(op.held) for op in held), others=False)} in {self._title(held[0])}"
        )
        self.findings.blame(silent[0], "no-dump", reason, _STRENGTH["no-dump"])

    def _idle(self) -> list[int]:
        """Ranks that have nothing pending and that nobody with a dump waits for."""
        return self.waits.idle(self.told.waited)

    def _idle_laggards(self) -> None:
        """A device that stopped in the last operation: nobody waits, but its peers are done."""
        if self.findings.culprits or self.findings.unexplained:
            return
        for rank in self.told.laggards:
            self._device_stopped(rank)

    def _out_of_turn(self) -> None:
        """Ranks whose call was too early: each waits for a peer that waits for it in another
        collective.

        Only if at least two other ranks of the same program made either of the two calls, and all
        of them made the peers' call first.
        """
        for due in self.waits.operations.values():
            for rank in due.absent if due.key[0] == "collective" else ():
                for made in self.waits.fronts.get(rank, ()):
                    peers = set(due.held) & set(made.absent)
                    if made.key[0] != "collective" or not peers:
                        continue
                    calls = self._call(due), self._call(made)
                    voters = self._same_program(rank, peers, calls)[:MOST_VOTERS]
                    votes = order_votes(*calls, map(self.equals.sequence, voters))
                    if len(votes) >= _LEAST_VOTES and all(votes):
                        verb = "waits" if len(due.held) == 1 else "wait"
                        self.findings.out_of_turn[rank] = has_not_come(
                            self.waits.numbered(due),
                            f"in which {name_ranks(due.held)} {verb} for it, and which "
                            f"{len(votes)} other ranks made first",
                            f"is in {self.waits.numbered(made)}",
                        )

    def _call(self, operation: Operation) -> Call:
        return (self.world.group(operation.group).kind, False), operation.number

    def _same_program(
        self, rank: int, peers: Collection[int], calls: tuple[Call, Call]
    ) -> list[int]:
        """Other ranks that had made as many calls of the one counter before the other's call before
        this; the nearest first, because those share a stage.

        Stages of a pipeline may make different numbers of calls in a step, so the same number is
        not the same place in their programs.
        """
        (counter, _), at = calls
        before = self.equals.sequence(rank).reached_before(counter, at)
        others = self.world.dumps.keys() - peers - {rank} if before is not None else ()
        nearest = sorted(others, key=lambda other: abs(other - rank))[:_MOST_ASKED]
        sequence = self.equals.sequence
        return [o for o in nearest if sequence(o).reached_before(counter, at) == before]

    def _title(self, operation: Operation) -> str:
        if operation.key[0] == "collective":
            return self.waits.title(operation)
        if operation.entry is None:
            return f"an operation of rank {operation.key[2]} that its dump does not show"
        label = self.world.group(operation.group).label
        return f"the counterpart of rank {operation.key[2]}'s {operation.title} ({label})"
