"""A fact, and how it is put to the product."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Check:
    """``where`` the product answers; ``run`` asks it, in an empty folder, and asserts."""

    where: str
    run: Callable[[Path], None]


@dataclass(frozen=True)
class Row:
    """One fact. ``otherwise``: why the product does something else, which ``check`` shows."""

    id: str
    fact: str
    check: Check
    otherwise: str = ""
