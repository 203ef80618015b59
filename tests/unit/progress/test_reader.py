"""Reading the records of a folder: bad files are named, and good ones are read."""

import errno
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ray_sentinel.progress import record
from ray_sentinel.progress.identity import RankIdentity
from ray_sentinel.progress.rank.writer import ProgressWriter
from ray_sentinel.progress.reader import EMPTY_LOOKS, ROOT_LOOKS_EVERY, RecordReader
from tests.support.parts import needs_root

WHO = RankIdentity(job="job", rank=0)


def make(folder: Path, name: str = "x.record") -> Path:
    """A record under another name, as another process's would be."""
    writer = ProgressWriter.open(WHO, [folder])
    assert writer.path is not None
    path = writer.path.rename(folder / name)
    writer.step(1)
    writer.abandon()
    return path


class Clocks:
    def __init__(self) -> None:
        self.wall, self.steady = 1_000_000.0, 500.0

    def now(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.steady


def test_nothing_there(tmp_path):
    reader = RecordReader([tmp_path / "none", tmp_path])
    assert reader.scan() == ()
    assert reader.problems == []


def test_bad_files_are_named_once_and_good_ones_are_read(tmp_path):
    make(tmp_path, "good.record")
    (tmp_path / "short.record").write_bytes(b"RAYS")
    (tmp_path / "garbage.record").write_bytes(os.urandom(record.SIZE))
    (tmp_path / "empty.record").touch()
    (tmp_path / "link.record").symlink_to(tmp_path / "good.record")
    (tmp_path / "folder.record").mkdir()
    os.mkfifo(tmp_path / "fifo.record")
    (tmp_path / "other.txt").touch()
    (tmp_path / ".new.record").write_bytes(b"half")
    reader = RecordReader([tmp_path])
    for _ in range(3):
        assert [view.path.name for view in reader.scan()] == ["good.record"]
    named = {Path(problem.split(":")[0]).name for problem in reader.problems}
    assert named == {
        "short.record",
        "garbage.record",
        "empty.record",
        "link.record",
        "folder.record",
        "fifo.record",
    }
    assert len(reader.problems) == len(named)


def test_another_version_is_named_with_the_remedy(tmp_path):
    path = make(tmp_path)
    data = bytearray(path.read_bytes())
    data[8] = 9
    path.write_bytes(data)
    reader = RecordReader([tmp_path])
    assert reader.scan() == ()
    assert "version 9" in reader.problems[0]
    assert "same release" in reader.problems[0]


@needs_root()
def test_a_file_of_another_user_is_refused(tmp_path):
    path = make(tmp_path)
    os.chown(tmp_path, 1234, 1234)
    os.chown(path, 4321, 4321)
    reader = RecordReader([tmp_path])
    assert reader.scan() == ()
    assert "4321" in reader.problems[0]


def test_a_record_that_is_cut_while_open_is_dropped(tmp_path):
    path = make(tmp_path)
    reader = RecordReader([tmp_path])
    assert len(reader.scan()) == 1
    os.truncate(path, 100)
    assert reader.scan() == ()
    assert "shorter" in reader.problems[0]


def test_a_record_that_goes_is_forgotten_and_may_come_again(tmp_path):
    path = make(tmp_path)
    reader = RecordReader([tmp_path])
    reader.scan()
    path.unlink()
    assert reader.scan() == ()
    make(tmp_path)
    assert len(reader.scan()) == 1
    assert reader.problems == []


def test_remove_takes_the_answers_along(tmp_path):
    make(tmp_path)
    (tmp_path / "x.stacks.json").write_text("[]")
    (tmp_path / "x.error.txt").write_text("")
    reader = RecordReader([tmp_path])
    (view,) = reader.scan()
    reader.remove(view)
    assert list(tmp_path.iterdir()) == []
    reader.remove(view)


def test_a_resting_record_keeps_what_was_read(tmp_path):
    make(tmp_path)
    reader = RecordReader([tmp_path])
    (view,) = reader.scan()
    reader.rest(view)
    assert reader.scan() == (view,)
    assert view.progress.step == 1
    reader.close()


def test_no_more_files_are_open_than_allowed(tmp_path, monkeypatch):
    monkeypatch.setattr("ray_sentinel.progress.reader.MAX_OPEN", 3)
    for n in range(5):
        make(tmp_path, f"{n}.record")
    reader = RecordReader([tmp_path])
    views = reader.scan()
    assert len(views) == 3
    for view in views:
        reader.rest(view)
    assert len(reader.scan()) == 5
    reader.close()


def test_times_are_steady_until_the_clock_is_set(tmp_path):
    make(tmp_path)
    clocks = Clocks()
    reader = RecordReader([tmp_path], now=clocks.now, monotonic=clocks.monotonic)
    (view,) = reader.scan()
    first = view.progress.step_ended_at
    clocks.wall += 1.02
    clocks.steady += 1.0
    reader.scan()
    assert view.progress.step_ended_at == first
    clocks.wall += 3600
    reader.scan()
    assert view.progress.step_ended_at == pytest.approx(first + 3600, abs=0.1)


def test_ages_do_not_change_with_the_wall_clock(tmp_path):
    make(tmp_path)
    clocks = Clocks()
    reader = RecordReader([tmp_path], now=clocks.now, monotonic=clocks.monotonic)
    (view,) = reader.scan()
    age = clocks.wall - view.progress.step_ended_at
    clocks.wall -= 86400
    reader.scan()
    assert clocks.wall - view.progress.step_ended_at == pytest.approx(age, abs=0.1)


def test_an_earlier_boot_is_told_apart(tmp_path):
    path = make(tmp_path)
    data = bytearray(path.read_bytes())
    header = record.RecordHeader._make(record.HEADER.unpack_from(data))
    record.HEADER.pack_into(data, 0, *header._replace(boot=header.boot ^ 1, pid_namespace=1))
    path.write_bytes(data)
    (view,) = RecordReader([tmp_path]).scan()
    assert not view.this_boot
    assert not view.this_namespace


@pytest.mark.parametrize(
    "text", [b"\x81\xa3job\xa1\xff", b"\x81\xa1x" + b"\x91" * 900, b"\xc0", b"\x81\xa3job\x01"]
)
def test_a_block_that_no_writer_stores_is_named(tmp_path, text):
    path = make(tmp_path)
    data = bytearray(path.read_bytes())
    record.store(data, record.IDENTITY, 99, text)
    path.write_bytes(data)
    reader = RecordReader([tmp_path])
    assert reader.scan() == ()
    assert "holds what no writer stores" in reader.problems[0]


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200, deadline=None
)
@given(
    st.lists(
        st.tuples(st.integers(min_value=96, max_value=record.SIZE - 1), st.binary(max_size=64)),
        max_size=20,
    )
)
def test_damage_never_raises(tmp_path, damage):
    for old in tmp_path.iterdir():
        old.unlink()
    path = make(tmp_path)
    data = bytearray(path.read_bytes())
    for offset, piece in damage:
        data[offset : offset + len(piece)] = piece
    path.write_bytes(data[: record.SIZE])
    reader = RecordReader([tmp_path])
    reader.scan()
    reader.scan()
    reader.close()


