"""What answers of NCCL's RAS service show, as facts of the graph of waits.

The operations of a communicator are numbered by kind: its fifth AllReduce, its third Reduce. A rank
that has launched fewer of a kind than another has not come to the next one, in which the other
waits. So a rank that waits elsewhere for another has an edge there, and ranks that called different
collectives wait for each other in a circle. Counts are taken at the launch on the host, and differ
while a job runs; sends and receives are not counted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import msgspec

from ray_sentinel.evidence.alignment import Stand, in_order, odd_ones
from ray_sentinel.evidence.nccl_ras.meshes import (
    CommunicatorView,
    each_once,
    newest,
    process_count,
)
from ray_sentinel.evidence.nccl_ras.poll import (
    ERRORS,
    LIVE,
    REMOTE_ERROR,
    Member,
    Place,
    Poll,
    RasProcess,
)
from ray_sentinel.evidence.nccl_ras.world import Names
from ray_sentinel.evidence.sentences import counted, has_not_come
from ray_sentinel.model.ras import RasWait
from ray_sentinel.waitgraph.alike import folded
from ray_sentinel.waitgraph.facts import (
    IN_OPERATION,
    Broken,
    Elsewhere,
    FactKind,
    Moves,
    Mute,
    WaitFact,
    WaitNode,
    WaitsFor,
    node_at,
    node_of_rank,
    not_reached,
)

RAS = "nccl-ras"
DEAD = "is dead to RAS: its process has ended, or could not be reached for a minute"
MUTE = "does not answer RAS: stopped, hung with all its threads, cut off, or just gone"
CALLED_ANOTHER = "has launched other collectives than its peers"
IN_STARTUP = "does not come out of the communicator's initialization"
LEFT = "has left a communicator that others are still in"
UNLISTED = "is missing from the RAS answer, while the others' counts stand still"
GONE = WaitNode("resource", "a process that is gone")
"""What a rank waits for that reports a "remote process error"."""
UNNAMED = WaitNode("several", "members that an answer does not name")
MAY_BE = "may be one of"
"""``WaitsFor.how`` of a rank and the members that are not named."""
_MOST_OPERATIONS = 12
_MOST_ERRORS = 16
_MOST_NAMED = 8
_LEAST_LIKE = 2
"""Least number of communicators of one size that show what is usual in them."""

RankView = tuple[CommunicatorView, Member]
Identity = Place | tuple[str, int]
"""Equal for one rank in all its communicators, if its process is known."""


@dataclass(frozen=True, kw_only=True)
class RasOperation:
    """An operation of a communicator that some of its ranks have launched, and others not."""

    look: CommunicatorView
    node: WaitNode
    kind: str
    number: int
    next: tuple[Member, ...]
    """Those that lack no earlier one of its kind, and have not launched it."""
    last: tuple[Member, ...]
    """Those that have launched it, and nothing of its kind after it."""
    lead: int
    """How many collectives the ranks farthest behind in the communicator lack, at least."""
    text: str
    """It and its ranks, for people."""
    not_reached: str
    """What is said of those that have not come to it."""


@dataclass(frozen=True, kw_only=True)
class RasRank:
    """A rank as people know it."""

    rank: int | None
    host: str
    pid: int | None
    gpu: str
    size: int = 0
    """Ranks in the communicator in which it was seen; 0 where its process as a whole is named."""


class RasWaits:
    """The facts, with the ranks and processes of their nodes and a sentence about each finding."""

    def __init__(
        self, polls: Sequence[Poll], looks: Sequence[CommunicatorView], names: Names
    ) -> None:
        self._looks, self._names = looks, names
        self._last = newest(polls)
        self._ranks: dict[Identity, RankView] = {}
        self._gone: dict[Identity, RasProcess] = {}
        self._nodes: dict[Identity, WaitNode] = {}
        self._views = [(look, member) for look in looks for member in look.last.members]
        self._numbers = {identity(v): names.of_member(v[0].last, v[1]) for v in self._views}
        self._alone = Counter(self._numbers.values())
        self._places: dict[tuple[str, int], dict[Place, None]] = defaultdict(dict)
        for _, member in self._views:
            if (place := member.place) is not None:
                self._places[place[:2]][place] = None
        self.lines: list[str] = []
        self.waits: list[RasWait] = []
        self.contradictory: set[str] = set()
        """The keys of the communicators whose ranks have launched different collectives."""
        self.ranks: dict[WaitNode, list[RasRank]] = defaultdict(list)
        self.facts: list[WaitFact] = []
        self.total = process_count(self._last)
        """Processes in the job."""
        dead = each_once(process for poll in self._last for process in poll.dead)
        known = {(process.host, process.pid) for process in dead}
        mute = each_once(process for poll in self._last for process in poll.missing)
        mute = [one for one in mute if (one.host, one.pid) not in known]
        told = sum(poll.missing_count for poll in self._last) - (not mute) * len(dead)
        self.gone: dict[FactKind, int] = {
            "rank-dead": max(len(dead), sum(poll.dead_count for poll in self._last)),
            "rank-unresponsive": max(len(mute), told),
        }
        """How many processes are gone, named or not."""
        self._state_gone(Broken, "rank-dead", DEAD, dead)
        self._state_gone(Mute, "rank-unresponsive", MUTE, mute)
        self._state_errors()
        self.counts = {look.last.key: RasCounts(look) for look in looks}
        self._kinds = [kind for counts in self.counts.values() for kind in counts.differences()]
        self.operations = [one for kind, _ in self._kinds for one in kind]
        self._state_operations()
        self._state_calls()
        self._state_memberships()
        self._state_unlisted()
        self._state_table(polls[-1])
        self._state_movement()
        self.facts += self._waits()
        self._fold()

    def who(self, view: RankView) -> str:
        """A rank in words for people."""
        look, member = view
        rank = self._names.of_member(look.last, member)
        own = f"rank {rank}" if rank is not None else f"its rank {member.rank}"
        return own + (f" (pid {member.pid} on {member.host})" if member.place is not None else "")

    def node(self, look: CommunicatorView, member: Member) -> WaitNode:
        """The node of a rank of which a fact is known."""
        who = identity((look, member))
        self._ranks.setdefault(who, (look, member))
        return self._node_of(who)

    def _node_of(self, who: Identity) -> WaitNode:
        """The node of a rank; a number that several are told to have is nobody's."""
        if (node := self._nodes.get(who)) is None:
            rank = self._numbers.get(who)
            node = (
                node_of_rank(rank) if rank is not None and self._alone[rank] == 1 else node_at(*who)
            )
            self._nodes[who] = node
        return node

    def ahead_of_all(self, one: RasOperation) -> bool:
        """Whether at most half of its communicator have launched an operation, and nobody in the
        communicators of that size has launched so many of the kind: those who have may have made
        one too many."""
        mine = [m.counts.get(one.kind, 0) for m in self.counts[one.look.last.key].members]
        inside = sum(count >= one.number for count in mine)
        like = [
            counts
            for key, counts in self.counts.items()
            if key != one.look.last.key
            and counts.look.last.size == one.look.last.size
            and one.kind in counts.kinds
        ]
        reached = (m.counts[one.kind] >= one.number for counts in like for m in counts.members)
        return 2 * inside <= len(mine) and len(like) >= _LEAST_LIKE and not any(reached)

    def send_to_each_other(self, nodes: Container[WaitNode]) -> bool:
        """Whether some ranks are all the members of a communicator that has seen no collective,
        while others have: it is there for sends and receives, as those of a pipeline."""
        return any(
            len(counts.members) > 1
            and not any(sum(m.counts[kind] for kind in counts.kinds) for m in counts.members)
            and all(self.node(counts.look, member) in nodes for member in counts.members)
            for counts in self.counts.values()
        )

    def _state_gone(
        self,
        fact: type[Broken | Mute],
        kind: FactKind,
        why: str,
        processes: Sequence[RasProcess],
    ) -> None:
        """Record processes, then the missing ranks whose process the answer does not name."""
        for process in processes:
            for who in self._ranks_of(process):
                self._gone[who] = process
                node = self._node_of(who)
                self.facts.append(fact(process=node, kind=kind, why=why))
            ranks = ", ".join(map(str, self._names.of_process(process)))
            which = f" (rank {ranks})" if ranks else ""
            self.lines.append(f"process {process.pid} on {process.host}{which} {why}")
        if not processes and self.gone[kind] > 0:
            unnamed = WaitNode("process", f"{self.gone[kind]} that the output does not name")
            self.facts.append(fact(process=unnamed, kind=kind, why=why))
            self.lines.append(
                f"{self.gone[kind]} processes: each {why}; the output does not name them (verbose "
                "does)"
            )
        if kind == "rank-unresponsive" and (timeouts := sum(poll.timeouts for poll in self._last)):
            self.lines.append(
                f"{timeouts} communication time-outs while RAS gathered this: a process did not "
                "answer"
            )
        if self.gone[kind] > 0:
            return
        state = "DEAD" if kind == "rank-dead" else "UNRESPONSIVE"
        for look, member in self._views:
            if member.state == state and member.place is None:
                self.facts.append(fact(process=self.node(look, member), kind=kind, why=why))
                self.lines.append(f"{self.who((look, member))} of {look.last.name} {why}")

    def _ranks_of(self, process: RasProcess) -> Iterable[Identity]:
        """The ranks of a process, as far as any communicator shows them; otherwise itself."""
        known = self._places[process.host, process.pid]
        gpus = {-1, *process.gpus}
        return [place for place in known if not process.gpus or place[2] in gpus] or [
            (process.host, process.pid)
        ]

    def _state_errors(self) -> None:
        failed = [(look, member) for look, member in self._views if member.error]
        for place, (look, member) in enumerate(failed):
            node, why = self.node(look, member), f"reports: {member.error}"
            if member.error != ERRORS[REMOTE_ERROR]:
                self.facts.append(Broken(process=node, kind="communicator-error", why=why))
            else:
                self.facts.append(WaitsFor(who=node, awaited=GONE, how=member.error))
                self.facts.append(Mute(process=GONE, kind="remote-error", why=GONE.key))
            if place < _MOST_ERRORS:
                self.lines.append(f"{self.who((look, member))} {why} ({look.last.name})")
        if len(failed) > _MOST_ERRORS:
            self.lines.append(f"... and {len(failed) - _MOST_ERRORS} such reports more")

    def _state_operations(self) -> None:
        for (found, *_), inside in self._kinds[:_MOST_OPERATIONS]:
            look = found.look
            named = _listed([self.who((look, member)) for member in found.next])
            few = len(found.next) <= max(_MOST_NAMED, len(inside))
            self.lines.append(found.text + (f": {named}" if few else ""))
            ranks = {self._names.of_member(look.last, member) for member in inside}
            if ahead := tuple(sorted(rank for rank in ranks if rank is not None)):
                waits = RasWait(ranks=ahead, communicator=look.last.key, text=found.text)
                self.waits.append(waits)
        if (more := len(self._kinds) - _MOST_OPERATIONS) > 0:
            self.lines.append(f"{more} such differences more")

    def _state_calls(self) -> None:
        """Ranks that have launched other collectives than their peers. The order of the calls
        within one communicator does not depend on timing."""
        for key, counts in self.counts.items():
            counted = stands([counts])
            if not in_order(counted):
                self.contradictory.add(key)
            for look, member in odd_ones(counted):
                if (moved := look.movement(member)) == "moved":
                    continue
                node, looks = self.node(look, member), None if moved == "unknown" else 2
                kind: FactKind = "collective-mismatch"
                self.facts.append(Broken(process=node, kind=kind, why=CALLED_ANOTHER, looks=looks))

    def _state_memberships(self) -> None:
        """Ranks that are not yet, or no longer, in a communicator that others use. While it is
        created or destroyed they differ for a moment."""
        for look in self._looks:
            by_state: dict[str, list[Member]] = defaultdict(list)
            for member in look.last.members:
                if member.state in LIVE or member.state == "NOCOMM":
                    by_state[member.state].append(member)
            if len(by_state) < 2 and "INIT" not in by_state:
                continue
            told = ", ".join(f"{len(found)} {state}" for state, found in sorted(by_state.items()))
            self.lines.append(f"{look.last.name}: its ranks are {told}")
            before = {m.rank: old.state for m in look.last.members if (old := look.before(m.rank))}
            stays = all(before.get(member.rank) == member.state for member in look.last.members)
            if not stays:
                self.lines.append(
                    "that is usual while a communicator is made or torn down; a second poll tells "
                    "whether it stays so"
                )
            self.facts += self._of_memberships(look, by_state, 2 if stays else 1)

    def _of_memberships(
        self, look: CommunicatorView, by_state: Mapping[str, list[Member]], looks: int
    ) -> Iterator[WaitFact]:
        """Ranks that are out of a communicator's initialization need all others in it; as long as
        none is, those that are in it wait for those that are not."""
        starting = by_state["INIT"] and not by_state["RUNNING"]
        operation = WaitNode("operation", f"{'start' if starting else 'use'} of {look.last.key}")
        kind: FactKind = "startup-stuck" if by_state["INIT"] else "left-communicator"
        absent = [m for state in ("NOCOMM", "FINALIZE", "ABORT") for m in by_state[state]]
        if by_state["INIT"]:
            absent = by_state["NOCOMM"] if starting else by_state["INIT"]
        why = IN_STARTUP if by_state["INIT"] else LEFT
        for node in [self.node(look, member) for member in absent] or [operation]:
            yield Elsewhere(process=node, place="", doing=why, kind=kind, looks=looks)
            if node != operation:
                yield not_reached(node, operation)
        for member in by_state["INIT"] if starting and looks > 1 else ():
            node = self.node(look, member)
            yield WaitsFor(who=node, awaited=operation, how=IN_OPERATION)

    def _state_unlisted(self) -> None:
        """Ranks that the answer leaves out altogether. That is normal while a communicator is
        created; in one that stands still in two polls, the others wait for the missing ranks."""
        for look in self._looks:
            if not look.last.unlisted:
                continue
            absent = [look.before(rank) or Member(rank=rank) for rank in look.last.unlisted]
            who = _listed([self.who((look, member)) for member in absent])
            self.lines.append(f"{look.last.name}: the answer says nothing of {who}")
            moved = {look.movement(member) for member in look.last.members}
            if "moved" in moved:
                continue
            # All were listed before: a rank that was not yet a member may still be on its way.
            known = all(look.before(rank) is not None for rank in look.last.unlisted)
            stays = look.first is not None and look.first.unlisted == look.last.unlisted
            looks = 2 if "unknown" not in moved and (known or stays) else 1
            for node in [self.node(look, member) for member in absent]:
                self.facts.append(
                    Mute(process=node, kind="rank-unlisted", why=UNLISTED, looks=looks)
                )

    def _state_table(self, last: Poll) -> None:
        """Communicators that are in the table of a text output, and not described."""
        bad = sum(row.communicators for row in last.rows if row.errors) - len(self._looks)
        if bad > 0:
            errors = ", ".join(sorted({error for row in last.rows for error in row.errors}))
            self.lines.append(f"{bad} communicators with {errors} are listed without details")
            others = WaitNode("resource", "communicators without details")
            why = f"{bad} communicators with {errors}"
            self.facts.append(Broken(process=others, kind="cannot-tell", why=why))
        if any(row.status == "INIT" for row in last.rows):
            self.lines.append("communicators are being initialized")

    def _state_movement(self) -> None:
        changes = [look.movement(member) for look, member in self._views]
        self.moved, self.still = changes.count("moved"), changes.count("stuck")
        if self.moved:
            both = self.moved + self.still
            self.lines.append(f"between the polls {self.moved} of {both} ranks' counts went on")
        elif self.still:
            apart = [look.apart for look in self._looks if look.apart is not None]
            over = f" over {max(apart):.0f} s" if apart else ""
            self.lines.append(f"no count has moved{over}")

    def _waits(self) -> Iterator[WaitFact]:
        """Who is in an operation, who has not come to it, and who goes on."""
        for one in self.operations:
            for member in one.last:
                who = self.node(one.look, member)
                yield WaitsFor(who=who, awaited=one.node, how=IN_OPERATION)
            for member in one.next:
                yield not_reached(self.node(one.look, member), one.node)
        for moved in self._moving() & self._ranks.keys():
            yield Moves(process=self._node_of(moved))
        yield from self._of_the_unnamed()

    def _fold(self) -> None:
        """Make one node of the ranks that are alike."""
        facts, alike = folded(self.facts)
        self.facts = [msgspec.structs.replace(fact, witness=RAS) for fact in facts]
        shown = {node: shown for shown, nodes in alike.items() for node in nodes}
        for who in {**self._gone, **self._ranks}:
            self._nodes[who] = node = shown[self._nodes[who]]
            self.ranks[node] += self._ranks_at(who)

    def _ranks_at(self, who: Identity) -> Iterator[RasRank]:
        if (process := self._gone.get(who)) is None:
            look, member = self._ranks[who]
            yield RasRank(
                rank=self._names.of_member(look.last, member),
                host=member.host,
                pid=member.pid,
                gpu="" if member.gpu is None else str(member.gpu),
                size=look.last.size,
            )
            return
        numbers: list[int | None] = [*self._names.of_process(process)] or [None]
        gpu = ",".join(map(str, process.gpus))
        for rank in numbers:
            yield RasRank(rank=rank, host=process.host, pid=process.pid, gpu=gpu)

    def _of_the_unnamed(self) -> Iterator[WaitFact]:
        """Where an answer does not name those that are ahead, a rank that it lists behind, but not
        there, may be among them, if nothing else is known of it. One node stands for all whom
        answers do not name."""
        known = {f.process for f in self.facts if isinstance(f, Elsewhere) and f.looks != 1}
        listed = {
            one.look.last.key: {member.place for member in one.look.last.members}
            for (one, *_), inside in self._kinds
            if any(member.place is None for member in inside)
        }
        in_all = set.intersection(*listed.values()) if listed else set()
        behind = {m.place: None for one in self.operations for m in one.next if m.place}
        for place in behind if listed else ():
            if place not in in_all and (node := self._node_of(place)) not in known:
                yield WaitsFor(who=node, awaited=UNNAMED, how=MAY_BE)
        for one in self.operations:
            if one.look.last.key in listed:
                yield WaitsFor(who=UNNAMED, awaited=one.node, how=IN_OPERATION)

    def _moving(self) -> set[Identity]:
        """The ranks that were seen going on. A host launches ahead of its device: further launches
        where it is already ahead prove nothing, there or elsewhere."""
        ahead = {(one.look.last.key, m.rank) for (one, *_), inside in self._kinds for m in inside}
        on: set[Identity] = set()
        runs_ahead: set[Identity] = set()
        for look, member in self._views if self.operations else ():
            if look.movement(member) == "moved":
                of_ahead = (look.last.key, member.rank) in ahead
                (runs_ahead if of_ahead else on).add(identity((look, member)))
        return on - runs_ahead


