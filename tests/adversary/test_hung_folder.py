"""A log folder that hangs, as on a dead NFS server, is full or read-only: nobody waits for it.

What is told here is told by real file systems: FUSE with a server that is stopped, small tmpfs.
"""

from __future__ import annotations

import json
import logging
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ray_sentinel.actors.coordinator import history
from ray_sentinel.actors.coordinator.engine_loop import EngineLoop
from ray_sentinel.actors.coordinator.event_log import log as event_log
from ray_sentinel.actors.coordinator.event_log.recovery import restore
from ray_sentinel.actors.coordinator.executor import Executor
from ray_sentinel.actors.coordinator.fleet import Fleet
from ray_sentinel.actors.logs import write_logs
from ray_sentinel.actors.storage import DeploymentStorage
from ray_sentinel.clock import FakeClock, SystemClock
from ray_sentinel.collect.runner import Logbook
from ray_sentinel.config import CaptureConfig as CaptureSettings
from ray_sentinel.config import Config, CoordinatorConfig, NotifyConfig
from ray_sentinel.engine.actions import Capture, Publish
from ray_sentinel.engine.engine import Engine
from ray_sentinel.engine.events import AnyEvent, CaptureDone, DumpAsked, Tick
from ray_sentinel.log_files import LogFiles
from ray_sentinel.model.incident import Incident, IncidentState
from ray_sentinel.progress.reader import RecordReader
from tests.support.hanging_disk import HangingDisk, hanging_disk
from tests.support.incidents import an_incident
from tests.support.small_disk import small_disk
from tests.support.told_history import ToldHistory
from tests.support.waiting import eventually

SOON = 8.0
"""Seconds in which a call that does not wait for the disk has returned, on a busy machine too."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[HangingDisk]:
    with hanging_disk(tmp_path) as mounted:
        yield mounted


def soon(do: Callable[[], Any]) -> Any:
    """What ``do`` returns; fails where it waits."""
    begun = time.monotonic()
    value = do()
    assert time.monotonic() - begun < SOON
    return value


def test_a_folder_that_hangs_at_the_start_is_done_without(
    disk: HangingDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    disk.hang()
    config = Config(log_dir=str(disk.path / "log"), job="j")
    storage = soon(lambda: DeploymentStorage(config, {}, patience=0.5))
    assert storage.root is not None
    assert storage.root.is_relative_to(tmp_path)
    assert not storage.root.is_relative_to(disk.path)
    first, second = storage.notes
    assert str(disk.path / "log") in first
    assert "no answer within 0.5 s" in first
    assert str(storage.root) in second
    disk.answer()
    eventually(lambda: (disk.behind / "log").is_dir(), "what hung goes on")
    eventually(lambda: not any((disk.behind / "log").iterdir()), "and leaves nothing")


def test_a_folder_that_hangs_later_keeps_nobody_waiting(disk: HangingDisk) -> None:
    storage = DeploymentStorage(Config(log_dir=str(disk.path / "log")), {}, patience=0.5)
    assert storage.folder("events") == disk.path / "log/events"
    disk.hang()
    # Whoever writes there makes it, when the disk answers.
    assert soon(lambda: storage.folder("logs")) == disk.path / "log/logs"
    assert soon(lambda: storage.folder("history")) == disk.path / "log/history"
    disk.answer()
    eventually(lambda: (disk.behind / "log/logs").is_dir(), "the call that hung is done")
    eventually(lambda: storage.folder("more") and (disk.behind / "log/more").is_dir(), "the next")


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """The package's, put back as it was."""
    ours = logging.getLogger("ray_sentinel")
    before = (ours.level, ours.propagate, list(ours.handlers))
    yield ours
    for handler in list(ours.handlers):
        ours.removeHandler(handler)
        handler.close()
    ours.level, ours.propagate = before[:2]
    for handler in before[2]:
        ours.addHandler(handler)