def test_a_moment_without_descriptors_spoils_no_record(tmp_path, monkeypatch):
    make(tmp_path)
    reader = RecordReader([tmp_path])

    def refuse(path, flags):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr("ray_sentinel.progress.reader.os.open", refuse)
        assert reader.scan() == reader.scan() == ()
    (problem,) = reader.problems
    assert "Too many open files" in problem
    assert len(reader.scan()) == 1


def test_remove_takes_along_what_a_killed_writer_left_half(tmp_path):
    path = make(tmp_path)
    half = tmp_path / f".x.flight_recorder.json.{os.getpid()}.new"
    half.write_bytes(b"[1, 2")
    reader = RecordReader([tmp_path])
    (view,) = reader.scan()
    reader.remove(view)
    assert not half.exists()
    assert not path.exists()


def test_folders_that_are_gone_are_looked_into_no_more(tmp_path, monkeypatch):
    monkeypatch.setattr("ray_sentinel.progress.reader.candidates", lambda: (tmp_path,))
    reader = RecordReader()
    folders = [tmp_path / str(number) for number in range(3)]
    folders[1].mkdir()
    reader.also((folder, frozenset()) for folder in folders)
    for _ in range(ROOT_LOOKS_EVERY + 1):
        looked = reader.folders()
    assert folders[1] in looked
    assert folders[0] not in looked
    reader.also([(folders[0], frozenset())])
    assert folders[0] in reader.folders(), "a rank was told to use it again"


def test_folders_of_runs_that_are_over_are_not_looked_into_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr("ray_sentinel.progress.reader.candidates", tuple)
    reader = RecordReader()
    for number in range(20):
        folder = tmp_path / f"run-{number}"
        folder.mkdir()
        make(folder)
        for _ in range(ROOT_LOOKS_EVERY):
            reader.also([(folder, frozenset())])
            reader.scan()
        if number != 7:
            (folder / "x.record").unlink()
    for _ in range(EMPTY_LOOKS + ROOT_LOOKS_EVERY):
        reader.scan()
    left = {folder.name for folder in reader.folders() if folder.parent == tmp_path}
    assert left == {"run-7"}, "its record is still read"