class RasCounts:
    """How many collectives the ranks of a communicator have launched, by kind."""

    def __init__(self, look: CommunicatorView) -> None:
        self.look = look
        shown = (m for m in look.last.members if m.counts and m.state in ("RUNNING", "", "INIT"))
        self.members = tuple(shown)
        known = [set(member.counts) for member in self.members]
        self.kinds = sorted(set.intersection(*known)) if known else []

    def differences(self) -> Iterator[tuple[list[RasOperation], list[Member]]]:
        """For each kind of which the ranks have launched different numbers: the operations that the
        ranks behind have not come to, the earliest first, and the ranks that have launched the
        first of them."""
        sums = sorted({sum(m.counts[kind] for kind in self.kinds) for m in self.members})
        for kind in self.kinds:
            launched: dict[int, list[Member]] = defaultdict(list)
            for member in self.members:
                launched[member.counts[kind]].append(member)
            steps = sorted(launched)
            if len(steps) > 1:
                lead = sums[1] - sums[0] if len(sums) > 1 else 0
                ahead = list(chain.from_iterable(launched[step] for step in steps[1:]))
                yield self._operations(kind, launched, lead), ahead

    def _operations(
        self, kind: str, launched: Mapping[int, list[Member]], lead: int
    ) -> list[RasOperation]:
        found, ahead = [], len(self.members)
        for have, more in pairwise(sorted(launched)):
            ahead -= len(launched[have])
            name = f"{kind} number {have + 1} of {self.look.last.name}"
            counts = f"launched {have} such calls, and the furthest {max(launched)}"
            did = f"{counted(ahead, others=False)} launched it"
            did_not = f"{counted(len(self.members) - ahead)} did not"
            found.append(
                RasOperation(
                    look=self.look,
                    node=WaitNode("operation", f"{self.look.last.key}:{kind}:{have + 1}"),
                    kind=kind,
                    number=have + 1,
                    next=tuple(launched[have]),
                    last=tuple(launched[more]),
                    lead=lead,
                    text=f"{name}: {did}, and {did_not} ({counts.removeprefix('launched ')})",
                    not_reached=has_not_come(name, f"which {counted(ahead)} launched", counts),
                )
            )
        return found


def stands(communicators: Iterable[RasCounts]) -> Mapping[Stand[tuple[str, str]], list[RankView]]:
    """The ranks by how many collectives they have launched in some communicators."""
    launched: dict[Identity, dict[tuple[str, str], int]] = defaultdict(dict)
    views: dict[Identity, RankView] = {}
    for counts in communicators:
        for member in counts.members:
            view = counts.look, member
            views.setdefault(identity(view), view)
            for kind in counts.kinds:
                launched[identity(view)][counts.look.last.key, kind] = member.counts[kind]
    found: dict[Stand[tuple[str, str]], list[RankView]] = defaultdict(list)
    for who, numbers in launched.items():
        found["", frozenset(numbers.items())].append(views[who])
    return found


def identity(view: RankView) -> Identity:
    """Equal for one rank in all its communicators, if its process is known."""
    look, member = view
    return member.place or (look.last.key, member.rank)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
