"""All ranks of a node as its agent reports them."""

import contextlib
import os
from pathlib import Path

import pytest

from ray_sentinel.model.identity import Node
from ray_sentinel.progress.discovery.non_ranks import LOOKS
from ray_sentinel.progress.discovery.ray_workers import RayWorker
from ray_sentinel.progress.identity import RankIdentity
from ray_sentinel.progress.proc.process_state import StateReader
from ray_sentinel.progress.rank.writer import ProgressWriter
from ray_sentinel.progress.watch import NodeWatch
from tests.support.proc_tree import ProcTree


class Hands:
    """Two clocks that only move when told to."""

    def __init__(self) -> None:
        self.steady = 100.0

    def monotonic(self) -> float:
        return self.steady

    def now(self) -> float:
        return 1_700_000_000.0 + self.steady


class Machine:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.tree = ProcTree(root / "proc")
        self.hands = Hands()

    def watch(self, raylet: int | None = None, job: str = "") -> NodeWatch:
        return NodeWatch(
            Node(id="n", host="h", address="10.0.0.1"),
            own_raylet=raylet,
            job=job,
            proc=self.tree.root,
            folders=[self.root / "records"],
            monotonic=self.hands.monotonic,
            now=self.hands.now,
        )

    def rank(self, pid: int, rank: int, parent: int = 1, **environ: str) -> None:
        self.tree.process(
            pid,
            parent,
            "python",
            "train.py",
            environ={"RANK": str(rank), "WORLD_SIZE": "8", "LOCAL_RANK": "0", **environ},
        )

    def raylet(self, pid: int) -> None:
        self.tree.process(pid, 1, "raylet", exe="/x/raylet", command="raylet")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def seen(watch: NodeWatch) -> list[tuple[int, int]]:
    ranks, _ = watch.poll()
    return [(item.rank.id.rank, item.rank.process.pid) for item in ranks]


def test_a_rank_as_the_node_shows_it(machine):
    machine.rank(101, 3, CUDA_VISIBLE_DEVICES="1")
    (item,), exits = machine.watch(job="mine").poll()
    assert exits == ()
    rank = item.rank
    assert (rank.id.job, rank.id.attempt, rank.id.rank) == ("mine", 0, 3)
    assert (rank.process.host, rank.process.pid, rank.process.start) == ("h", 101, 1010)
    assert (rank.node, rank.address, rank.world_size, rank.gpus) == ("n", "10.0.0.1", 8, ("1",))
    assert (rank.source, rank.command) == ("environ", "python train.py")
    assert item.progress is None


def test_quiet_seconds_grow_while_nothing_moves(machine):
    machine.rank(101, 0)
    watch = machine.watch()
    watch.poll()
    machine.hands.steady += 4
    (item,), _ = watch.poll()
    assert item.quiet_seconds == 4


def test_exits_without_pidfds_are_told_once(machine):
    machine.rank(101, 0)
    machine.rank(102, 1)
    watch = machine.watch()
    watch.poll()
    machine.tree.remove(102)
    machine.hands.steady += 1
    ranks, first = watch.poll()
    _, second = watch.poll()
    (exit,) = (*first, *second)
    assert [item.rank.id.rank for item in ranks] == [0]
    assert (exit.rank.id.rank, exit.order, exit.code, exit.signal) == (1, 1, None, None)
    assert exit.at == machine.hands.now()
    assert not exit.was_attached
    assert watch.poll()[1] == ()


def test_a_zombie_has_ended_and_tells_its_status(machine):
    machine.rank(101, 0)
    watch = machine.watch()
    watch.poll()
    machine.tree.process(101, 1, state="Z", wait_status=9, environ={"RANK": "0"})
    (item,), _ = watch.poll()
    assert item.process.state == "Z"
    ranks, (exit,) = watch.poll()
    assert ranks == ()
    assert (exit.code, exit.signal) == (None, 9)
    assert watch.poll() == ((), ())


