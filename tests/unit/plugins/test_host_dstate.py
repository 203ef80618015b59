"""The host collector's processes in D state."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from ray_sentinel.api import Context
from ray_sentinel.model.identity import ProcessId, Rank, RankId
from ray_sentinel_plugins._files import Files
from ray_sentinel_plugins._host import dstate
from ray_sentinel_plugins.host import HostCollector
from tests.support.files import write

LOG = logging.getLogger("test")


def process(proc: Path, pid: int, state: str, wchan: str = "0", name: str = "python") -> Path:
    folder = proc / str(pid)
    write(folder / "stat", f"{pid} ({name}) {state} 1 {pid} {pid} 0 -1 4194304\n")
    write(folder / "wchan", wchan)
    return folder


def rank(pid: int) -> Rank:
    return Rank(id=RankId("j", 0, 0), process=ProcessId("h", pid), node="n")


def test_dstate_by_function(tmp_path: Path) -> None:
    process(tmp_path, 1, "S")
    process(tmp_path, 2, "D", "nfs_wait_bit_killable")
    process(tmp_path, 3, "D", "nfs_wait_bit_killable", name="a) R (b")
    write(process(tmp_path, 4, "D") / "stack", "[<0>] amdgpu_cper_ring_write+0x1/0x2 [amdgpu]\n")
    process(tmp_path, 5, "D")
    (tmp_path / "6").mkdir()
    (tmp_path / "net").mkdir()
    found = {s.labels[0][1]: s.value for s in dstate.read(Files(LOG), tmp_path, ())}
    assert found == {"nfs_wait_bit_killable": 2, "amdgpu_cper_ring_write": 1, "unknown": 1}


def test_threads_of_ranks_are_looked_at(tmp_path: Path) -> None:
    for pid in (10, 11):
        folder = process(tmp_path, pid, "S")
        process(folder / "task", pid, "S")
        process(folder / "task", pid + 100, "D", "io_schedule")
    found = [(s.labels[0][1], s.value) for s in dstate.read(Files(LOG), tmp_path, {11})]
    assert found == [("io_schedule", 1)]


def test_functions_are_bounded(tmp_path: Path) -> None:
    for pid in range(1, 200):
        process(tmp_path, pid, "D", f"function_{pid}")
    assert len(list(dstate.read(Files(LOG), tmp_path, ()))) == dstate.MAX_FUNCTIONS


def test_ranks_come_from_the_context(tmp_path: Path, context: Callable[..., Context]) -> None:
    process(tmp_path / "proc", 7, "D", "io_schedule")
    found = HostCollector(context(tmp_path, ranks=(rank(7),))).collect()
    assert [sample.value for sample in found] == [1]
