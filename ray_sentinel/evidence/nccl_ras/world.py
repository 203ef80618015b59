"""World ranks: a communicator numbers its own ranks; people know the job's.

A process and its GPU are the same rank in every communicator. If the caller gives the job's ranks
(host, pid → rank), those count. Otherwise the communicator that holds every GPU of the job, as the
default group of ``torch.distributed`` does, numbers them, and a process outside it has no number.
Otherwise the numbers in the largest communicator of each rank are used, and the explanation says
so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from ray_sentinel.evidence.nccl_ras.poll import Communicator, Member, Place, Poll, RasProcess

Known = Mapping[tuple[str, int], int]
"""(Host or address, pid) → world rank."""


class Names:
    """Gives members and processes their world ranks."""

    def __init__(self, polls: Sequence[Poll], known: Known | None) -> None:
        self._known = dict(known or {})
        found = _distinct(polls)
        self._places: dict[Place, int] = {}
        self._gpus: dict[tuple[str, int], dict[int, int]] = defaultdict(dict)
        """By the host and pid of each process, the world ranks on its GPUs."""
        self._world = _world(polls, found)
        self._by_key: set[str] = set()
        for communicator in [self._world] if self._world is not None else found:
            for member in communicator.members:
                if member.place is not None:
                    host, pid, gpu = member.place
                    rank = self._places.setdefault(member.place, member.rank)
                    self._gpus[host, pid][gpu] = rank
        if self._world is not None:
            self._by_key = {self._world.key}
        elif len(found) == 1:
            self._by_key = {found[0].key}
        self.note = self._note(found)

    def _note(self, found: Sequence[Communicator]) -> str:
        if self._known or self._world is not None or not found:
            return ""
        if len(found) == 1:
            return f"ranks are numbered as in {found[0].name}, the only one that is described"
        return (
            "no communicator holds the whole job: ranks are numbered as in the largest "
            f"communicator that each is in, such as {found[0].name}; --ranks tells the job's"
        )

    def of_member(self, communicator: Communicator, member: Member) -> int | None:
        """The world rank of a member; None if it is unknown."""
        if self._known:
            return self._known_rank(member.host, member.pid)
        if communicator.key in self._by_key:
            return member.rank
        return self._places.get(member.place) if member.place is not None else None

    def of_process(self, process: RasProcess) -> list[int]:
        """The world ranks of a process, one for each of its GPUs."""
        if self._known:
            rank = self._known_rank(process.host, process.pid)
            return [] if rank is None else [rank]
        return sorted(
            rank
            for gpu, rank in self._gpus.get((process.host, process.pid), {}).items()
            if gpu in process.gpus or gpu < 0 or not process.gpus
        )

    def _known_rank(self, host: str, pid: int | None) -> int | None:
        if pid is None:
            return None
        exact = self._known.get((host, pid))
        if exact is not None:
            return exact
        if any(known == host for known, _ in self._known):
            return None  # none of that host's ranks; another host's may have the same pid
        # RAS knows addresses, others host names: a pid that occurs only once is enough.
        same = {rank for (_, known), rank in self._known.items() if known == pid}
        return next(iter(same)) if len(same) == 1 else None


def _distinct(polls: Sequence[Poll]) -> list[Communicator]:
    """Each communicator as described by the poll that knows most about it, the largest first."""
    found: dict[str, Communicator] = {}
    for poll in polls:
        for communicator in poll.communicators:
            old = found.get(communicator.key)
            if old is None or _known_places(communicator) > _known_places(old):
                found[communicator.key] = communicator
    return sorted(found.values(), key=lambda c: -c.size)


def _known_places(communicator: Communicator) -> int:
    return sum(member.place is not None for member in communicator.members)


def _world(polls: Sequence[Poll], found: Sequence[Communicator]) -> Communicator | None:
    """The communicator that holds every GPU that any answer mentions."""
    if not found:
        return None
    largest = found[0]
    gpus = max((poll.gpus or 0 for poll in polls), default=0)
    if gpus:
        return largest if largest.size == gpus else None
    every = {m.place for c in found for m in c.members if m.place is not None}
    own = {member.place for member in largest.members if member.place is not None}
    return largest if len(found) == 1 or (own and every <= own) else None
