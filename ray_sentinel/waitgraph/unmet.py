"""What a Ray call waits for before it can run: a place on a node or in a placement group, a runtime
environment, memory for its arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

from ray_sentinel.model.placement import PlacedGroup
from ray_sentinel.model.ray_calls import PendingGroup, RayCall, RayCalls
from ray_sentinel.model.runtime_env import EnvironmentBuild, NodeEnvironments
from ray_sentinel.waitgraph.facts import (
    BUILT,
    QUEUED,
    Elsewhere,
    Moves,
    Mute,
    WaitFact,
    WaitNode,
    WaitsFor,
    call_node,
)
from ray_sentinel.waitgraph.group_needs import GroupNeed, group_need
from ray_sentinel.waitgraph.job_processes import creation_id

RAY = "ray"
MOST_BUNDLES = 4
"""Most bundles of a placement group that are written out."""
NO_NODE = ", which no node can hold"
Lack = Literal["placement", "worker", "memory", "environment", "environment agent"]
"""``worker``: a process, for what a node has room for. ``environment``: a runtime environment that
is being built. ``environment agent``: one of Ray's own agents that build them, which answers
nobody."""
_GROUP_KEY = "placement group "
_ROOM_KEY = "room for "
_NODE_KEY = "a node "
_WORKER = "a worker process"
_BUILD_KEY = "runtime environment "
_SILENT_KEY = "runtime environment, of whose agent nothing is heard, "
_HOW = {"unplaced": "needs", "memory": "needs", "fetching": "fetches", "queued": QUEUED}
_LACKING = {
    "memory": "room in the object store",
    "fetching": "its arguments, which are on their way",
    "queued": "its actor, of which no process is known",
}


def lack_of(node: WaitNode) -> Lack | None:
    """What an awaited resource represents; None if it is none of these."""
    if node.kind != "resource":
        return None
    keys: dict[Lack, tuple[str, ...]] = {
        "placement": (_GROUP_KEY, _ROOM_KEY, _NODE_KEY),
        "worker": (_WORKER,),
        "memory": (_LACKING["memory"],),
        "environment agent": (_SILENT_KEY,),
        "environment": (_BUILD_KEY,),
    }
    return next((lack for lack, starts in keys.items() if node.key.startswith(starts)), None)


def call_waits(call: RayCall, awaited: WaitNode, how: str) -> WaitsFor:
    """A call waits for something, according to Ray."""
    who = call_node(call.id)
    return WaitsFor(who=who, awaited=awaited, how=how, since=call.since, witness=RAY)


class UnmetNeeds:
    """The unmet needs of the calls in one look at Ray."""

    def __init__(self, ray: RayCalls, names: dict[WaitNode, str]) -> None:
        """``names`` maps nodes to names for people; nodes that are waited for are added to it."""
        self._ray, self._names = ray, names
        self._groups = {group.id: group for group in ray.groups}
        self._placed = {group.id: group for group in ray.placed}
        self._asked_of = {creation_id(actor.id): actor.node for actor in ray.actors if actor.node}
        """The node that is asked to run each actor's creation."""
        self._builds: dict[WaitNode, NodeEnvironments] = {}
        """The environments that calls wait for, each with the node that builds it."""

    def of(self, call: RayCall) -> WaitsFor:
        """What a call that no node has started waits for."""
        return self._build(call) or call_waits(call, self._lacking(call), _HOW[call.state])

    def group(self, group_id: str) -> WaitNode:
        """The facts about a placement group that is not placed."""
        node = WaitNode("resource", f"{_GROUP_KEY}{group_id}")
        group = self._groups.get(group_id)
        self._names[node] = group_text(group) if group else f"placement group {group_id[:8]}"
        return node

    def of_builds(self) -> Iterator[WaitFact]:
        """The facts about the building of the environments that calls wait for."""
        for node, where in self._builds.items():
            yield from _of_build(node, where)

    def moves(self, node: WaitNode) -> int | None:
        """For an environment being built: a number that changes whenever the build has moved. None
        for any other node, and if it cannot be known."""
        where = self._builds.get(node)
        return where.moves if where is not None else None

    def _lacking(self, call: RayCall) -> WaitNode:
        """The resource that a call waits for before it can run."""
        need = group_need(call.needs)
        if need is not None and need.group in self._groups:
            return self.group(need.group)
        text = _LACKING.get(call.state) or (
            self._not_started(call) if self._has_room(call) else asked_text(call, self._placed)
        )
        node = WaitNode("resource", f"{text} ({call.job})")
        self._names[node] = text
        return node

    def _build(self, call: RayCall) -> WaitsFor | None:
        """The wait for the runtime environment of a call; None if it waits for none."""
        wanted = call.environment if call.state == "unplaced" else ""
        need = group_need(call.needs)
        if not wanted or (need and need.group in self._groups) or not self._may_be_held(call):
            return None
        nodes = self._ray.environments
        here = [(one, where) for where in nodes for one in where.building if one.key == wanted]
        silent = [(None, where) for where in nodes if not where.answers]
        if not here and not silent:
            return None
        # Among several, the one of its own node if that is known, or else one that makes progress.
        own = self._asked_of.get(call.id, "")
        build, where = min(
            here or silent, key=lambda one: (one[1].node != own, one[1].moved is not True)
        )
        since = [at for at in (call.since, build.since if build else None) if at is not None]
        fact = call_waits(call, self._build_node(wanted, build, where), BUILT)
        return msgspec.structs.replace(fact, since=max(since, default=None))

    def _build_node(
        self, key: str, build: EnvironmentBuild | None, where: NodeEnvironments
    ) -> WaitNode:
        start = _BUILD_KEY if where.answers else _SILENT_KEY
        node = WaitNode("resource", f"{start}{key if build else ''} on {where.node}")
        took = {n.host: n.made[key] for n in self._ray.environments if key in n.made}
        known = [f"{seconds:.0f} s on {host}" for host, seconds in sorted(took.items())[:1]]
        inside = "; ".join(filter(None, (build.what if build else "", *known)))
        self._names[node] = (
            f"the runtime environment{f' ({inside})' if inside else ''} on {where.host}"
        )
        self._builds[node] = where
        return node

    def _has_room(self, call: RayCall) -> bool:
        """Whether a node, or the placement group in which a call must run, has free what it needs,
        as far as Ray tells. Ray lists a call in one state until it has both a place and a worker
        there, and starts only a few workers at a time."""
        if call.kind not in ("task", "actor-creation"):
            return False
        if (need := group_need(call.needs)) is not None:
            return self._has_room_in_group(need)
        return bool(self._with_room(call))

    def _with_room(self, call: RayCall) -> set[str]:
        """The ids of the nodes that have free what a call needs."""
        return {
            node
            for node, free in self._ray.free_on.items()
            if all(free.get(name, 0.0) >= most for name, most in call.needs.items())
            and self._has_labels(node, call)
        }

    def _not_started(self, call: RayCall) -> str:
        """What a call lacks for which there is room: a place for its arguments, or a worker."""
        placement = self._ray.placement
        full = placement is not None and not self._with_room(call).isdisjoint(
            placement.short_of_memory
        )
        return _LACKING["memory"] if full else _WORKER

    def _has_labels(self, node: str, call: RayCall) -> bool:
        """Whether a node is known to have the labels that a call requests."""
        labels = self._ray.placement.labels_on.get(node) if self._ray.placement else None
        asked = call.selectors
        return not asked or (labels is not None and any(satisfies(labels, one) for one in asked))

    def _has_room_in_group(self, need: GroupNeed) -> bool:
        """Whether nobody is known to hold what is needed of a placed group. Ray counts what it has
        given to a call that has no worker yet as used."""
        group, placement = self._placed.get(need.group), self._ray.placement
        if group is None or placement is None:
            return False
        holders = [one for one in placement.in_groups if one.group == need.group]
        for number, bundle in enumerate(group.bundles):
            inside = [one.holds for one in holders if one.bundle in (None, number)]
            if need.bundle in (None, number) and all(
                bundle.get(name, 0.0) - sum(held.get(name, 0.0) for held in inside) >= most
                for name, most in need.amounts.items()
            ):
                return True
        return False

    def _may_be_held(self, call: RayCall) -> bool:
        """Whether a node is large enough for a call, as far as that is known."""
        totals = self._ray.placement.total_on.values() if self._ray.placement else ()
        if not totals or group_need(call.needs) is not None:
            return True
        return any(
            all(total.get(name, 0.0) >= most for name, most in call.needs.items())
            for total in totals
        )


