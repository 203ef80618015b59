"""Launch counts within one communicator: who is behind, and who called something else.

Every rank of a communicator must launch the same collectives in the same order. Counts are taken at
the launch on the host, rank by rank while the job runs, so a difference of one or two means nothing
in a job that moves. In one that stands still, the others wait for whoever has launched less. Sends
and receives are not counted at all.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from ray_sentinel.evidence.minority import most_odd
from ray_sentinel.evidence.nccl_ras.meshes import CommunicatorView
from ray_sentinel.evidence.nccl_ras.poll import Member

Vector = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Split:
    """A communicator whose ranks have launched different numbers of collectives."""

    look: CommunicatorView
    kind: Literal["behind", "order"]
    """"behind": they called fewer collectives. "order": they called different ones."""
    odd: tuple[Member, ...]
    """The members furthest behind, or those that called what most did not."""
    others: tuple[Member, ...]
    """The members that are ahead of the odd ones."""
    gap: int
    """Number of collectives between the two, at least."""
    few: bool
    """The odd ones are few enough among the members to be the exception."""
    text: str


def split(look: CommunicatorView) -> Split | None:
    """How the ranks of a communicator differ; None if they do not, or nothing is known."""
    members = [m for m in look.last.members if m.counts and m.state in ("RUNNING", "", "INIT")]
    if len(members) < 2:
        return None
    names = sorted(set.intersection(*(set(member.counts) for member in members)))
    vectors = {m.rank: tuple(m.counts[name] for name in names) for m in members}
    classes = Counter(vectors.values())
    if len(classes) < 2:
        return None
    if not _ordered(list(classes)):
        return _order(look, members, vectors, names)
    return _behind(look, members, vectors, names)


def _ordered(vectors: list[Vector]) -> bool:
    """Whether one is always less or equal in every count: the same calls, at different points."""
    vectors = sorted(vectors, key=sum)
    return all(
        all(a <= b for a, b in zip(low, high, strict=True)) for low, high in pairwise(vectors)
    )


def _behind(
    look: CommunicatorView, members: list[Member], vectors: dict[int, Vector], names: list[str]
) -> Split:
    sums = {rank: sum(vector) for rank, vector in vectors.items()}
    least = min(sums.values())
    odd = [m for m in members if sums[m.rank] == least]
    others = [m for m in members if sums[m.rank] > least]
    gap = min(sums[m.rank] for m in others) - least
    highest = max(sums.values())
    low, high = vectors[odd[0].rank], max(vectors.values(), key=sum)
    where = [
        f"{name} {a} against {b}" for name, a, b in zip(names, low, high, strict=True) if a != b
    ]
    return Split(
        look=look,
        kind="behind",
        odd=tuple(odd),
        others=tuple(others),
        gap=gap,
        few=len(odd) <= most_odd(look.last.size),
        text=f"{_count(len(odd), 'rank has', 'ranks have')} launched {highest - least} fewer than "
        f"the furthest of the other {len(others)} ({', '.join(where)})",
    )


def _order(
    look: CommunicatorView, members: list[Member], vectors: dict[int, Vector], names: list[str]
) -> Split:
    """The largest class is taken to be right; whoever cannot be brought into line with it is
    odd."""
    usual, count = Counter(vectors.values()).most_common(1)[0]
    odd = [m for m in members if not _ordered([vectors[m.rank], usual])]
    others = [m for m in members if m not in odd]
    vector = vectors[odd[0].rank]
    where = [f"{name} {a} against {b}" for name, a, b in zip(names, vector, usual, strict=True)]
    differing = [text for text, a, b in zip(where, vector, usual, strict=True) if a != b]
    return Split(
        look=look,
        kind="order",
        odd=tuple(odd),
        others=tuple(others),
        gap=max(abs(a - b) for a, b in zip(vector, usual, strict=True)),
        few=len(odd) <= most_odd(look.last.size) and count > len(odd),
        text=f"{_count(len(odd), 'rank has', 'ranks have')} launched other collectives than "
        f"{count} others ({', '.join(differing)})",
    )


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
