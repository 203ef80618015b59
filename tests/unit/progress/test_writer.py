"""What a rank writes into its record, and what happens where it cannot."""

import errno
import logging
import math
import os
from pathlib import Path

import pytest

from ray_sentinel.progress import directory, record
from ray_sentinel.progress.directory import RecordError
from ray_sentinel.progress.identity import RankIdentity
from ray_sentinel.progress.rank.writer import ProgressWriter
from ray_sentinel.progress.reader import RecordReader
from ray_sentinel.progress.record_view import RecordView

WHO = RankIdentity(job="job", rank=3, world_size=8, local_rank=1, source="torchrun")


@pytest.fixture
def writer(tmp_path: Path) -> ProgressWriter:
    writer = ProgressWriter.open(WHO, [tmp_path])
    assert writer.attached
    return writer


def read(writer: ProgressWriter) -> RecordView:
    assert writer.path is not None
    reader = RecordReader([writer.path.parent])
    (view,) = reader.scan()
    assert reader.problems == []
    reader.close()
    return view


def test_a_new_record_says_who_and_nothing_else(writer):
    view = read(writer)
    assert view.identity == WHO
    assert view.key[0] == os.getpid()
    assert view.progress.step is None
    assert view.progress.step_seconds is None
    assert view.progress.recent_step_seconds == ()
    assert view.progress.phase == ""
    assert view.progress.attached_at is not None
    assert view.this_boot
    assert view.this_namespace


def test_steps_are_counted_and_timed(writer):
    for n in range(10, 15):
        writer.step(n)
    progress = read(writer).progress
    assert progress.step == 14
    assert progress.steps_recorded == 5
    # The first one has no beginning that anybody knows.
    assert len(progress.recent_step_seconds) == 4
    assert progress.step_seconds == progress.recent_step_seconds[-1]
    assert progress.phase == "train"
    assert read(writer).stepping_tid > 0


def test_steps_without_a_number_count_from_one(writer):
    writer.step()
    assert read(writer).progress.step == 1
    writer.step()
    assert read(writer).progress.step == 2
    writer.step(40)
    writer.step()
    assert read(writer).progress.step == 41


def test_a_step_number_may_stand_still_or_fall(writer):
    for n in (5, 5, 2):
        writer.step(n)
    progress = read(writer).progress
    assert (progress.step, progress.steps_recorded) == (2, 3)


def test_scalars_keep_their_last_value(writer):
    writer.step(1, loss=0.5, lr=1e-3)
    writer.step(2, loss=math.nan)
    scalars = read(writer).progress.scalars
    assert math.isnan(scalars["loss"])
    assert scalars["lr"] == 1e-3


def test_only_so_many_scalars(writer, caplog):
    writer.step(1, **{f"s{n}": n for n in range(20)})
    writer.step(2, **{f"s{n}": n for n in range(20)})
    assert len(read(writer).progress.scalars) == record.MAX_SCALARS
    assert len(caplog.records) == 1
    assert "only 16 scalars" in caplog.text


class Bad:
    def __float__(self) -> float:
        raise RuntimeError("device gone")


def test_a_bad_scalar_is_named_once_and_the_others_are_kept(writer, caplog):
    for n in range(3):
        writer.step(n, bad=Bad(), good=n)
    assert read(writer).progress.scalars == {"good": 2.0}
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("value", "step"), [(3.0, 3), ("7", 7), (1 << 70, 1), (object(), 1), (math.inf, 1)]
)
def test_odd_step_numbers_never_raise(writer, caplog, value, step):
    writer.step(value)
    assert read(writer).progress.step == step
    assert read(writer).progress.steps_recorded == 1
    assert "is not an integer" in caplog.text


def test_strict_raises(tmp_path):
    writer = ProgressWriter.open(WHO, [tmp_path], strict=True)
    with pytest.raises(Exception, match="argument"):
        writer.step("x")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        writer.step(1, loss=object())  # type: ignore[arg-type]


def test_phases_nest_and_the_innermost_shows(writer):
    with writer.phase("startup"):
        with writer.phase("load"):
            assert read(writer).progress.phase == "load"
        assert read(writer).progress.phase == "startup"
    assert read(writer).progress.phase == ""
    writer.step(1)
    with writer.phase("checkpoint"):
        view = read(writer)
        assert view.progress.phase == "checkpoint"
        assert view.progress.phase_since is not None
    assert read(writer).progress.phase == "train"


def test_a_phase_ends_when_its_body_raises(writer):
    with pytest.raises(KeyError), writer.phase("load"):
        raise KeyError
    assert read(writer).progress.phase == ""


