"""Versions of one collector that wait for one another; no process is started here."""

from __future__ import annotations

import selectors
from collections.abc import Iterator

import pytest

from ray_sentinel.clock import FakeClock
from ray_sentinel.collect.child_registry import ChildRegistry
from ray_sentinel.collect.protocol import CollectorSource
from ray_sentinel.collect.runner_context import CollectorConfig, RunnerContext
from ray_sentinel.collect.slots import CollectorSlot


def source(digest: str) -> CollectorSource:
    return CollectorSource(
        name="mine", kind="python", target=f"/copies/{digest}/mine.py", digest=digest
    )


@pytest.fixture
def around() -> Iterator[RunnerContext]:
    with selectors.DefaultSelector() as selector:
        yield RunnerContext(
            host="h",
            clock=FakeClock(),
            selector=selector,
            children=ChildRegistry(None),
            environ={},
            write_log=lambda name, line: None,
            on_events=lambda events: None,
        )


def test_a_version_that_waits_for_a_stuck_process_is_tried_when_that_has_gone(
    around: RunnerContext,
) -> None:
    slot = CollectorSlot(source("old"), CollectorConfig(), around)
    stuck = slot.current.schedule
    stuck.phase, stuck.unkillable = "stuck", 1
    slot.reload(source("new"), 0.0)
    assert slot.current.source.digest == "old"
    assert "waits" in slot.status().message
    # What the folder holds is told once: nobody calls ``reload`` again.
    slot.step(0.0)
    assert slot.current.source.digest == "new"
    assert "waits" not in slot.status().message


def test_the_newest_of_those_that_wait_is_tried(around: RunnerContext) -> None:
    slot = CollectorSlot(source("old"), CollectorConfig(), around)
    slot.current.schedule.phase, slot.current.schedule.unkillable = "stuck", 1
    for digest in ("new", "newer", "old"):
        slot.reload(source(digest), 0.0)
    slot.step(0.0)
    assert slot.current.source.digest == "old", "the file is as it was"


def test_a_collector_that_is_to_wait_is_not_started_before(around: RunnerContext) -> None:
    slot = CollectorSlot(source("old"), CollectorConfig(), around, wait=2.0)
    begun = around.clock.monotonic()
    assert slot.at == begun + 2.0
    assert not slot.step(begun + 1.9)
    assert slot.current.schedule.phase == "waiting"
    assert slot.status().state == "starting", "it is there from the first look on"
