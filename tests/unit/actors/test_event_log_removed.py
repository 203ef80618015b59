"""Somebody else removes, moves or truncates the event log while it is written: it goes on where it
can be found, and says what is missing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ray_sentinel.actors.coordinator.engine_loop import EngineLoop
from ray_sentinel.actors.coordinator.event_log import log as event_log
from ray_sentinel.actors.coordinator.event_log.log import LOOK_SECONDS, EventLog, segments
from ray_sentinel.actors.coordinator.event_log.recovery import restore
from ray_sentinel.clock import FakeClock, SteadyClock
from ray_sentinel.config import Config
from ray_sentinel.engine.engine import Engine
from ray_sentinel.engine.events import DumpAsked, SnapshotReceived, Tick
from ray_sentinel.model.identity import Node, ProcessId, Rank, RankId
from ray_sentinel.model.progress import ProcessState, RankSnapshot, Snapshot
from tests.support.waiting import eventually


def remove(folder: Path) -> None:
    segments(folder)[-1].unlink()


def remove_folder(folder: Path) -> None:
    shutil.rmtree(folder)


def move_folder(folder: Path) -> None:
    folder.rename(folder.with_name("moved"))


def truncate(folder: Path) -> None:
    segments(folder)[-1].write_bytes(b"")


def replace(folder: Path) -> None:
    path = segments(folder)[-1]
    shutil.copy(path, folder / "copy")
    (folder / "copy").replace(path)


def cut_off_the_last_event(folder: Path) -> None:
    path = segments(folder)[-1]
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


HARMS = [
    (remove, 3),
    (remove_folder, 3),
    (move_folder, 3),
    (truncate, 3),
    (replace, 0),
    (cut_off_the_last_event, 1),
]


@pytest.mark.parametrize(("harm", "lost"), HARMS, ids=lambda given: getattr(given, "__name__", ""))
def test_it_goes_on_in_a_file_that_is_there(
    tmp_path: Path, harm: Callable[[Path], None], lost: int
) -> None:
    folder = tmp_path / "log"
    log = EventLog(folder)
    for number in range(3):
        log.append(Tick(time=float(number)))
    harm(folder)
    log.append(Tick(time=3.0))  # so soon nobody has looked
    log.append(Tick(time=3.0 + LOOK_SECONDS))
    log.append(Tick(time=4.0 + LOOK_SECONDS))
    header, events = event_log.read_segment(segments(folder)[-1])
    assert [event.time for event in events] == [3.0 + LOOK_SECONDS, 4.0 + LOOK_SECONDS]
    assert header.lost == log.removed
    assert lost <= log.removed <= lost + 1
    assert folder.stat().st_mode & 0o077 == 0


def test_what_nobody_touches_is_one_segment(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    for number in range(5):
        log.append(Tick(time=number * LOOK_SECONDS))
    assert len(segments(tmp_path)) == 1
    assert log.removed == 0


def test_a_coordinator_that_is_killed_afterwards_knows_its_incidents(tmp_path: Path) -> None:
    folder, wall = tmp_path / "log", FakeClock(1000.0)
    engine = Engine()
    node = Node(id="n", host="h", address="10.0.0.1")
    rank = Rank(id=RankId("j", 0, 0), process=ProcessId("h", 100, 1), node="n", world_size=1)
    seen = RankSnapshot(rank=rank, process=ProcessState(state="S", cpu_seconds=1.0))
    report = Snapshot(node=node, time=1000.0, sequence=1, ranks=(seen,))
    loop = EngineLoop(engine, SteadyClock(wall), lambda action: None, folder, 1 << 20)
    loop.feed(SnapshotReceived(time=0.0, snapshot=report))
    last = loop.feed(DumpAsked(time=0.0, why="asked"))
    eventually(lambda: loop.written(last), "it is written")
    shutil.rmtree(folder)
    for _ in range(2):
        wall.advance(LOOK_SECONDS)
        last = loop.feed(Tick(time=0.0))
        eventually(lambda last=last: loop.written(last), "it is written")
    (note,) = loop.notes()
    assert note.startswith("2 events are missing in the event log: somebody removed or changed")
    assert str(folder) in note
    loop.close()
    assert len(engine.incidents()) == 1
    assert restore(folder, Config()).engine.incidents() == engine.incidents()