def test_a_pid_that_is_used_again_is_an_exit_and_a_new_rank(machine):
    machine.rank(101, 0)
    watch = machine.watch()
    watch.poll()
    machine.tree.process(101, 1, "python", "b.py", start=7777, environ={"RANK": "5"})
    ended = []
    for _ in range(6):
        ranks, exits = watch.poll()
        ended += exits
    assert [(item.rank.id.rank, item.rank.process.start) for item in ranks] == [(5, 7777)]
    assert [(exit.rank.id.rank, exit.rank.process.start) for exit in ended] == [(0, 1010)]


def test_each_raylets_ranks_are_its_own_agents(machine):
    machine.raylet(50)
    machine.raylet(60)
    machine.rank(101, 0, parent=50)
    machine.rank(102, 1, parent=60)
    machine.rank(103, 2)
    first, second = machine.watch(50), machine.watch(60)
    for watch in (first, second):
        watch.set_peers({50, 60})
    assert seen(first) == [(0, 101), (2, 103)]
    assert seen(second) == [(1, 102)]


def test_a_raylet_without_an_agent_keeps_its_processes_and_takes_no_others(machine):
    machine.raylet(40)
    machine.raylet(50)
    machine.rank(101, 0, parent=40)
    machine.rank(102, 1)
    watch = machine.watch(50)
    watch.set_peers({50}, {40})
    assert seen(watch) == [(1, 102)]


def test_what_ray_knows(machine):
    machine.tree.process(101, 1, "ray::Trainer.fit")
    machine.tree.thread(101, 105, comm="pt_gloo_runloop")
    watch = machine.watch()
    assert seen(watch) == []
    watch.set_ray_workers([RayWorker(pid=101, group="train-1.Trainer", order=6, size=8)])
    ((item,), _) = watch.poll()
    assert (item.rank.id.rank, item.rank.source, item.rank.world_size) == (6, "ray", 8)
    assert item.rank.id.job == "train-1.Trainer"
    (problem,) = watch.problems
    assert "train-1.Trainer" in problem


def test_children_of_a_rank(machine):
    machine.rank(101, 0)
    machine.rank(102, 0, parent=101)
    machine.tree.process(103, 102, "ffmpeg", exe="/usr/bin/ffmpeg", command="ffmpeg")
    watch = machine.watch()
    assert seen(watch) == [(0, 101)]
    assert [child.pid for child in watch.children(101, 1010)] == [102, 103]
    assert watch.children(999, 1) == ()


def test_a_folder_that_a_rank_was_told_to_use_is_looked_into(machine, tmp_path, monkeypatch):
    # The folders of this machine's own ranks are none of this test's business.
    monkeypatch.setenv("RAY_SENTINEL_RECORD_DIR", str(tmp_path / "usual"))
    monkeypatch.setattr("ray_sentinel.progress.reader.SHARED_MEMORY", tmp_path / "shm")
    machine.rank(101, 0, RAY_SENTINEL_RECORD_DIR=str(tmp_path / "elsewhere"))
    watch = NodeWatch(Node(id="n", host="h", address=""), proc=machine.tree.root)
    watch.poll()
    assert not any(folder.is_relative_to("/dev/shm") for folder in watch.records.folders())
    assert tmp_path / "elsewhere" in watch.records.folders()


def test_without_proc_it_says_so(tmp_path):
    watch = NodeWatch(Node(id="n", host="h", address=""), proc=tmp_path / "none")
    with pytest.raises(OSError, match="none"):
        watch.poll()


def test_an_exit_outlives_a_look_that_fails(machine, monkeypatch):
    machine.rank(101, 0)
    machine.rank(102, 1)
    watch = machine.watch()
    watch.poll()
    machine.tree.remove(102)
    watch.poll()

    def broken(*args, **kwargs):
        raise ValueError("what the kernel never wrote before")

    with monkeypatch.context() as patch:
        patch.setattr(StateReader, "read", broken)
        with pytest.raises(ValueError, match="never wrote"):
            watch.poll()
    _, exits = watch.poll()
    assert [exit.rank.id.rank for exit in exits] == [1]


