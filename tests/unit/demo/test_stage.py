"""How long the demo and the fault suite wait for what must come."""

from __future__ import annotations

import os
import time
from typing import Any, cast

import pytest

from ray_sentinel.demo import stage
from ray_sentinel.demo.stage import Stage, crowding


class Unwatched(Stage):
    """Looks at nothing."""

    def __init__(self) -> None:
        super().__init__(cast(Any, None))

    def poll(self, note: str) -> Any:
        """As if there were a status."""


@pytest.mark.parametrize(("load", "comes"), [(0.0, False), (2.0, True)])
def test_a_crowded_machine_has_more_time(
    load: float, comes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpus = len(os.sched_getaffinity(0))
    monkeypatch.setattr(stage.os, "getloadavg", lambda: (load * cpus, 0.0, 0.0))
    monkeypatch.setattr(stage, "POLL", 0.02)
    moments = iter(range(1000))
    monkeypatch.setattr(stage.time, "monotonic", lambda: float(next(moments)))
    looks = iter(range(1000))
    assert Unwatched().until(10.0, "", lambda: next(looks) == 15) is comes


def test_no_machine_has_time_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage.os, "getloadavg", lambda: (1e6, 0.0, 0.0))
    monkeypatch.setattr(stage, "POLL", 0.01)
    began = time.monotonic()
    assert not Unwatched().until(0.2, "", lambda: False)
    assert crowding() == stage.MOST_CROWDED
    assert time.monotonic() - began > 0.5
