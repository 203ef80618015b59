"""A communicator in the text output, assembled from groups of ranks."""

from __future__ import annotations

import msgspec

from ray_sentinel.evidence.nccl_ras.json_format import MOST_RANKS
from ray_sentinel.evidence.nccl_ras.poll import Communicator, Member, State, bare_hash

Places = dict[int, tuple[str, int | None, int | None]]
"""Rank → its host, pid and GPU, as far as they are told."""


class RankSet:
    """Ranks that share one value: a count, a status, an error. Not all need be named."""

    def __init__(self, count: int, value: int | str, places: Places) -> None:
        self.count = count
        self.value = value
        self.named: set[int] = set()
        self._places = places
        """Of all ranks of the communicator."""

    def add(
        self, rank: int, host: str = "", pid: int | None = None, gpu: int | None = None
    ) -> None:
        """Add a named rank to the group."""
        self.named.add(rank)
        if host or rank not in self._places:
            self._places[rank] = host, pid, gpu


class Draft:
    """What has been read about one communicator."""

    def __init__(self, hash_: str) -> None:
        self.hash = hash_
        self.subject = ""
        """What the lines that follow are about: "missing", "status", "error", "count AllReduce"."""
        self.groups: dict[str, list[RankSet]] = {}
        self._places: Places = {}

    def accepts(self, value: int | str) -> bool:
        """Whether the subject can have such a value: a damaged answer has states among the
        counts."""
        return self.subject.startswith("count ") == isinstance(value, int)

    def group(self, subject: str, count: int, value: int | str) -> RankSet:
        """A new group of ranks."""
        made = RankSet(count, value, self._places)
        self.groups.setdefault(subject, []).append(made)
        return made

    def finish(self, size: int) -> Communicator:
        """The communicator; ``size`` is from the table's row, 0 if there was none."""
        highest = max(self._places, default=-1) + 1
        counted = max((sum(g.count for g in found) for found in self.groups.values()), default=0)
        size = min(max(size, highest, counted), MOST_RANKS)
        members = {
            rank: Member(rank=rank, host=host, pid=pid, gpu=gpu)
            for rank, (host, pid, gpu) in self._places.items()
            if rank < size
        }
        absent: set[int] = set()
        for subject in sorted(self.groups, key=_order):
            for ranks, value in self._resolved(subject, size, absent):
                for rank in ranks:
                    known = members.setdefault(rank, Member(rank=rank))
                    members[rank] = _with(known, subject, value)
                    if members[rank].state in ("UNRESPONSIVE", "DEAD", "NOCOMM"):
                        absent.add(rank)
        return Communicator(
            hash=bare_hash(self.hash),
            size=size,
            members=tuple(members[rank] for rank in sorted(members)),
            unknown=max(0, size - len(members)),
        )

    def _resolved(
        self, subject: str, size: int, absent: set[int]
    ) -> list[tuple[set[int], int | str]]:
        """The groups of a subject with their members; at most one may be the rest of all."""
        groups = self.groups[subject]
        named = set().union(*(group.named for group in groups)) | absent
        open_ones = [group for group in groups if len(group.named) < group.count]
        result = [(set(group.named), group.value) for group in groups]
        if len(open_ones) == 1 and not open_ones[0].named and subject not in ("missing", "error"):
            rest = set(range(size)) - named
            if len(rest) == open_ones[0].count:
                result.append((rest, open_ones[0].value))
        return result


def _order(subject: str) -> int:
    """Who is missing is known before who the others are."""
    return ("missing", "status", "error").index(subject) if not subject.startswith("count") else 9


def _with(member: Member, subject: str, value: int | str) -> Member:
    if subject in ("missing", "status"):
        state: State = value  # type: ignore[assignment]  # text_reader gives only states
        return msgspec.structs.replace(member, state=state)
    if subject == "error":
        return msgspec.structs.replace(member, error=str(value))
    operation = subject.removeprefix("count ")
    counts = {**member.counts, operation: int(value)}
    # Who launches operations of a communicator is a member of it.
    return msgspec.structs.replace(member, counts=counts, state=member.state or "RUNNING")