def open_below(folder: Path) -> set[str]:
    """The files there that this process has open, by whichever descriptor."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.add(os.readlink(entry))
    return {file for file in found if file.startswith(f"{folder}/")}


def test_records_that_a_living_process_has_let_go_of_are_not_held_open(tmp_path):
    def attached(job: str) -> ProgressWriter:
        return ProgressWriter.open(RankIdentity(job=job, rank=0), [tmp_path])

    watch = NodeWatch(Node(id="n", host="h", address="10.0.0.1"), folders=[tmp_path])
    for number in range(20):
        writer = attached(f"trial-{number}")
        writer.step(number)
        (item,) = (one for one in watch.poll()[0] if one.rank.process.pid == os.getpid())
        assert item.rank.id.job == f"trial-{number}"
        writer.close()
    writer = attached("trial-0")
    (item,) = (one for one in watch.poll()[0] if one.rank.process.pid == os.getpid())
    assert item.rank.id.job == "trial-0", "the same name again is another record"
    assert open_below(tmp_path) == {str(writer.path)}
    writer.close()
    watch.close()


def test_a_rank_that_dies_young_is_told_though_its_memory_goes_first(machine):
    machine.tree.uptime(1.02)
    machine.rank(101, 0)
    watch = machine.watch()
    watch.poll()
    for name in ("cmdline", "environ"):
        (machine.tree.root / "101" / name).write_bytes(b"")
    (machine.tree.root / "101" / "exe").unlink()
    watch.poll()
    machine.tree.remove(101)
    exits = [exit for _ in range(2) for exit in watch.poll()[1]]
    assert [exit.rank.id.rank for exit in exits] == [0]


TORCH = b"7f00-7f01 r-xp 0 08:01 5 /opt/torch/lib/libtorch_cpu.so\n"


def test_a_side_car_with_the_rank_s_variables_is_no_rank(machine):
    machine.rank(101, 0)
    machine.rank(102, 0)
    (machine.tree.root / "102" / "maps").write_bytes(TORCH)
    watch = machine.watch()
    assert seen(watch) == [(0, 102)]
    assert watch.problems == ()
    machine.tree.remove(102)
    assert seen(watch) == []
    # The one that takes its place loads its libraries only later.
    machine.rank(103, 0)
    assert seen(watch) == [(0, 103)]
    (machine.tree.root / "101" / "maps").write_bytes(TORCH)
    assert (0, 101) in seen(watch)


def test_a_rank_that_is_there_twice_is_said_once(machine):
    machine.rank(101, 0)
    machine.rank(102, 0)
    watch = machine.watch()
    for _ in range(LOOKS - 1):
        assert seen(watch) == [(0, 101), (0, 102)]
    assert watch.problems == ()
    seen(watch)
    (problem,) = watch.problems
    assert "rank 0 is there twice (pids 101 and 102): call attach(" in problem
    seen(watch)
    assert watch.problems == ()


def of_user(machine: Machine, pid: int, user: int) -> None:
    users = "\t".join([str(user)] * 4)
    (machine.tree.root / str(pid) / "status").write_text(f"Uid:\t{users}\nGid:\t{users}\n")


def test_what_another_user_runs_is_a_rank_below_a_raylet_of_our_cluster_only(machine, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for raylet in (10, 20, 30):
        machine.raylet(raylet)
    for pid, rank, parent, user in ((11, 0, 10, 4321), (31, 1, 30, 4321), (40, 2, 1, 4321)):
        machine.rank(pid, rank, parent)
        of_user(machine, pid, user)
    for pid, rank, users in ((50, 3, 1000), (51, 4, 0)):
        machine.rank(pid, rank)
        of_user(machine, pid, users)
    watch = machine.watch(raylet=10)
    watch.set_peers([10, 20], strangers=[30])
    assert seen(watch) == [(0, 11), (3, 50), (4, 51)]
