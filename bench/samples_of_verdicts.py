"""One verdict on a drawn job, beside the truth."""

from __future__ import annotations

import msgspec


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One verdict on one drawn job, and the truth."""

    source: str
    case: str
    """The fault."""
    harm: str
    """What was done to the evidence."""
    named: tuple[str, ...]
    truth: tuple[str, ...]
    kind: str
    confidence: float
    witnesses: dict[str, float] = {}
    """What each witness puts on the culprit of whom the verdict is least sure."""

    @property
    def is_right(self) -> bool:
        """Whether somebody is named, and no innocent."""
        return bool(self.named) and set(self.named) <= set(self.truth)

    @property
    def is_exact(self) -> bool:
        """Whether all culprits are named, and nobody else."""
        return set(self.named) == set(self.truth)
