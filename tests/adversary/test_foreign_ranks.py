"""Processes and records that another user makes look like ranks change nothing of ours."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ray_sentinel.actors.agent.node_monitor import MOST_PROBLEMS
from ray_sentinel.model.identity import Node
from ray_sentinel.progress import reader
from ray_sentinel.progress.discovery import ownership
from ray_sentinel.progress.discovery.environment import RECORD_DIR_VARIABLE
from ray_sentinel.progress.discovery.ownership import MOST_RANKS
from ray_sentinel.progress.identity import RankIdentity
from ray_sentinel.progress.rank.writer import ProgressWriter
from ray_sentinel.progress.reader import MOST_OF_OTHERS, MOST_SAID, RecordReader
from ray_sentinel.progress.watch import NodeWatch
from ray_sentinel.supervised_run import last_step
from ray_sentinel.trusted_path import TRUSTED_UIDS_VARIABLE
from tests.support.living import descendants
from tests.support.other_user import NOBODY, as_nobody, nobody_runs
from tests.support.parts import needs_root
from tests.support.waiting import eventually

pytestmark = needs_root()

SOMEBODY = 4321
NODE = Node(id="n", host="h", address="10.0.0.1")
OURS = RankIdentity(job="production", rank=0)


@pytest.fixture
def engine() -> Iterator[int]:
    """The pid of somebody's process that calls itself like a rank of an inference engine."""
    title = "sglang::scheduler_TP0"
    with subprocess.Popen([title, "60"], executable="sleep", user=SOMEBODY, env={}) as process:
        yield process.pid
        process.kill()


def is_a_rank(pid: int) -> bool:
    ranks, _ = NodeWatch(NODE, folders=[]).poll()
    return any(one.rank.process.pid == pid for one in ranks)


def test_a_title_of_somebody_else_is_no_rank(engine: int) -> None:
    assert is_a_rank(engine), "root watches everybody's"
    assert not as_nobody(is_a_rank, engine)


def test_a_user_who_is_named_is_watched(engine: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TRUSTED_UIDS_VARIABLE, str(SOMEBODY))
    assert as_nobody(is_a_rank, engine)


def attach(folder: Path, identity: RankIdentity) -> ProgressWriter:
    folder.mkdir(mode=0o700, exist_ok=True)
    writer = ProgressWriter.open(identity, [folder])
    writer.step(7)
    return writer


def attached(folder: Path, identity: RankIdentity, said: Path) -> None:
    """As a rank."""
    attach(folder, identity)
    said.touch()
    time.sleep(60)


def test_a_process_of_somebody_else_takes_no_part_in_a_job_of_ours(open_folder: Path) -> None:
    theirs, ours = open_folder / "theirs", open_folder / "ours"
    said = open_folder / "said"
    writer = attach(ours, OURS)
    watch = NodeWatch(NODE, folders=[theirs, ours])
    try:
        with nobody_runs(attached, theirs, OURS, said) as pid:
            eventually(said.exists, "it has attached")
            ranks, _ = watch.poll()
            mine = [one for one in ranks if one.rank.process.pid in (pid, os.getpid())]
            assert [one.rank.process.pid for one in mine] == [os.getpid()]
            (problem,) = (one for one in watch.problems if str(pid) in one)
            assert "rank 0 of production, whose ranks are not that user's" in problem
    finally:
        writer.abandon()


def test_a_job_of_somebody_else_is_still_watched_by_root(open_folder: Path) -> None:
    theirs, said = open_folder / "theirs", open_folder / "said"
    with nobody_runs(attached, theirs, RankIdentity(job="other", rank=3), said) as pid:
        eventually(said.exists, "it has attached")
        ranks, _ = NodeWatch(NODE, folders=[theirs]).poll()
    assert [one.rank.id.rank for one in ranks if one.rank.process.pid == pid] == [3]


def test_a_record_of_somebody_else_does_not_hold_a_run_up(open_folder: Path) -> None:
    theirs, ours, said = open_folder / "theirs", open_folder / "ours", open_folder / "said"
    writer = attach(ours, OURS)
    writer.step(9)
    records = RecordReader([theirs, ours])
    try:
        with nobody_runs(attached, theirs, OURS, said):
            eventually(said.exists, "it has attached")
            assert len(records.scan()) == 2
            assert last_step(records, OURS.job, 0, frozenset) == 9
            assert last_step(records, OURS.job, 0, lambda: frozenset({NOBODY})) == 7
    finally:
        writer.abandon()
        records.close()