def test_phases_may_end_out_of_order_and_twice(writer):
    outer = writer.begin_phase("outer")
    inner = writer.begin_phase("inner")
    writer.end_phase(outer)
    assert read(writer).progress.phase == "inner"
    writer.end_phase(outer)
    writer.end_phase(inner)
    assert read(writer).progress.phase == ""


@pytest.mark.parametrize("around", ["", "train"])
def test_a_declared_phase_does_not_lengthen_the_step(writer, monkeypatch, around):
    clock = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    outer = writer.begin_phase(around) if around else None
    writer.step(1)
    clock[0] += 0.4
    with writer.phase("checkpoint"):
        clock[0] += 40
        with writer.phase("upload"):
            clock[0] += 5
    clock[0] += 0.6
    writer.step(2)
    assert read(writer).progress.step_seconds == pytest.approx(1.0)
    if outer is not None:
        writer.end_phase(outer)


def test_steps_inside_a_declared_phase_are_timed_there(writer, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    writer.step(1)
    with writer.phase("evaluate"):
        clock[0] += 3
        writer.step(2)
        clock[0] += 2
    clock[0] += 1
    writer.step(3)
    assert read(writer).progress.step_seconds == pytest.approx(1.0)


def test_last_words(writer):
    writer.last_words("exception", "ValueError: " + "x" * 5000)
    writer.last_words("exit")
    words = read(writer).progress.last_words
    assert words is not None
    assert words.kind == "exception"
    assert words.text.startswith("ValueError: xx")


def test_long_names_and_odd_letters(writer):
    with writer.phase("ü" * 500):
        assert read(writer).progress.phase.startswith("üü")
    writer.step(1, **{"ä" * 200: 1.0})
    (name,) = read(writer).progress.scalars
    assert name.startswith("ää")
    writer.last_words("exception", "\udcff" * 3000)
    assert read(writer).progress.last_words is not None


def test_closed_the_writer_writes_nowhere(writer):
    writer.step(1)
    path = writer.path
    writer.close()
    assert not writer.attached
    before = path.read_bytes()
    writer.step(2, loss=1.0)
    with writer.phase("load"):
        pass
    writer.close()
    assert path.read_bytes() == before
    assert read(writer).detached


def test_identity_may_become_known_later(writer):
    writer.identify(RankIdentity(job="job", rank=5, source="torch"))
    assert read(writer).identity.rank == 5


def test_the_file_is_private_whole_and_allocated(writer):
    status = writer.path.stat()
    assert status.st_mode & 0o777 == 0o600
    assert status.st_size == record.SIZE
    assert status.st_blocks * 512 >= record.SIZE
    assert list(writer.path.parent.iterdir()) == [writer.path]


def test_a_folder_is_made_private(tmp_path):
    writer = ProgressWriter.open(WHO, [tmp_path / "new"])
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    writer.close()


def test_the_next_folder_is_taken_and_said(tmp_path, caplog):
    file = tmp_path / "file"
    file.write_text("")
    writer = ProgressWriter.open(WHO, [file, tmp_path / "gone" / "x", tmp_path / "ok"])
    assert writer.path.parent == tmp_path / "ok"
    assert len(writer.problems) == 2
    assert str(file) in caplog.text


def test_a_full_folder_is_named(tmp_path, monkeypatch, caplog):
    def full(handle: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    writer = ProgressWriter.open(WHO, [tmp_path])
    assert not writer.attached
    assert "full" in caplog.text
    assert "RAY_SENTINEL_RECORD_DIR" in caplog.text
    assert list(tmp_path.iterdir()) == []
    writer.step(1, loss=2.0)
    with pytest.raises(RecordError, match="full"):
        ProgressWriter.open(WHO, [tmp_path], strict=True)


def test_links_and_open_folders_are_refused(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    writer = ProgressWriter.open(WHO, [tmp_path / "link", open_to_all])
    assert not writer.attached
    assert list((tmp_path / "real").iterdir()) == []


def test_folders_that_are_tried(tmp_path):
    assert list(directory.candidates({"RAY_SENTINEL_RECORD_DIR": "/x"})) == [Path("/x")]
    first, second = directory.candidates({}, uid=42)
    assert str(first) == "/dev/shm/ray_sentinel-42"
    assert second.name == "ray_sentinel-42"


def test_nothing_is_logged_for_a_usual_life(writer, caplog):
    caplog.set_level(logging.DEBUG)
    writer.step(1, loss=1.0)
    writer.close()
    assert caplog.records == []
