"""Records that dead ranks left: reported once, kept for a while, then deleted."""

from pathlib import Path

import pytest

from ray_sentinel.progress.identity import RankIdentity
from ray_sentinel.progress.rank.writer import ProgressWriter
from ray_sentinel.progress.reader import RecordReader
from ray_sentinel.progress.stale import FRESH, LITTER, RETAIN, StaleRecords


@pytest.fixture
def litter(tmp_path: Path):
    def make(count: int = 1) -> Path:
        for n in range(count):
            writer = ProgressWriter.open(RankIdentity(job="j", rank=n), [tmp_path])
            writer.abandon()
        return tmp_path

    return make


def test_told_once_kept_a_while_then_deleted(litter):
    folder = litter()
    reader = RecordReader([folder])
    stale = StaleRecords(reader)
    (view,) = dead = reader.scan()
    now = view.last_sign + 1
    assert stale.unreported(dead, (), now) == [view]
    assert stale.unreported(dead, (), now + 1) == []
    stale.clean(dead, (), now + RETAIN - 1)
    assert len(list(folder.iterdir())) == 1
    stale.clean(dead, (), now + RETAIN)
    assert list(folder.iterdir()) == []


def test_one_that_is_watched_is_not_touched(litter):
    folder = litter()
    reader = RecordReader([folder])
    stale = StaleRecords(reader)
    (view,) = dead = reader.scan()
    assert stale.unreported(dead, {view.key}, view.last_sign) == []
    stale.clean(dead, {view.key}, view.last_sign + 10 * LITTER)
    assert len(list(folder.iterdir())) == 1


def test_an_old_one_is_not_told_of_but_deleted(litter):
    folder = litter()
    reader = RecordReader([folder])
    stale = StaleRecords(reader)
    (view,) = dead = reader.scan()
    assert stale.unreported(dead, (), view.last_sign + FRESH + 1) == []
    stale.clean(dead, (), view.last_sign + LITTER + 1)
    assert list(folder.iterdir()) == []


def test_a_bounded_number_at_once(litter, monkeypatch):
    monkeypatch.setattr("ray_sentinel.progress.stale.AT_ONCE", 3)
    folder = litter(5)
    reader = RecordReader([folder])
    stale = StaleRecords(reader)
    dead = reader.scan()
    assert len(dead) == 5
    later = max(view.last_sign for view in dead) + LITTER + 1
    stale.clean(dead, (), later)
    assert len(list(folder.iterdir())) == 2


def test_what_cannot_be_deleted_is_said_once(litter, monkeypatch):
    folder = litter()
    reader = RecordReader([folder])
    stale = StaleRecords(reader)
    (view,) = dead = reader.scan()

    def refuse(_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(reader, "remove", refuse)
    for _ in range(3):
        stale.clean(dead, (), view.last_sign + LITTER + 1)
    assert len(stale.problems) == 1
    assert str(view.path) in stale.problems[0]


def test_who_cannot_tell_one_boot_from_another_deletes_nothing_fresh(litter, tmp_path_factory):
    folder = litter()
    reader = RecordReader([folder], proc=tmp_path_factory.mktemp("proc-without-boot-id"))
    stale = StaleRecords(reader)
    (view,) = dead = reader.scan()
    assert view.this_boot
    stale.clean(dead, (), view.last_sign + 1)
    assert len(list(folder.iterdir())) == 1
