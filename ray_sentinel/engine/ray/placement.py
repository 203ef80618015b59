"""What a Ray job lacks while it waits for placement: whether any node could ever hold it, and which
resources are short."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

import msgspec

from ray_sentinel.model.placement import NO_AUTOSCALER, PlacedGroup, Placement, ResourceHolder
from ray_sentinel.model.ray_calls import PendingGroup, RayCall, RayCalls
from ray_sentinel.waitgraph.group_needs import GroupNeed, group_need
from ray_sentinel.waitgraph.unmet import (
    amounts_text,
    asked_text,
    group_text,
    labels_text,
    need_text,
    satisfies,
)

MOST_ASKED = 64
"""Most different items waiting for placement that are examined for one job."""
MOST_HOLDERS_TOLD = 3
"""Most holders of a resource that an incident names."""
Amounts = Mapping[str, float]


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """What one waiting item lacks."""

    never: str = ""
    """Why no node can ever hold it; empty if one could, or that is unknown."""
    holders: tuple[ResourceHolder, ...] = ()
    """Who holds what it lacks."""
    autoscaler: str = ""
    bound: bool = False
    """Whether it must run in one placement group, or on nodes with certain labels, so that free
    resources elsewhere are of no use."""


def missing_of(calls: RayCalls, job: str) -> dict[str, Missing]:
    """For each item that a job waits to have placed, by its name in the wait graph, what it
    lacks."""
    placement = calls.placement
    if placement is None:
        return {}
    free = list(calls.free_on.values())
    found: dict[str, Missing] = {}
    for name, group in _asked(calls, job):
        if len(found) >= MOST_ASKED:
            break
        if name in found:
            continue
        short = _short(group, free)
        found[name] = Missing(
            never=never(group, list(placement.total_on.values()))
            or _never_labelled(group.selectors, placement.labels_on.values()),
            holders=_holding(placement.holders, short),
            autoscaler=_of_autoscaler(group, placement),
        )
    placed = {group.id: group for group in calls.placed}
    for call in calls.calls:
        own = call.job == job and call.state == "unplaced"
        name = asked_text(call, placed)
        if not own or name in found or len(found) >= MOST_ASKED:
            continue
        if (need := group_need(call.needs)) is not None and need.group in placed:
            found[name] = _missing_in_group(need, placed[need.group], placement)
        elif call.selectors:
            found[name] = _missing_labelled(call, placement, free)
    return found


def _holding(holders: Iterable[ResourceHolder], names: Iterable[str]) -> tuple[ResourceHolder, ...]:
    """The holders of some resources, reduced to these resources."""
    wanted = tuple(names)
    found = (
        msgspec.structs.replace(one, holds=held)
        for one in holders
        if (held := {name: one.holds[name] for name in wanted if name in one.holds})
    )
    return tuple(islice(found, MOST_HOLDERS_TOLD))


def _missing_in_group(need: GroupNeed, group: PlacedGroup, placement: Placement) -> Missing:
    """What something lacks that runs in one group, where no other resources are of use."""
    bundles = [one for n, one in enumerate(group.bundles) if need.bundle in (None, n)]
    why = _too_much(need.amounts, bundles) if bundles else ""
    inside = [one for one in placement.in_groups if one.group == group.id]
    if need.bundle is not None:
        inside = [one for one in inside if one.bundle in (None, need.bundle)]
    return Missing(
        never=why.replace("no node has", "no bundle of it has", 1),
        holders=_holding(inside, need.amounts),
        bound=True,
    )


def _missing_labelled(call: RayCall, placement: Placement, free: Sequence[Amounts]) -> Missing:
    """What something lacks that runs on nodes with certain labels, where other nodes are of no
    use."""
    labels = labels_text(call.selectors)
    why = _never_labelled(call.selectors, placement.labels_on.values(), any_of=True)
    fitting = [
        placement.total_on[node]
        for node, has in placement.labels_on.items()
        if node in placement.total_on and any(satisfies(has, one) for one in call.selectors)
    ]
    asked = PendingGroup(id=call.id, bundles=(dict(call.needs),))
    if not why and call.needs:
        why = never(asked, fitting).replace("no node has", f"no node labelled {labels} has", 1)
    return Missing(
        never=why,
        holders=_holding(placement.holders, _short(asked, free)),
        autoscaler=_of_autoscaler(asked, placement),
        bound=True,
    )


def _never_labelled(
    selectors: Sequence[Mapping[str, str]],
    nodes: Iterable[Mapping[str, str]],
    *,
    any_of: bool = False,
) -> str:
    """Why no node has the labels that selectors request: with ``any_of`` one selector is enough,
    otherwise all must be met. Empty if a node may have them, or the labels of nodes are not
    known."""
    nodes = list(nodes)
    unmet = [one for one in selectors if one and not any(satisfies(node, one) for node in nodes)]
    if not nodes or not unmet or (any_of and len(unmet) < len(selectors)):
        return ""
    for key, value in sorted(unmet[0].items()):
        if not any(satisfies(node, {key: value}) for node in nodes):
            return f"no node has the label {key}={value}"
    return f"no node has the labels {labels_text((dict(unmet[0]),))}"


def _of_autoscaler(group: PendingGroup, placement: Placement) -> str:
    beyond = any(_same(group.bundles, bundles) for bundles in placement.beyond)
    if not beyond or placement.autoscaler == NO_AUTOSCALER:
        return placement.autoscaler
    return "the autoscaler has no kind of node for it"


def _same(some: Sequence[Amounts], others: Sequence[Amounts]) -> bool:
    """Whether two sequences of bundles are equal, in whatever order."""
    return len(some) == len(others) and sorted(map(_items, some)) == sorted(map(_items, others))


def _items(bundle: Amounts) -> list[tuple[str, float]]:
    return sorted(bundle.items())


def _asked(calls: RayCalls, job: str) -> Iterator[tuple[str, PendingGroup]]:
    """The groups and calls of a job that are not placed, each by name; a single call is a group of
    one bundle."""
    for group in calls.groups:
        if group.job == job:
            yield group_text(group), group
    for call in calls.calls:
        own = call.job == job and call.state == "unplaced"
        if own and call.needs and not call.selectors and group_need(call.needs) is None:
            yield need_text(call.needs), PendingGroup(id=call.id, bundles=(dict(call.needs),))


def never(group: PendingGroup, totals: Sequence[Amounts]) -> str:
    """Why nodes with these total resources could not hold a group even if they were empty."""
    if not totals or not group.bundles:
        return ""
    whole: dict[str, float] = {}
    for bundle in group.bundles:
        for name, amount in bundle.items():
            whole[name] = whole.get(name, 0.0) + amount
    packed = group.strategy == "STRICT_PACK"
    for bundle in (whole,) if packed else group.bundles:
        if why := _too_much(bundle, totals):
            return f"on one node (STRICT_PACK), {why}" if packed and len(group.bundles) > 1 else why
    able = sum(any(_fits(bundle, total) for bundle in group.bundles) for total in totals)
    if group.strategy == "STRICT_SPREAD" and able < len(group.bundles):
        return f"STRICT_SPREAD wants {len(group.bundles)} nodes, and {able} could hold a bundle"
    for name, amount in sorted(whole.items()):
        has = sum(total.get(name, 0.0) for total in totals)
        if amount > has:
            return f"all nodes together have {has:g} {name} of {amount:g}"
    return ""


def _too_much(bundle: Amounts, totals: Sequence[Amounts]) -> str:
    for name, amount in sorted(bundle.items()):
        most = max(total.get(name, 0.0) for total in totals)
        if amount > most:
            return f"no node has more than {most:g} {name}" if most else f"no node has any {name}"
    if not any(_fits(bundle, total) for total in totals):
        return f"no node has {amounts_text(bundle)} together"
    return ""


def _fits(bundle: Amounts, has: Amounts) -> bool:
    return all(has.get(name, 0.0) >= amount for name, amount in bundle.items())


def _short(group: PendingGroup, free: Sequence[Amounts]) -> tuple[str, ...]:
    """The resources of which too little is free; all requested ones if each is available, but not
    in one place."""
    most: dict[str, float] = {}
    whole: dict[str, float] = {}
    for bundle in group.bundles:
        for name, amount in bundle.items():
            most[name] = max(amount, most.get(name, 0.0))
            whole[name] = whole.get(name, 0.0) + amount
    if group.strategy == "STRICT_PACK":
        most = whole
    short = tuple(
        name
        for name in sorted(most)
        if max((node.get(name, 0.0) for node in free), default=0.0) < most[name]
        or sum(node.get(name, 0.0) for node in free) < whole[name]
    )
    return short or tuple(sorted(most))


def missing_text(missing: Missing) -> str:
    """The rest of a sentence about free resources: who holds what is missing, and why no node will
    be added.

    >>> missing_text(Missing(autoscaler="no autoscaler adds nodes"))
    '; no autoscaler adds nodes'
    """
    parts = [_holder_text(one) for one in missing.holders]
    held = f"; {', '.join(parts)}" if parts else ""
    return f"{held}{f'; {missing.autoscaler}' if missing.autoscaler else ''}"


def _holder_text(one: ResourceHolder) -> str:
    many = f"{one.count} {one.kind}s" if one.count > 1 else f"the {one.kind}"
    verb = "hold" if one.count > 1 else "holds"
    orphan = f" (an orphan: {one.orphan})" if one.orphan else ""
    if one.orphan and one.count > 1:
        orphan = f" (orphans: {one.orphan})"
    return f"{many} {one.name} of {one.job}{orphan} {verb} {amounts_text(one.holds)}"
