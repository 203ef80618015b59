"""Processes whose readers hang. A FIFO without a writer stands for the lock that is kept."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ray_sentinel.progress.discovery.live_environ import LiveEnviron
from ray_sentinel.progress.proc.process_memory import SAID_AFTER, ProcessMemory
from ray_sentinel.progress.proc.processes import SETTLE_SECONDS, ProcessTable
from tests.support.proc_tree import ProcTree
from tests.support.waiting import eventually

RANK = {"RANK": "1", "WORLD_SIZE": "2"}
PATIENCE = 2.0
Lock = Callable[[int, str], Path]


@pytest.fixture
def tree(tmp_path: Path) -> ProcTree:
    return ProcTree(tmp_path / "proc")


@pytest.fixture
def lock(tree: ProcTree):
    """Make the readers of a file wait; all are let go at the end."""
    pipes: list[Path] = []

    def make(pid: int, name: str) -> Path:
        path = tree.root / str(pid) / name
        path.unlink(missing_ok=True)
        os.mkfifo(path)
        pipes.append(path)
        return path

    yield make
    for path in pipes:
        give_up(path)


def give_up(path: Path) -> None:
    """Let those go who wait for a writer, and put an ordinary file there."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        return  # nobody waits
    path.unlink()


def test_a_process_that_hangs_holds_up_no_other(tree: ProcTree, lock: Lock) -> None:
    tree.process(100, 1, "python", environ=RANK)
    tree.process(101, 1, "python", "train.py", environ=RANK)
    lock(100, "environ")
    clock = [0.0]
    memory = ProcessMemory(tree.root, patience=PATIENCE, monotonic=lambda: clock[0])
    table = ProcessTable(tree.root, memory)
    found = table.refresh(0)
    assert found[101].environ == RANK
    assert found[101].settled
    assert (found[100].title, found[100].environ) == ("", {})
    assert not found[100].settled, "it is asked again"
    assert memory.problems == [], "a machine may be crowded"
    clock[0] = SAID_AFTER
    table.refresh(5)
    assert memory.problems == [
        "pid 100 hangs in the kernel with its memory locked: who it is cannot be read"
    ]
    table.refresh(6)
    assert len(memory.problems) == 1, "it is said once"


def test_it_is_read_as_soon_as_it_lets_itself_be(tree: ProcTree, lock: Lock) -> None:
    folder = tree.process(100, 1, "python", environ=RANK)
    pipe = lock(100, "cmdline")
    memory = ProcessMemory(tree.root, patience=PATIENCE)
    table = ProcessTable(tree.root, memory)
    table.refresh(0)
    give_up(pipe)
    (folder / "cmdline").write_bytes(b"python\0train.py\0")
    process = eventually(
        lambda: found if (found := table.refresh(1)[100]).settled else None, "its reader is back"
    )
    assert (process.title, process.environ) == ("python train.py", RANK)


def test_a_map_that_hangs_is_asked_for_again(tree: ProcTree, lock: Lock) -> None:
    tree.uptime(50)
    tree.process(100, 1, "app", exe="/opt/app", command="app", environ=RANK, start=4900)
    lock(100, "maps")
    table = ProcessTable(tree.root, ProcessMemory(tree.root, patience=PATIENCE))
    process = table.refresh(SETTLE_SECONDS)[100]
    assert not process.interpreter
    assert not process.settled


def test_a_renamed_process_that_hangs_keeps_what_is_known(tree: ProcTree, lock: Lock) -> None:
    tree.process(100, 1, "python", "train.py", environ=RANK)
    table = ProcessTable(tree.root, ProcessMemory(tree.root, patience=PATIENCE))
    assert table.refresh(0)[100].settled
    tree.process(100, 1, "python", "other.py", environ=RANK, command="renamed")
    lock(100, "cmdline")
    for now in range(1, 6):
        process = table.refresh(now)[100]
    assert (process.title, process.environ) == ("python train.py", RANK)
    assert not process.settled


def test_the_live_environment_of_one_that_hangs(tree: ProcTree, lock: Lock) -> None:
    tree.process(100, 1, "python", environ=RANK)
    lock(100, "maps")
    live = LiveEnviron(tree.root, patience=0.01)
    assert live.read(100) is None
    assert live.read(100) is None, "and it is not asked twice at once"
