"""For tests of what may hang."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import wait as wait_for
from functools import partial
from typing import Any

import pytest

from ray_sentinel.bounded import Bounded
from ray_sentinel.progress.proc.mounts import MountTable

PATIENCE = 30.0


@pytest.fixture(autouse=True)
def _patient_with_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which file system a folder of records is on is found by a thread. On a machine whose CPUs
    others have, it may get none for longer than an agent waits before it looks again."""
    patient = partial(MountTable, patience=PATIENCE)
    monkeypatch.setattr("ray_sentinel.progress.reader.MountTable", patient)


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., threading.Event]]:
    """Let the bounded calls of some keys miss their deadline, without waiting for it, and all
    others have all the time they need. Gives what those calls are to wait for."""
    gate = threading.Event()

    def choose(*keys: object) -> threading.Event:
        def wait(bounded: Bounded[Any, Any], key: object, call: Any, seconds: float) -> bool:
            return key not in keys and bool(wait_for([call], PATIENCE).done)

        monkeypatch.setattr(Bounded, "ended_within", wait)
        return gate

    yield choose
    gate.set()
