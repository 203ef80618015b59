"""The places of many processes in the code, as classes and as one merged tree, with counts.

The idea of merging stacks into a prefix tree whose branches carry sets of ranks is that of STAT
(Arnold et al., "Stack Trace Analysis for Large Scale Debugging", IPDPS 2007).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from ray_sentinel.model.rank_names import name_ranks
from ray_sentinel.model.stacks import Activity, StackFact


class StackClass(msgspec.Struct, frozen=True, kw_only=True):
    """Processes that are at the same place and do the same thing."""

    signature: tuple[str, ...]
    activity: Activity
    label: str
    operation: str
    waits_for_others: bool | None
    members: tuple[StackFact, ...]

    @property
    def count(self) -> int:
        """The number of its processes."""
        return len(self.members)


class TreeNode(msgspec.Struct, kw_only=True):
    """A place in the merged tree, with the number of processes that pass through it."""

    place: str
    count: int = 0
    classes: tuple[int, ...] = ()
    """The indices of the classes that end at this place."""
    children: list[TreeNode] = []


def classes(facts: Iterable[StackFact]) -> tuple[StackClass, ...]:
    """Facts grouped by place, activity and operation, those that do not wait for others first.

    Within that the rarer class comes first, because a culprit is seldom in the majority.
    """
    groups: dict[tuple[tuple[str, ...], str, str, bool | None, str], list[StackFact]] = {}
    for fact in facts:
        key = (
            fact.signature,
            fact.activity,
            fact.operation,
            fact.waits_for_others,
            # Without frames the reason is all there is.
            fact.error if not fact.signature else "",
        )
        groups.setdefault(key, []).append(fact)
    found = [
        StackClass(
            signature=key[0],
            activity=members[0].activity,
            label=members[0].label,
            operation=key[2],
            waits_for_others=key[3],
            members=tuple(members),
        )
        for key, members in groups.items()
    ]
    order = {False: 0, None: 1, True: 2}
    return tuple(
        sorted(found, key=lambda c: (order[c.waits_for_others], c.count, c.signature, c.activity))
    )


def merge(stack_classes: Sequence[StackClass]) -> TreeNode:
    """The prefix tree over the classes' signatures; every process passes its root."""
    root = TreeNode(place="")
    for index, item in enumerate(stack_classes):
        root.count += item.count
        node = root
        for place in item.signature:
            child = next((known for known in node.children if known.place == place), None)
            if child is None:
                child = TreeNode(place=place, children=[])
                node.children.append(child)
            child.count += item.count
            node = child
        node.classes = (*node.classes, index)
    return root


def render(
    root: TreeNode,
    stack_classes: Sequence[StackClass],
    width: int = 110,
    naming: Callable[[Iterable[StackFact]], str] | None = None,
) -> str:
    """The tree as text: unbranched runs on one level, each branch with its count and members, who
    are named by ``naming``, or else as ranks."""
    naming = naming or who
    lines: list[str] = []
    # A list of what is left to draw, not recursion: stacks may be thousands of frames deep.
    pending = [(child, 0) for child in reversed(_rarest_first(root))]
    while pending:
        node, depth = pending.pop()
        pad = "  " * min(depth, 20)
        lines.append(f"{node.count:>6}  {pad}{node.place}"[:width])
        for index in node.classes:
            item = stack_classes[index]
            lines.append(
                f"        {pad}  = {item.label or 'unknown'}: {naming(item.members)}"[:width]
            )
        children = _rarest_first(node)
        deeper = depth + (len(children) > 1 or bool(node.classes))
        pending += [(child, deeper) for child in reversed(children)]
    return "\n".join(lines)


def _rarest_first(node: TreeNode) -> list[TreeNode]:
    return sorted(node.children, key=lambda child: (child.count, child.place))


def who(members: Iterable[StackFact], limit: int = 12) -> str:
    """Ranks as ranges ("ranks 0-6, 8"); where the rank is unknown, host and pid.

    >>> from ray_sentinel.model.identity import ProcessId
    >>> who([StackFact(process=ProcessId("node1", 42))])
    'node1 pid 42'
    """
    listed = list(members)
    ranks = sorted({fact.rank.rank for fact in listed if fact.rank})
    parts: list[str] = []
    if ranks:
        parts.append(name_ranks(ranks))
    others = sorted({(f.process.host, f.process.pid) for f in listed if f.rank is None})
    parts += [f"{host or 'host unknown'} pid {pid}".strip() for host, pid in others[:limit]]
    if len(others) > limit:
        parts.append(f"and {len(others) - limit} more")
    return ", ".join(parts)


def place_of(fact: StackFact) -> str:
    """Where in the code a process is, for people: its innermost Python frame if it has one."""
    python = (place for place in reversed(fact.signature) if place.endswith(")"))
    return next(python, fact.signature[-1] if fact.signature else "")[:200]
