"""The process groups of jobs, as the page sorts ranks by them."""

from __future__ import annotations

import msgspec


class GroupKind(msgspec.Struct, frozen=True, kw_only=True):
    """Groups with one role, such as tensor parallelism; each rank is in at most one of them."""

    name: str
    groups: tuple[tuple[int, ...], ...]
    """Ranks of each, in the order of the first."""


class JobGroups(msgspec.Struct, frozen=True, kw_only=True):
    """The groups of one attempt of a job, from its flight recorders: nothing else shows them."""

    job: str
    attempt: int
    at: float
    """When the recorders were read; Unix seconds."""
    ranks: int
    """Number of ranks whose recorders were read."""
    kinds: tuple[GroupKind, ...] = ()


class GroupsReport(msgspec.Struct, frozen=True, kw_only=True):
    """The groups of all jobs for which any are known."""

    jobs: tuple[JobGroups, ...] = ()
