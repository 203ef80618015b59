"""Which of the threads of a Ray worker is the one that trains."""

from __future__ import annotations

from ray_sentinel.progress.discovery.ray_workers import (
    TrainingThread,
    in_process_group,
    thread_names,
)
from tests.support.proc_tree import ProcTree

NAME = "ray::RayTrainWo"


def test_the_thread_that_trains_is_the_busiest_of_pythons_own(tmp_path):
    tree = ProcTree(tmp_path / "proc")
    tree.process(100, 1, "ray::RayTrainWorker", cpu=20.0)
    for tid, comm, cpu in (
        (100, NAME, 20.0),
        (101, NAME, 0.1),
        (102, NAME, 3.0),
        (103, "pt_gloo_runloop", 9.0),
    ):
        tree.thread(100, tid, comm=comm, cpu=cpu)
    names = thread_names(100, tree.root)
    assert names == {100: NAME, 101: NAME, 102: NAME, 103: "pt_gloo_runloop"}
    assert TrainingThread().find(100, names, tree.root) == 102
    assert in_process_group(names)


def test_while_training_hangs_no_thread_that_polls_takes_its_place(tmp_path):
    tree = ProcTree(tmp_path / "proc")
    tree.process(100, 1, "ray::RayTrainWorker", cpu=20.0)
    tree.thread(100, 100, comm=NAME, cpu=20.0)
    tree.thread(100, 102, comm=NAME, cpu=0.003)
    thread, found = TrainingThread(), []
    for look in range(100):
        tree.thread(100, 101, comm=NAME, cpu=0.001 + 0.0002 * look)
        found.append(thread.find(100, thread_names(100, tree.root), tree.root))
    assert set(found) == {102}
    tree.thread(100, 103, comm=NAME, cpu=0.5)
    assert thread.find(100, thread_names(100, tree.root), tree.root) == 103


def test_without_such_threads(tmp_path):
    tree = ProcTree(tmp_path / "proc")
    tree.process(100, 1, "ray::Plain")
    tree.thread(100, 101, comm="worker.io")
    names = thread_names(100, tree.root)
    assert TrainingThread().find(100, names, tree.root) == 0
    assert not in_process_group(names)
    assert thread_names(999, tree.root) == {}
