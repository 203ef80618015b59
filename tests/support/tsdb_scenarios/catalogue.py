"""All scenarios, found by looking at the modules of this package."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

from tests.support.tsdb_scenarios.truth import Scenario


def scenarios() -> list[Scenario]:
    """Every scenario, by name."""
    package = __name__.rpartition(".")[0]
    found: list[Scenario] = []
    for info in pkgutil.iter_modules([str(Path(__file__).parent)]):
        module = importlib.import_module(f"{package}.{info.name}")
        found += getattr(module, "SCENARIOS", [])
    return sorted(found, key=lambda scenario: scenario.name)


def scenario(name: str) -> Scenario:
    """One scenario by name."""
    return next(one for one in scenarios() if one.name == name)
