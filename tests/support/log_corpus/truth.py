"""What is true of a scenario."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.support.log_corpus.job import Job


@dataclass
class Truth:
    """What a person who knows the story says."""

    kind: str
    rank: int | None = None
    node: str = ""
    pid: int | None = None
    nobody: bool = False
    last_step: int | None = None
    extra: dict[str, object] = field(default_factory=dict)


Scenario = Callable[[int], tuple[Job, Truth]]
