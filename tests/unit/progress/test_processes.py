"""The table of processes: reused pids, exec, lineage, masked command lines."""

from pathlib import Path

import pytest

from ray_sentinel.masking import mask_argv
from ray_sentinel.progress.proc.processes import SETTLE_SECONDS, SLICES, ProcessTable
from tests.support.proc_tree import ProcTree

RANK = {"RANK": "1", "WORLD_SIZE": "2"}


@pytest.fixture
def tree(tmp_path: Path) -> ProcTree:
    return ProcTree(tmp_path / "proc")


def test_a_process_as_it_started(tree):
    tree.process(100, 1, "bash", "-c", "x", exe="/usr/bin/bash", command="bash")
    tree.process(101, 100, "python", "train.py", "--lr 1", environ=RANK)
    table = ProcessTable(tree.root).refresh(0)
    process = table[101]
    assert process.key == (101, 1010)
    assert process.interpreter
    assert not table[100].interpreter
    assert process.environ == RANK
    assert process.title == "python train.py --lr 1"
    assert process.lineage == ((100, 1000),)
    assert process.descends_from([(100, 1000)])


def test_a_reused_pid_is_another_process(tree):
    table = ProcessTable(tree.root)
    tree.process(100, 1, "python", environ=RANK)
    table.refresh(0)
    tree.process(100, 1, "sh", exe="/bin/sh", command="sh", start=5000)
    for now in range(SLICES):
        found = table.refresh(now)
    assert found[100].key == (100, 5000)
    assert found[100].environ == {}


def test_a_pid_that_is_used_again_between_two_looks_is_seen_in_the_next(tree):
    table = ProcessTable(tree.root)
    pids = range(100, 100 + SLICES)
    for pid in pids:
        tree.process(pid, 1, "python", environ=RANK)
    assert all(process.settled for process in table.refresh(0).values())
    for pid in pids:
        # Beside the new one, so that its folder has an inode of its own.
        (tree.root / str(pid)).rename(tree.root / f"gone-{pid}")
        tree.process(pid, 1, "sh", exe="/bin/sh", command="sh", start=5000 + pid)
    found = table.refresh(1)
    assert [found[pid].key for pid in pids] == [(pid, 5000 + pid) for pid in pids]
    assert all(found[pid].environ == {} for pid in pids)


def test_exec_of_a_young_process_is_seen(tree):
    table = ProcessTable(tree.root)
    tree.uptime(50)
    tree.process(100, 1, "bash", "run.sh", exe="/bin/bash", command="bash", start=4900)
    table.refresh(0)
    tree.process(100, 1, "python", "train.py", environ=RANK, start=4900)
    process = table.refresh(1)[100]
    assert process.interpreter
    assert process.environ == RANK


def test_a_late_title_is_seen_and_does_not_lose_the_variables(tree):
    table = ProcessTable(tree.root)
    tree.process(100, 1, "python", "-c", "x", environ=RANK)
    table.refresh(0)
    tree.process(100, 1, "sglang::scheduler_TP0", command="sglang::schedul")
    for now in range(SLICES):
        found = table.refresh(now)
    assert found[100].title == "sglang::scheduler_TP0"
    assert found[100].environ == RANK


def test_a_command_line_is_masked_once_and_again_when_it_changes(tree, monkeypatch):
    masked = []

    def counted(arguments):
        masked.append(arguments)
        return mask_argv(arguments)

    monkeypatch.setattr("ray_sentinel.progress.proc.processes.mask_argv", counted)
    table = ProcessTable(tree.root)
    tree.uptime(50)
    tree.process(100, 1, "train", "--api-key", "8f14e45fceea167a", start=4900)
    shown = {table.refresh(now)[100].shown for now in range(3)}
    assert shown == {"train --api-key ***"}
    assert len(masked) == 1
    tree.process(100, 1, "evaluate", "--api-key", "8f14e45fceea167a", start=4900)
    assert table.refresh(3)[100].shown == "evaluate --api-key ***"


def test_lineage_outlives_the_parent(tree):
    table = ProcessTable(tree.root)
    tree.process(100, 1, "python", environ=RANK)
    tree.process(101, 100, "python", environ=RANK)
    table.refresh(0)
    tree.remove(100)
    tree.process(101, 1, "python", environ=RANK)
    assert table.refresh(1)[101].lineage == ((100, 1000),)


def test_lineage_of_a_process_whose_ancestors_have_higher_pids(tree):
    tree.process(900, 1, "raylet", exe="/x/raylet", command="raylet")
    tree.process(800, 900, "python", "worker.py")
    tree.process(300, 800, "torchrun")
    tree.process(100, 300, "python", "train.py", environ=RANK)
    table = ProcessTable(tree.root).refresh(0)
    assert [pid for pid, _ in table[100].lineage] == [300, 800, 900]


def test_settled_processes_are_left_in_peace(tree):
    table = ProcessTable(tree.root)
    tree.process(100, 1, "python", environ=RANK)
    process = table.refresh(0)[100]
    assert process.settled


def test_without_uptime_a_process_settles_in_time(tree):
    (tree.root / "uptime").unlink()
    table = ProcessTable(tree.root)
    tree.process(100, 1, "python", environ=RANK)
    assert not table.refresh(0)[100].settled
    assert table.refresh(SETTLE_SECONDS)[100].settled


def test_python_inside_another_program(tree):
    tree.uptime(50)
    folder = tree.process(100, 1, "app", exe="/opt/app", command="app", environ=RANK, start=4900)
    (folder / "maps").write_text("7f00-7f01 r-xp 0 0 1 /usr/lib/libpython3.11.so.1.0\n")
    table = ProcessTable(tree.root)
    assert not table.refresh(0)[100].interpreter
    assert table.refresh(SETTLE_SECONDS)[100].interpreter


def test_broken_files_are_passed_over(tree):
    tree.process(100, 1, "python", environ=RANK)
    broken = tree.process(101, 1, "python", environ=RANK)
    (broken / "stat").write_bytes(b"rubbish")
    (tree.root / "102").mkdir()
    assert set(ProcessTable(tree.root).refresh(0)) == {100}


def test_a_young_process_that_is_dying_stays_what_it_was(tree):
    table = ProcessTable(tree.root)
    tree.uptime(1001)
    tree.process(100, 1, "python", "train.py", environ=RANK, start=100_000)
    table.refresh(0)
    folder = tree.root / "100"
    for name in ("cmdline", "environ"):
        (folder / name).write_bytes(b"")
    (folder / "exe").unlink()
    process = table.refresh(0.5)[100]
    assert not process.settled
    assert process.interpreter
    assert (process.title, process.environ) == ("python train.py", RANK)
