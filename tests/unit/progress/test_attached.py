"""Records of living ranks, matched with their processes."""

import os
from pathlib import Path

import pytest

from ray_sentinel.progress import record
from ray_sentinel.progress.attached import UNSTAMPED, Attached
from ray_sentinel.progress.identity import RankIdentity
from ray_sentinel.progress.proc.processes import ProcessTable
from ray_sentinel.progress.rank.writer import ProgressWriter
from ray_sentinel.progress.reader import RecordReader
from tests.support.parts import needs_root
from tests.support.proc_tree import ProcTree


class Setting:
    """One process of a fake machine, with a record in its name."""

    def __init__(self, root: Path) -> None:
        self.tree = ProcTree(root / "proc")
        self.folder = root / "records"
        self.pid, self.start = 100, 1000
        self.process = self.tree.process(self.pid, 1, "python", "train.py", start=self.start)
        self.table = ProcessTable(self.tree.root)
        self.reader = RecordReader([self.folder])
        self.attached = Attached(self.tree.root)

    def record(self, rank: int = 0, **header: int) -> Path:
        writer = ProgressWriter.open(RankIdentity(job="j", rank=rank), [self.folder])
        writer.step(1)
        writer.abandon()
        data = bytearray(writer.path.read_bytes())
        made = record.RecordHeader._make(record.HEADER.unpack_from(data))
        made = made._replace(**{"pid": self.pid, "start": self.start, **header})
        record.HEADER.pack_into(data, 0, *made)
        path = self.folder / f"{rank}.record"
        path.write_bytes(data)
        writer.path.unlink()
        return path

    def update(self, later: float = 0.0) -> dict:
        views = self.reader.scan()
        now = max((view.last_sign for view in views), default=0.0) + later
        return self.attached.update(views, self.table.refresh(0), now)


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path)


def test_a_record_counts_for_its_process(setting):
    setting.record()
    assert set(setting.update()) == {(100, 1000)}


@pytest.mark.parametrize("header", [{"pid": 101}, {"start": 999}, {"boot": 5}])
def test_another_process_or_boot(setting, header):
    setting.record(**header)
    assert setting.update() == {}


def test_another_pid_namespace_is_named_once(setting):
    setting.record(pid_namespace=7)
    assert setting.update() == setting.update() == {}
    assert len(setting.attached.problems) == 1
    assert "PID namespace" in setting.attached.problems[0]


@needs_root()
def test_a_record_of_another_user_than_the_process(setting):
    path = setting.record()
    os.chown(path, 1234, 1234)
    os.chown(path.parent, 1234, 1234)
    assert setting.update() == {}
    assert "belongs to user 1234, its process to user 0" in setting.attached.problems[0]


def test_of_several_records_the_newest_counts(setting):
    setting.record(rank=2)
    setting.record(rank=1)
    (view,) = setting.update().values()
    assert view.identity.rank == 1


def test_after_exec_the_record_is_left(setting):
    setting.record()
    (setting.process / "maps").write_text("7f00-7f01 r-xp 0 0 1 /usr/bin/python3.11\n")
    assert setting.update(1.0)
    assert setting.update(UNSTAMPED) == {}
    assert setting.update(UNSTAMPED + 60) == {}
    assert set(setting.attached.latest) == {(100, 1000)}


def test_a_writer_without_stamps_that_still_maps_its_record_counts(setting):
    path = setting.record()
    (setting.process / "maps").write_text(f"7f00-7f01 rw-s 0 0 1 {path}\n")
    for later in (0.0, 10.0, 100.0):
        assert setting.update(later)


def test_what_is_gone_is_not_remembered(tmp_path):
    setting = Setting(tmp_path)
    for _ in range(2):
        path = setting.record(pid_namespace=1)
        setting.update()
        setting.update()
        assert len(setting.attached.problems) == 1, "said once while it is there"
        setting.attached.problems.clear()
        path.unlink()
        setting.update()
