"""A file system that is full: what was recorded stays, the rest is said and kept in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_sentinel.actors.bundles import bundle
from ray_sentinel.actors.coordinator.event_log import log as event_log
from ray_sentinel.actors.coordinator.event_log.writer import LogWriter
from ray_sentinel.clock import FakeClock
from ray_sentinel.engine.events import Tick
from tests.support.incidents import an_incident
from tests.support.small_disk import small_disk as mounted
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    with mounted(tmp_path / "small", "64k") as folder:
        yield folder


def until_done(writer: LogWriter, number: int) -> None:
    eventually(lambda: writer.done >= number, "it is written", 20.0, every=0.001)


def test_the_event_log_goes_on_when_there_is_room_again(small: Path) -> None:
    clock = FakeClock()
    writer = LogWriter(small / "events", 1 << 30, clock)
    number = 0
    for moment in range(5000):
        number = writer.put(Tick(time=float(moment)))
    until_done(writer, number)
    assert "No space left" in writer.problem
    kept = [event.time for event in event_log.read(small / "events")[1]]
    assert kept == [float(n) for n in range(len(kept))], "what fitted is whole and in order"
    assert len(kept) > 500

    event_log.segments(small / "events")[0].unlink()
    clock.advance(60)
    until_done(writer, writer.put(Tick(time=9999.0)))
    assert writer.problem == ""
    assert event_log.read(small / "events")[1] == [Tick(time=9999.0)]
    writer.close()


def test_a_bundle_says_what_did_not_fit(small: Path) -> None:
    folder = bundle.create(small, an_incident())
    (problem,) = bundle.put(folder, {"a.txt": b"x" * 1000, "b.txt": b"y" * 100_000}).problems
    assert "b.txt" in problem
    assert "No space left" in problem
    assert (folder / "a.txt").read_bytes() == b"x" * 1000
    names = sorted(path.name for path in folder.iterdir())
    assert names == [".deployment", "a.txt", "incident.json"]