def _of_build(node: WaitNode, where: NodeEnvironments) -> Iterator[WaitFact]:
    """The facts about the building of an environment."""
    said = f"its log ends with {where.line!r}" if where.line else "its log is empty"
    if where.moved is None:
        why = f"whether anything builds it cannot be told; {said}"
        yield Mute(process=node, why=why, witness=RAY)
        return
    still = "nothing that builds it has moved"
    if not where.answers:
        still = f"the agent that builds it on {where.host} answers nobody and does not move"
    doing = f"being built; {said}" if where.moved else f"{still}; {said}"
    yield Elsewhere(process=node, place="", doing=doing, witness=RAY)
    if where.moved:
        yield Moves(process=node, witness=RAY)


def asked_text(call: RayCall, placed: Mapping[str, PlacedGroup]) -> str:
    """What a call that is not placed waits for, and whose group it belongs to, if any."""
    need = group_need(call.needs)
    if need is None:
        return need_text(call.needs, call.selectors)
    group = placed.get(need.group)
    name = group.name if group and group.name else need.group[:8]
    bundle = f"bundle {need.bundle} of " if need.bundle is not None else ""
    room = amounts_text(need.amounts) or "an actor or a task"
    has = f" ({bundles_text(group.bundles)})" if group else ""
    return f"{_ROOM_KEY}{room} in {bundle}placement group {name}{has}"