def test_who_logs_into_a_hung_folder_does_not_wait(
    disk: HangingDisk, logger: logging.Logger
) -> None:
    problem = write_logs(disk.path / "logs", "agent")
    logger.info("the first line")
    log = disk.behind / "logs/agent.log"
    eventually(lambda: log.exists() and "the first line" in log.read_text(), "it is written")
    assert problem() == ""
    disk.hang()

    def chatter() -> None:
        for number in range(200):
            logger.info("line %d", number)

    threads = [threading.Thread(target=chatter, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10.0)
    assert not any(thread.is_alive() for thread in threads)
    eventually(lambda: str(disk.path / "logs") in problem(), "it is said", 20.0)
    assert "does not answer" in problem()
    disk.answer()
    eventually(lambda: log.read_text().count("line 199") == 4, "what waited is written")
    eventually(lambda: problem() == "", "all is well")


def test_lines_that_a_hung_folder_does_not_take_are_counted(disk: HangingDisk) -> None:
    files = LogFiles(disk.path / "logs", max_bytes=8 << 20, waiting_bytes=100_000)
    files.write("agent", "before")
    log = disk.behind / "logs/agent.log"
    eventually(lambda: log.exists() and log.read_text() == "before\n", "it is written")
    disk.hang()
    soon(lambda: [files.write("agent", "x" * 1000) for _ in range(1000)])
    assert 850 < files.dropped < 950
    assert f"{files.dropped} lines of log were lost" in files.problem
    disk.answer()
    marked = re.compile(r"\((\d+) lines were lost")
    eventually(
        lambda: sum(map(int, marked.findall(log.read_text()))) == files.dropped, "it is marked"
    )
    assert log.read_text().count("x" * 1000) + files.dropped == 1000
    files.close()


def test_a_hung_folder_costs_the_collectors_only_lines(disk: HangingDisk) -> None:
    book = Logbook(disk.path / "logs/host")
    disk.hang()
    # Each is masked (0.4 ms of CPU); 3,700 of them fit into what waits.
    soon(lambda: [book.write("c", "y" * 1000) for _ in range(5_000)])
    assert "lines of log were lost" in book.problem
    soon(lambda: book.close(0.1))


def incident(state: IncidentState = "confirmed", number: int = 7) -> Incident:
    return an_incident(id=f"{number:04d}", state=state, suspected_at=1_767_323_045.0 + number)


class Watch:
    """An executor with a log folder; it has the notices that people got, and the answers."""

    def __init__(self, folder: Path, own: Path) -> None:
        self._told = own / "told"
        script = own / "tell.sh"
        script.write_text(f'#!/bin/sh\ndata=$(cat)\nprintf "%s\\n" "$data" >> {self._told}\n')
        script.chmod(0o755)
        config = Config(
            log_dir=str(folder),
            notify=NotifyConfig(command=str(script)),
            capture=CaptureSettings(series_seconds=0.0),
        )
        self.executor = Executor(
            config, Fleet(b"{}", lambda node_id: None), DeploymentStorage(config, {})
        )
        self.answers: list[AnyEvent] = []
        self.executor.feed = self._feed

    def _feed(self, event: AnyEvent) -> int:
        self.answers.append(event)
        return 0

    def done(self) -> list[CaptureDone]:
        return [event for event in self.answers if isinstance(event, CaptureDone)]

    def notices(self) -> list[str]:
        text = self._told.read_text() if self._told.exists() else ""
        return [json.loads(line)["event"] for line in text.splitlines() if line.endswith("}")]


def test_people_are_told_and_the_incident_goes_on_while_the_disk_hangs(
    disk: HangingDisk, tmp_path: Path
) -> None:
    watch = Watch(disk.path / "log", tmp_path)
    watch.executor.writer.seconds = 2.0
    disk.hang()
    watch.executor(Publish(incident=incident("confirmed")))
    watch.executor(Capture(incident=incident("confirmed")))
    eventually(lambda: watch.notices() == ["confirmed"], "people are told", 8.0)
    (done,) = eventually(lambda: watch.done(), "the capture is done, without its bundle", 8.0)
    assert done.bundle == ""
    assert str(disk.path / "log/incidents") in " ".join(done.problems)
    # The disk is known to hang: nobody waits for it again.
    soon(lambda: watch.executor.publish(incident("explained")))
    soon(lambda: watch.executor.publish(incident("resolved")))
    eventually(lambda: watch.notices() == ["confirmed", "explained", "resolved"], "the rest", 8.0)
    (note,) = eventually(lambda: watch.executor.writer.notes, "it is said", 10.0)
    assert "incidents 0007" in note
    assert str(disk.path / "log/incidents") in note

    disk.answer()
    late = eventually(lambda: watch.done()[1:], "the bundle is written late", 10.0)
    folder = disk.behind / "log/incidents" / Path(late[0].bundle).name
    eventually(lambda: (folder / "incident.json").exists(), "it is there")
    eventually(
        lambda: json.loads((folder / "incident.json").read_text())["state"] == "resolved",
        "as it is now",
    )
    eventually(lambda: watch.executor.writer.notes == (), "all is well")


def test_files_that_wait_for_a_hung_disk_are_bounded(disk: HangingDisk, tmp_path: Path) -> None:
    watch = Watch(disk.path / "log", tmp_path)
    writer = watch.executor.writer
    writer.seconds, writer.most_bytes = 0.3, 5 << 20
    disk.hang()
    kept = [
        writer.store(incident(number=number), {"dump": bytes(1 << 20)})[1][0]
        for number in range(10)
    ]
    assert sum("is written when it does" in problem for problem in kept) == 5
    assert sum("were dropped" in problem for problem in kept) == 5
    assert sum("were dropped" in note for note in watch.executor.writer.notes) == 5
    disk.answer()
    eventually(
        lambda: len(list((disk.behind / "log/incidents").glob("*/dump"))) == 5,
        "what was kept is written",
    )


@pytest.mark.parametrize("wrong", ["full", "read-only"])
def test_a_bundle_that_a_disk_refused_is_written_when_it_takes_it(
    tmp_path: Path, wrong: str
) -> None:
    with small_disk(tmp_path / "small", "256k") as small:
        watch = Watch(small / "log", tmp_path)
        watch.executor.writer.retry_seconds = 0.2
        if wrong == "full":
            fill(small / "filler")
        else:
            remount(small, "ro")
        watch.executor(Capture(incident=incident()))
        watch.executor(Publish(incident=incident()))
        (done,) = eventually(lambda: watch.done(), "the capture is done", 8.0)
        assert "could not be written" in " ".join(done.problems)
        eventually(lambda: watch.notices() == ["confirmed"], "people are told", 8.0)
        (note,) = watch.executor.writer.notes
        assert str(small / "log/incidents") in note
        if wrong == "full":
            (small / "filler").unlink()
        else:
            remount(small, "rw")
        late = eventually(lambda: watch.done()[1:], "it is written late", 8.0)
        eventually(lambda: (Path(late[0].bundle) / "report.md").exists(), "with its report")
        eventually(lambda: watch.executor.writer.notes == (), "all is well")
        watch.executor.close()


@contextmanager
def reader_of(own: Path) -> Iterator[RecordReader]:
    """A reader with the folders of writers, which is ``own``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_SENTINEL_RECORD_DIR", str(own))
        reader = RecordReader()
        yield reader
        reader.close()


def test_files_that_did_not_fit_are_written_when_there_is_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", "256k") as small:
        watch = Watch(small / "log", tmp_path)
        writer = watch.executor.writer
        writer.retry_seconds = 0.2
        files = {"a.txt": b"a" * 1000, "z/dump": b"z" * 300_000}
        folder, problems = writer.store(incident(), files)
        assert folder is not None
        assert (folder / "a.txt").read_bytes() == b"a" * 1000
        (problem,) = problems
        assert "z/dump could not be written: No space left" in problem
        (note,) = watch.executor.writer.notes
        assert note == f"incident 0007: {problem}"
        assert writer.publish(incident()) == folder
        assert watch.executor.writer.notes == (note,), (
            "its report is written, but not all of its files"
        )
        remount(small, "size=2m")
        late = eventually(lambda: watch.done(), "the rest is written late", 8.0)
        assert late[0].bundle == str(folder)
        assert (folder / "z/dump").read_bytes() == b"z" * 300_000
        assert watch.executor.writer.notes == ()
        watch.executor.close()


def fill(path: Path) -> None:
    with path.open("wb", 0) as filler:
        try:
            while True:
                filler.write(b"x" * 4096)
        except OSError:
            return


def remount(folder: Path, how: str) -> None:
    command = ["mount", "-o", f"remount,{how}", str(folder)]
    subprocess.run(command, check=True, timeout=10)


def test_an_event_log_with_a_gap_says_so_and_replays(disk: HangingDisk) -> None:
    folder = disk.path / "log/events/d"
    engine = Engine(Config(coordinator=CoordinatorConfig(log_waiting_bytes=200_000)))
    loop = EngineLoop(engine, SystemClock(), lambda action: None, folder, 1 << 30)
    writer = loop.writer
    now = time.time()
    last = loop.feed(Tick(time=now))
    eventually(lambda: loop.written(last), "it is written")
    disk.hang()
    soon(lambda: [loop.feed(DumpAsked(time=now, why="w" * 1000)) for _ in range(500)])
    assert writer.waiting_bytes <= 200_000, "what waits is bounded"
    assert writer.missing > 250
    (note,) = loop.notes()
    assert str(folder) in note
    assert f"{writer.missing} events are missing" in note
    disk.answer()
    eventually(lambda: not writer.waiting_bytes, "what waited is written")
    last = loop.feed(DumpAsked(time=now, why="after"))
    eventually(lambda: loop.written(last), "it goes on")
    (note,) = loop.notes()
    assert note.startswith(f"{writer.missing} events are missing")
    loop.close()

    behind = disk.behind / "log/events/d"
    parts = [event_log.read_segment(path) for path in event_log.segments(behind)]
    assert [header.lost for header, _ in parts] == [0, writer.missing]
    assert parts[1][0].state, "the replay begins here, with all that was known"
    events = [event for _, events in parts for event in events]
    assert len(events) + writer.missing == 502
    assert restore(behind, Config()).events == 1


def test_a_copy_of_the_history_does_not_wait_for_its_file(
    disk: HangingDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "IMAGE_SECONDS", 0.5)
    clock = FakeClock(time.time())
    keeper = ToldHistory(disk.path / "log/history", clock)
    keeper.take("h", {"up": 1.0})
    assert keeper.save()
    disk.hang()
    clock.advance(5.0)
    keeper.take("h", {"up": 2.0})
    assert soon(keeper.image).startswith(b"SQLite format 3")
    assert soon(keeper.image).startswith(b"SQLite format 3")
    disk.answer()


def test_records_in_a_folder_that_may_hang_are_not_read(disk: HangingDisk, tmp_path: Path) -> None:
    """Anybody's rank may say that its record is on a dead NFS server: the watch looks elsewhere."""
    link = tmp_path / "link"
    link.symlink_to(disk.path)
    (disk.path / "records").mkdir()
    with reader_of(tmp_path / "own") as reader:
        reader.also((folder / "records", frozenset()) for folder in (disk.path, link))
        soon(reader.scan)
        assert len(reader.problems) == 2
        assert f"{disk.path / 'records'}: is on fuse" in reader.problems[0]
        assert "RAY_SENTINEL_RECORD_DIR" in reader.problems[0]
        disk.hang()
        reader.also([(link / "later", frozenset())])
        soon(lambda: [reader.scan() for _ in range(20)])
        assert f"{link / 'later'}: does not answer" in reader.problems[-1]
        disk.answer()


def test_the_state_of_an_incident_is_the_same_without_its_bundle() -> None:
    """The engine: a bundle that comes when the incident is over is noted, and told once more."""
    over = msgspec.structs.replace(incident("resolved"), confirmed_at=1.0, resolved_at=2.0)
    engine = Engine()
    engine.store.take_over([over], engine.now)
    done = CaptureDone(time=3.0, incident=over.id, bundle="/late")
    (action,) = engine.handle(done)
    assert isinstance(action, Publish)
    assert (action.incident.bundle, action.incident.state) == ("/late", "resolved")
    assert engine.handle(done) == []
