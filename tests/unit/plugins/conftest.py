"""Collectors on captured trees."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from ray_sentinel.api import Collector, Context, Event, Sample

TREES = Path(__file__).parents[2] / "fixtures" / "trees"
UPDATE = "RAY_SENTINEL_UPDATE_EXPECTED"

Series = dict[str, float]


def written(items: Iterable[object]) -> Series:
    """Samples as ``name{label="value"}`` → value; each series once."""
    found: Series = {}
    for item in items:
        if isinstance(item, Sample):
            labels = ",".join(f'{key}="{value}"' for key, value in item.labels)
            name = f"{item.name}{{{labels}}}" if labels else item.name
            assert name not in found, f"{name} is there twice"
            found[name] = item.value
    return found


def context_of(root: Path, **fields: object) -> Context:
    """A context that sees only ``root``."""
    return Context(proc=root / "proc", sys=root / "sys", dev=root / "dev", live=False, **fields)


@pytest.fixture
def trees() -> Path:
    return TREES


@pytest.fixture
def events_of() -> Callable[[type[Collector], Path], list[Event]]:
    def run(kind: type[Collector], root: Path) -> list[Event]:
        return [item for item in kind(context_of(root)).collect() if isinstance(item, Event)]

    return run


@pytest.fixture
def context() -> Callable[..., Context]:
    return context_of


@pytest.fixture
def series() -> Callable[[Iterable[object]], Series]:
    return written


@pytest.fixture
def update_expected() -> bool:
    """Set RAY_SENTINEL_UPDATE_EXPECTED=1 to write the expected files anew; then read the diff."""
    return os.environ.get(UPDATE) == "1"
