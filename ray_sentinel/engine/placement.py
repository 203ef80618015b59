"""What is missing to what a Ray job waits to have placed: whether any node could ever hold it, and
which resources are short."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from ray_sentinel.model.placement import NO_AUTOSCALER, Placement, ResourceHolder
from ray_sentinel.model.ray_calls import PendingGroup, RayCalls
from ray_sentinel.waitgraph.ray_calls import amounts_text, group_text, need_text

MOST_ASKED = 64
"""Different things of a job that wait to be placed, that are looked at."""
MOST_HOLDERS_TOLD = 3
Amounts = Mapping[str, float]


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """Of one thing that waits."""

    never: str = ""
    """Why no node can ever hold it; empty where one could, or it is not known."""
    holders: tuple[ResourceHolder, ...] = ()
    """Who holds what it lacks."""
    autoscaler: str = ""


def missing_of(calls: RayCalls, job: str) -> dict[str, Missing]:
    """By what the waits call it: each thing that a job waits to have placed."""
    placement = calls.placement
    if placement is None:
        return {}
    totals = list(placement.total_on.values())
    free = list(calls.free_on.values())
    found: dict[str, Missing] = {}
    for name, group in _asked(calls, job):
        if len(found) >= MOST_ASKED:
            break
        if name in found:
            continue
        short = _short(group, free)
        found[name] = Missing(
            never=never(group, totals),
            holders=tuple(
                msgspec.structs.replace(one, holds=held)
                for one in placement.holders
                if (held := {name: one.holds[name] for name in short if name in one.holds})
            )[:MOST_HOLDERS_TOLD],
            autoscaler=_of_autoscaler(group, placement),
        )
    return found


def _of_autoscaler(group: PendingGroup, placement: Placement) -> str:
    beyond = any(_same(group.bundles, bundles) for bundles in placement.beyond)
    if not beyond or placement.autoscaler == NO_AUTOSCALER:
        return placement.autoscaler
    return "the autoscaler has no kind of node for it"


def _same(some: Sequence[Amounts], others: Sequence[Amounts]) -> bool:
    """Whether bundles are alike, in whatever order."""
    return len(some) == len(others) and sorted(map(_items, some)) == sorted(map(_items, others))


def _items(bundle: Amounts) -> list[tuple[str, float]]:
    return sorted(bundle.items())


def _asked(calls: RayCalls, job: str) -> Iterator[tuple[str, PendingGroup]]:
    """A call that is alone is a group of one bundle."""
    for group in calls.groups:
        if group.job == job:
            yield group_text(group), group
    for call in calls.calls:
        own = call.job == job and call.state == "unplaced"
        if own and call.needs and not any("_group_" in name for name in call.needs):
            yield need_text(call.needs), PendingGroup(id=call.id, bundles=(dict(call.needs),))


def never(group: PendingGroup, totals: Sequence[Amounts]) -> str:
    """Why nodes with so much in total could not hold a group if they were empty."""
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
    """The resources of which too little is free; all that it asks for where each is there, but not
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


def told(missing: Missing) -> str:
    """Who holds what is missing, and why no node comes, to follow what is free.

    >>> told(Missing(autoscaler="no autoscaler adds nodes"))
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
