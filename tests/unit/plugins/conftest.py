"""Collectors on captured trees."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ray_sentinel.api import Collector, Context, Event, Sample
from ray_sentinel_plugins._bounded import Bounded

TREES = Path(__file__).parents[2] / "fixtures" / "trees"
UPDATE = "RAY_SENTINEL_UPDATE_EXPECTED"

PATIENCE = 30.0

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
def on_tree() -> Callable[[type[Collector], str], Series]:
    """Run a collector once on the named tree and give its series."""

    def run(kind: type[Collector], name: str) -> Series:
        return written(kind(context_of(TREES / name)).collect())

    return run


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
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., threading.Event]]:
    """Let the bounded calls of some keys miss their deadline, without waiting for it, and all
    others have all the time they need. Gives what those calls are to wait for."""
    gate = threading.Event()

    def choose(*keys: object) -> threading.Event:
        def wait(bounded: Bounded[Any, Any], key: object, call: Any, seconds: float) -> bool:
            return key not in keys and bool(call.ended.wait(PATIENCE))

        monkeypatch.setattr(Bounded, "_wait", wait)
        return gate

    yield choose
    gate.set()


@pytest.fixture
def update_expected() -> bool:
    """Set RAY_SENTINEL_UPDATE_EXPECTED=1 to write the expected files anew; then read the diff."""
    return os.environ.get(UPDATE) == "1"
