"""The input and the conclusions of the reasoning about RAS answers."""

from __future__ import annotations

from collections.abc import Sequence

from ray_sentinel.evidence.nccl_ras.meshes import CommunicatorView
from ray_sentinel.evidence.nccl_ras.poll import Member, Poll
from ray_sentinel.evidence.nccl_ras.world import Names
from ray_sentinel.model.ras import RasCulprit, RasKind, RasWait


class RasContext:
    """The polls of one job, and the conclusions so far. The first conclusion stands."""

    def __init__(
        self, polls: Sequence[Poll], looks: Sequence[CommunicatorView], names: Names
    ) -> None:
        self.polls = polls
        self.looks = looks
        self.names = names
        self.kind: RasKind = "no-mismatch"
        self.confidence = 0.0
        self.culprits: list[RasCulprit] = []
        self.waits: list[RasWait] = []
        self.evidence: list[str] = []

    @property
    def open(self) -> bool:
        """Whether nothing has been concluded yet."""
        return self.kind == "no-mismatch"

    def conclude(self, kind: RasKind, confidence: float) -> None:
        """Set the conclusion, unless there is one already."""
        if self.open:
            self.kind, self.confidence = kind, confidence

    def say(self, line: str) -> None:
        """Add one sentence of the reasoning."""
        self.evidence.append(line)

    def identity(self, look: CommunicatorView, member: Member) -> object:
        """Equal for one rank in all its communicators, if its process is known."""
        return member.place or (look.last.key, member.rank)

    def who(self, look: CommunicatorView, member: Member) -> str:
        """A member in words for people."""
        rank = self.names.of_member(look.last, member)
        own = f"rank {rank}" if rank is not None else f"its rank {member.rank}"
        where = f" (pid {member.pid} on {member.host})" if member.place is not None else ""
        return own + where

    def accuse(self, look: CommunicatorView, member: Member, kind: RasKind, reason: str) -> None:
        """Accuse a member; at most once."""
        culprit = RasCulprit(
            rank=self.names.of_member(look.last, member),
            host=member.host,
            pid=member.pid,
            gpu="" if member.gpu is None else str(member.gpu),
            kind=kind,
            reason=reason,
        )
        if not any(_same(culprit, old) for old in self.culprits):
            self.culprits.append(culprit)


def minority(look: CommunicatorView, count: int) -> bool:
    """Whether ``count`` ranks are a minority of a communicator: fewer than half; one of two counts
    too."""
    return 2 * count < look.last.size or (count == 1 and look.last.size == 2)


def _same(one: RasCulprit, other: RasCulprit) -> bool:
    if one.rank is not None or other.rank is not None:
        return one.rank == other.rank
    return (one.host, one.pid, one.gpu) == (other.host, other.pid, other.gpu)
