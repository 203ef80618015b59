"""One playbook a file.

A playbook is a module with ``NAME``, ``ANALYSIS`` (how its answer is labelled), ``ALIASES`` (other
names it may be called by), ``TITLE``, ``SLOWING`` (causes it names that end no job),
``applies(case) -> float`` (0..1, a cheap guess whether it is worth running) and
``run(case) -> Diagnosis``. It is found by looking into this folder: adding one edits nothing else.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Protocol, cast

import msgspec

from ray_sentinel.diagnose.case import JobCase
from ray_sentinel.errors import UsageError
from ray_sentinel.model.diagnosis import Diagnosis


class Playbook(Protocol):
    """What a module in this folder provides."""

    NAME: str
    ANALYSIS: str
    ALIASES: tuple[str, ...]
    TITLE: str
    SLOWING: frozenset[str]
    """The causes among its answers that only make steps slow: they leave every rank alive."""

    def applies(self, case: JobCase) -> float:
        """0 if it has nothing to work on; 1 where its trigger is plainly there."""

    def run(self, case: JobCase) -> Diagnosis:
        """The playbook's answer; "not this" and "unknown" are answers."""


def playbooks() -> list[Playbook]:
    """All playbooks, by name."""
    names = sorted(info.name for info in pkgutil.iter_modules(__path__))
    return [
        cast("Playbook", importlib.import_module(f"{__name__}.{name}"))
        for name in names
        if not name.startswith("_")
    ]


def answer_of(playbook: Playbook, case: JobCase) -> Diagnosis:
    """The playbook's answer, labelled with its name."""
    answer = playbook.run(case)
    return msgspec.structs.replace(
        answer,
        analysis=playbook.ANALYSIS,
        playbook=playbook.NAME,
        window=answer.window if any(answer.window) else (case.line.start, case.line.end),
    )


def named(name: str) -> Playbook:
    """The playbook with that name. Raises UsageError, listing all, if there is none."""
    wanted = name.lower().replace("_", "-")
    for playbook in playbooks():
        if wanted in {playbook.NAME, playbook.ANALYSIS, *playbook.ALIASES}:
            return playbook
    known = ", ".join(playbook.NAME for playbook in playbooks())
    raise UsageError(f"there is no playbook {name}; there are: {known}")
