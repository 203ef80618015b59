"""Chooses the checkpoint to start from: the latest complete step, on whichever tier has it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import msgspec

from ray_sentinel.errors import SentinelError
from ray_sentinel.evidence.checkpoints import CheckpointFacts
from ray_sentinel.supervise.loadable import problem_of
from ray_sentinel.supervise.policy import ResumePoint

Scan = Callable[[Path], CheckpointFacts]


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The chosen checkpoint, and those that were rejected."""

    checkpoint: ResumePoint | None = None
    skipped: tuple[str, ...] = ()
    """Rejected checkpoints as "path: why", newest first."""
    unreadable: tuple[str, ...] = ()
    """Tiers that could not be listed, with the reason."""


def choose(
    tiers: Sequence[Path],
    without: Collection[ResumePoint],
    scan: Scan,
    problem_at: Callable[[Path], str] = problem_of,
) -> Choice:
    """The latest good one; of equal steps that of the earlier tier, which is the faster one.

    ``problem_at`` says why a checkpoint cannot be loaded; empty if it seems complete.
    """
    found: list[tuple[int, int, ResumePoint]] = []
    skipped: list[str] = []
    unreadable: list[str] = []
    for order, root in enumerate(tiers):
        try:
            facts = scan(root)
        except SentinelError as error:
            unreadable.append(str(error))
            continue
        for item in facts.checkpoints:
            # On a file system of our own, the path is relative to the folder.
            path = str(root / item.path)
            if not item.complete:
                skipped.append(f"{path}: {item.why}")
                continue
            one = ResumePoint(path=path, step=item.step, modified=item.modified)
            if one not in without:
                found.append((item.step, -order, one))
    for _, _, one in sorted(found, key=lambda entry: entry[:2], reverse=True):
        if problem := problem_at(Path(one.path)):
            skipped.append(problem)
            continue
        return Choice(checkpoint=one, skipped=tuple(skipped), unreadable=tuple(unreadable))
    return Choice(skipped=tuple(skipped), unreadable=tuple(unreadable))
