"""Collectives and transfers of a job's actors: who is in one, and who has not reached it.

A process group cannot be seen from outside, except for the rank that a process has in its first
group. So the members of an operation are assumed to be the actors of one class, which form a group
in most jobs. But an operation that a whole class has reached ends; if it does not, it has members
outside the class. Those are, in this order: actors in an operation of the same name, as trainers
that send weights and engines that receive them; the others of a process group that spans classes;
actors that were called by a process in the operation; ranks of other classes that were called by
the same caller.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.waitgraph.facts import (
    IN_OPERATION,
    WaitFact,
    WaitNode,
    WaitsFor,
    not_reached,
    process_node,
)
from ray_sentinel.waitgraph.job_processes import JobMember

Crew = tuple[str, str, str]
"""The actors of one job, class and process group; the group is empty where it is not known."""


class ActorOperation(msgspec.Struct, frozen=True, kw_only=True):
    """One collective or transfer."""

    job: str
    name: str
    """Such as "broadcast"; empty where nothing tells."""
    inside: tuple[WaitNode, ...]
    missing: tuple[WaitNode, ...] = ()
    roles: tuple[str, ...]
    """The classes of the actors that are inside or missing."""

    @property
    def node(self) -> WaitNode:
        """Its node in the graph."""
        return WaitNode("operation", f"{self.job}:{self.text}:{min(self.inside).key}")

    @property
    def text(self) -> str:
        """Its name for people: "broadcast of Trainer and Engine"."""
        return f"{self.name or 'a collective'} of {' and '.join(self.roles)}"

    def facts(self, stacks: Mapping[WaitNode, StackFact]) -> Iterator[WaitFact]:
        """Who waits in it, and for whom."""
        for node in self.inside:
            yield WaitsFor(who=node, awaited=self.node, how=IN_OPERATION, witness=stacks[node].tool)
        for node in self.missing:
            yield not_reached(node, self.node, "stack")


class _Party(msgspec.Struct, frozen=True, kw_only=True):
    """The members of one crew that are in an operation, and those that are missing from it."""

    crew: Crew
    name: str
    """The name of the operation; empty where nothing tells, or for several."""
    inside: tuple[WaitNode, ...]
    missing: tuple[WaitNode, ...]


class JobOperations:
    """Finds the operations in one look."""

    def __init__(
        self,
        members: Mapping[WaitNode, JobMember],
        stacks: Mapping[WaitNode, StackFact],
        moved: Collection[WaitNode],
        groups: Mapping[ProcessId, str],
        called: Callable[[WaitNode], Iterable[WaitNode]],
        beside: Callable[[Iterable[WaitNode]], Iterable[WaitNode]] = lambda _: (),
    ) -> None:
        """``moved`` are the processes whose place changed between looks. ``groups`` are the process
        groups of ranks, by the agents' names for them. ``called`` gives the processes that are to
        run the unfinished calls of a process; ``beside`` those called by the callers of some
        processes."""
        self._members, self._stacks, self._moved = members, stacks, moved
        self._called, self._beside = called, beside
        self._ranks = groups.keys()
        self._crews: dict[Crew, list[WaitNode]] = defaultdict(list)
        for node, found in members.items():
            if found.actor:
                crew = (found.job, found.role, groups.get(found.process, ""))
                self._crews[crew].append(node)
        self._add_those_without_a_group()

    def _add_those_without_a_group(self) -> None:
        """Add the members without a known group to a class's group, if all others of the class are
        in one group."""
        for job, role, group in list(self._crews):
            others = [c for c in self._crews if c[:2] == (job, role) and c[2]]
            if not group and len(others) == 1:
                self._crews[others[0]] += self._crews.pop((job, role, ""))

    def find(self) -> Iterator[ActorOperation]:
        """All operations."""
        parties = [party for crew in sorted(self._crews) for party in self._parties(crew)]
        meeting = list(self._meeting(parties))
        for met in meeting:
            yield self._operation(met)
        rest: dict[Crew, list[_Party]] = defaultdict(list)
        for party in parties:
            if not any(party in met for met in meeting):
                rest[party.crew].append(party)
        away = {node for met in meeting for party in met for node in party.inside}
        for crew, left in rest.items():
            yield self._operation(left, [node for node in self._crews[crew] if node in away])

    def _parties(self, crew: Crew) -> Iterator[_Party]:
        """The parties of the operations. Members of an incomplete crew wait for the missing ones,
        whatever operation they are in; the parts of a complete crew may be in different
        operations."""
        missing = tuple(node for node in self._crews[crew] if not self._stands(node))
        by_name: dict[str, list[WaitNode]] = defaultdict(list)
        for node in self._crews[crew]:
            if self._stands(node):
                by_name["" if missing else self._stacks[node].operation].append(node)
        for inside in by_name.values():
            names = {self._stacks[node].operation for node in inside}
            name = min(names) if len(names) == 1 else ""
            yield _Party(crew=crew, name=name, inside=tuple(inside), missing=missing)

    def _stands(self, node: WaitNode) -> bool:
        fact = self._stacks.get(node)
        return fact is not None and bool(fact.waits_for_others)

    def _meeting(self, parties: Iterable[_Party]) -> Iterator[tuple[_Party, ...]]:
        """Parties of several crews in operations of one name, if at least one of them has its whole
        crew there and still gets no further."""
        by_name: dict[tuple[str, str], list[_Party]] = defaultdict(list)
        for party in parties:
            if party.name:
                by_name[party.crew[0], party.name].append(party)
        for met in by_name.values():
            crews = {party.crew for party in met}
            if len(crews) > 1 and any(self._stands_complete(party) for party in met):
                yield tuple(met)

    def _stands_complete(self, party: _Party) -> bool:
        return not party.missing and not any(node in self._moved for node in party.inside)

    def _operation(
        self, parties: Sequence[_Party], away: Iterable[WaitNode] = ()
    ) -> ActorOperation:
        """The operation that the parties are in; ``away`` are members of their crew that are in
        another one."""
        inside = tuple(node for party in parties for node in party.inside)
        missing = (*(node for party in parties for node in party.missing), *away)
        if not missing and all(self._stands_complete(party) for party in parties):
            missing = (
                self._fellows(parties) or self._called_by(inside) or self._called_beside(inside)
            )
        names = (self._stacks[node].operation for node in inside)
        roles = (self._members[node].role for node in (*inside, *missing))
        return ActorOperation(
            job=parties[0].crew[0],
            name=next((name for name in names if name), ""),
            inside=inside,
            missing=missing,
            roles=tuple(dict.fromkeys(roles)),
        )

    def _fellows(self, parties: Iterable[_Party]) -> tuple[WaitNode, ...]:
        """The members of other classes in the parties' process groups, if no member of such a class
        is in any operation."""
        crews = {party.crew for party in parties}
        groups = {(job, group) for job, _, group in crews if group}
        return tuple(
            node
            for crew, members in sorted(self._crews.items())
            if crew not in crews
            and (crew[0], crew[2]) in groups
            and not any(map(self._stands, members))
            for node in members
        )

    def _called_by(self, inside: Iterable[WaitNode]) -> tuple[WaitNode, ...]:
        """The actors that were called by processes in an operation, and have not answered."""
        asked = dict.fromkeys(node for one in inside for node in self._called(one))
        known = (node for node in asked if node in self._members and self._members[node].actor)
        return tuple(node for node in known if not self._stands(node))

    def _called_beside(self, inside: Sequence[WaitNode]) -> tuple[WaitNode, ...]:
        """The ranks of other classes that were called by the callers of those in an operation, and
        have not answered."""
        roles = {self._members[node].role for node in inside}
        found = (self._members.get(node) for node in dict.fromkeys(self._beside(inside)))
        return tuple(
            process_node(one.process)
            for one in found
            if one is not None and one.process in self._ranks and one.role not in roles
            if not self._stands(process_node(one.process))
        )