def need_text(needs: Mapping[str, float], selectors: tuple[dict[str, str], ...] = ()) -> str:
    """What a call waits for on a node.

    >>> need_text({"CPU": 8.0})
    'a node with 8 CPU free'
    >>> need_text({"CPU": 8.0}, ({"kind": "h100"},))
    'a node with 8 CPU free, labelled kind=h100'
    """
    free = f"with {amounts_text(needs)} free" if needs else ""
    labels = f"labelled {labels_text(selectors)}" if selectors else ""
    if not free and not labels:
        return "a worker to run in"
    return f"{_NODE_KEY}{', '.join(filter(None, (free, labels)))}"


def satisfies(labels: Mapping[str, str], selector: Mapping[str, str]) -> bool:
    """Whether a node with these labels satisfies a selector, in Ray's syntax.

    >>> satisfies({"kind": "h100"}, {"kind": "in(a100,h100)"}), satisfies({}, {"kind": "!h100"})
    (True, True)
    """
    return all(_meets(labels.get(key), value) for key, value in selector.items())


def _meets(has: str | None, wanted: str) -> bool:
    unlike, text = wanted.startswith("!"), wanted.removeprefix("!")
    listed = text[3:-1] if text.startswith("in(") and text.endswith(")") else None
    values = [text] if listed is None else [value.strip() for value in listed.split(",")]
    return (has in values) != unlike


def labels_text(selectors: tuple[dict[str, str], ...]) -> str:
    """The labels that a node must have, each selector in Ray's syntax.

    >>> labels_text(({"kind": "h100", "zone": "!a"}, {"kind": "in(a100,h200)"}))
    'kind=h100 and zone=!a or kind=in(a100,h200)'
    """
    return " or ".join(
        " and ".join(f"{key}={value}" for key, value in sorted(one.items())) for one in selectors
    )


def amounts_text(resources: Mapping[str, float]) -> str:
    """Resources for people.

    >>> amounts_text({"CPU": 8.0, "GPU": 0.5})
    '8 CPU, 0.5 GPU'
    """
    return ", ".join(f"{amount:g} {name}" for name, amount in sorted(resources.items()))


def group_text(group: PendingGroup) -> str:
    """A placement group and what it requests."""
    never = NO_NODE if group.infeasible else ""
    return f"placement group {group.name or group.id[:8]} ({bundles_text(group.bundles)}{never})"


def bundles_text(bundles: tuple[dict[str, float], ...]) -> str:
    """The first bundles of a placement group."""
    first = " + ".join(amounts_text(bundle) for bundle in bundles[:MOST_BUNDLES])
    more = len(bundles) - MOST_BUNDLES
    return f"{first} and {more} bundles more" if more > 0 else first