def many_records(folder: Path) -> None:
    """Twice as many as are read, whole but for one byte in half of them."""
    path = attach(folder, OURS).path
    assert path is not None
    data = path.read_bytes()
    for number in range(MOST_OF_OTHERS):
        (folder / f"{number}.record").write_bytes(data)
        (folder / f"bad-{number}.record").write_bytes(b"x" + data[1:])


def endless_records(folder: Path) -> None:
    """So many names that to list them each second would take a core."""
    folder.mkdir()
    for number in range(40 * MOST_OF_OTHERS):
        (folder / f"{number}.record").touch()


@pytest.mark.parametrize("make", [many_records, endless_records])
def test_records_of_somebody_else_take_no_place_of_ours(
    open_folder: Path, make: Callable[[Path], None]
) -> None:
    theirs, ours = open_folder / "theirs", open_folder / "yours"
    as_nobody(make, theirs)
    records = RecordReader([theirs, ours])
    records.scan()
    writer = attach(ours, OURS)
    try:
        views = records.scan()
        assert [view.path.parent for view in views].count(ours) == 1
        assert len(views) <= MOST_OF_OTHERS + 1
        assert len(records.problems) <= MOST_SAID
        before = time.process_time()
        records.scan()
        assert time.process_time() - before < 0.2
    finally:
        writer.abandon()
        records.close()


def many_ranks(folder: Path, said: Path) -> None:
    """More than are watched. Each names a folder for its records, some of them a large one."""
    folder.mkdir()
    program = folder / "python3"
    shutil.copy("/bin/sleep", program)
    for number in range(MOST_RANKS + 40):
        named = folder / str(number)
        named.mkdir()
        if number < 20:
            for record in range(8 * MOST_OF_OTHERS):
                (named / f"{record}.record").touch()
        told = {"RANK": str(number), "WORLD_SIZE": "999", "RAY_SENTINEL_JOB": "theirs"}
        subprocess.Popen([program, "60"], env={**told, RECORD_DIR_VARIABLE: str(named)})
    said.touch()
    time.sleep(60)


def test_ranks_of_somebody_else_are_bounded_and_later_ones_displace_nobody(
    open_folder: Path,
) -> None:
    said = open_folder / "said"
    watch = NodeWatch(NODE)
    try:
        with nobody_runs(many_ranks, open_folder / "theirs", said) as pid:
            try:
                eventually(said.exists, "all are there", 60.0)
                first = theirs(watch)
                assert len(first) == MOST_RANKS
                assert sorted(first) == list(range(MOST_RANKS))
                assert any("more than 256 processes" in one for one in watch.problems)
                begun = time.process_time()
                assert theirs(watch) == first
                assert time.process_time() - begun < 0.5
            finally:
                for child in descendants(pid):
                    os.kill(child, signal.SIGKILL)
    finally:
        watch.close()


def theirs(watch: NodeWatch) -> list[int]:
    ranks, _ = watch.poll()
    return [one.rank.id.rank for one in ranks if one.rank.id.job == "theirs"]


def test_ranks_of_somebody_else_open_and_close_no_folder_of_ours(
    open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ours are read those that writers use by default, and those that a rank of ours named."""
    named, default = open_folder / "named", open_folder / "default"
    writers = [attach(named, OURS), attach(default, OURS)]
    monkeypatch.setattr(reader, "candidates", lambda: [default])
    records = RecordReader()
    try:
        told = frozenset({NOBODY})
        records.also([(named, told), (default, told)])
        assert folders(records) == {default}
        records.also([(named, frozenset())])
        assert folders(records) == {default, named}
        records.also([(named, told)])
        assert folders(records) == {default, named}
    finally:
        records.close()
        for writer in writers:
            writer.abandon()


def folders(records: RecordReader) -> set[Path]:
    return {view.path.parent for view in records.scan() if view.header.pid == os.getpid()}


def test_what_is_said_of_others_leaves_room_for_a_problem_of_ours() -> None:
    """Of ranks of theirs in jobs of ours, of too many of their ranks, and of their bad records."""
    assert ownership.MOST_SAID + 1 + MOST_SAID < MOST_PROBLEMS
