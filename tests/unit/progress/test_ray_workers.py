"""Ranks among the processes of Ray's workers."""

import json
from pathlib import Path

import pytest

from ray_sentinel.progress.discovery.ray_workers import (
    SELDOM_SECONDS,
    TRAIN_LOG_SECONDS,
    YOUNG_SECONDS,
    RayRanks,
    RayWorker,
)
from ray_sentinel.progress.proc.processes import SLICES, ProcessTable
from tests.support.proc_tree import ProcTree

RAYLET = 50


class Machine:
    """Workers below one raylet, and what their present environments hold."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tree = ProcTree(root / "proc")
        self.tree.process(RAYLET, 1, "raylet", exe="/x/raylet", command="raylet")
        self.live: dict[int, dict[str, str]] = {}
        self.asked: list[int] = []
        self.ranks = RayRanks(RAYLET, self.tree.root, self.environ_of)
        self.table = ProcessTable(self.tree.root)
        self.now = 1000.0

    def environ_of(self, pid: int) -> dict[str, str] | None:
        self.asked.append(pid)
        return self.live.get(pid)

    def worker(self, pid: int, title: str, *, grouped: bool = False, **live: str) -> None:
        # Setting its title, a process also sets the name of its main thread.
        self.tree.process(pid, RAYLET, title, start=pid * 10, command=title[:15])
        if grouped:
            self.tree.thread(pid, pid + 1000, comm="pt_nccl_watchdg")
        if live:
            self.live[pid] = live

    def train_log(self, pid: int, run: str, rank: int) -> None:
        logs = self.root / "logs"
        (logs / "train").mkdir(parents=True, exist_ok=True)
        worker = f"{pid:032x}"
        folder = self.tree.root / str(pid) / "fd"
        folder.mkdir(exist_ok=True)
        (folder / "2").unlink(missing_ok=True)
        (folder / "2").symlink_to(logs / f"worker-{worker}-01000000-{pid}.err")
        told = {"process": pid, "run_name": run, "world_rank": rank, "local_rank": 0}
        (logs / "train" / f"ray-train-app-worker-{worker}.log").write_text(json.dumps(told) + "\n")

    def look(self, *workers: RayWorker, attached=(), after: float = 1.0) -> list[tuple]:
        self.now += after
        table = self.table.refresh(self.now)
        claims = self.ranks.claims(workers, table, attached, self.now)
        return sorted((claim.job, claim.rank, claim.pid) for claim in claims)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def actor(pid: int, order: int = 0, size: int = 1, group: str = "train-1.Trainer") -> RayWorker:
    return RayWorker(pid=pid, group=group, order=order, size=size)


def test_a_worker_that_train_sets_up(machine):
    """Its title is the name of a task then, and the process group and its variables are there."""
    machine.worker(
        100, "ray::execute._setup_torch_process_group", grouped=True, RANK="0", MASTER_ADDR="a"
    )
    machine.train_log(100, "", -1)
    assert machine.look(actor(100)) == []
    machine.train_log(100, "llama", 0)
    assert machine.look(actor(100)) == [("llama", 0, 100)]


def test_an_actor_that_set_its_rank_itself(machine):
    machine.worker(101, "ray::Trainer.fit", RANK="3", WORLD_SIZE="8", CUDA_VISIBLE_DEVICES="2")
    assert machine.look(actor(101)) == [("train-1.Trainer", 3, 101)]
    (claim,) = machine.ranks.claims([], machine.table.refresh(1001), (), 1001)
    assert (claim.world_size, claim.gpus, claim.source) == (8, ("2",), "ray")


def test_the_jobs_name_is_what_its_ranks_agree_on(machine):
    machine.worker(101, "ray::A", RANK="0", MASTER_ADDR="10.0.0.1", MASTER_PORT="29")
    machine.worker(102, "ray::B", RANK="1", RAY_SENTINEL_JOB="llama")
    assert machine.look(actor(101), actor(102)) == [("10.0.0.1:29", 0, 101), ("llama", 1, 102)]


def test_ray_train_says_run_and_rank_also_where_memory_is_closed(machine):
    machine.worker(101, "ray::RayTrainWorker")
    machine.worker(102, "ray::RayTrainWorker")
    machine.train_log(101, "my-exp", 1)
    machine.train_log(102, "my-exp", 0)
    workers = [actor(pid, order, 2) for order, pid in enumerate((101, 102))]
    assert machine.look(*workers) == [("my-exp", 0, 102), ("my-exp", 1, 101)]


def test_ray_train_is_given_time_to_say_it(machine):
    told = {"RANK": "1", "WORLD_SIZE": "2"}
    machine.worker(101, "ray::RayTrainWorker", **told)
    assert machine.look(actor(101, 0, 2)) == []
    assert machine.look(actor(101, 0, 2), after=10 * TRAIN_LOG_SECONDS) == [], "not yet in a group"
    machine.worker(101, "ray::RayTrainWorker", grouped=True)
    assert machine.look(actor(101, 0, 2), after=SELDOM_SECONDS) == []
    found = machine.look(actor(101, 0, 2), after=TRAIN_LOG_SECONDS)
    assert found == [("train-1.Trainer", 1, 101)]


def test_a_task_counts_only_with_a_process_group(machine):
    machine.worker(101, "ray::train", RANK="0", WORLD_SIZE="2")
    machine.worker(102, "ray::train", grouped=True, RANK="1", WORLD_SIZE="2")
    assert machine.look() == [("", 1, 102)]


def test_numbered_in_rays_order_where_nobody_says_a_rank(machine):
    for pid in (101, 102, 103):
        machine.worker(pid, "ray::Trainer.fit", grouped=pid != 103)
    workers = [actor(pid, order, 3) for order, pid in enumerate((101, 102, 103))]
    assert machine.look(*workers) == [("train-1.Trainer", 0, 101), ("train-1.Trainer", 1, 102)]
    (problem,) = machine.ranks.problems
    assert "train-1.Trainer" in problem
    assert machine.look(actor(103)) == [("train-1.Trainer", 0, 101), ("train-1.Trainer", 1, 102)]
    assert len(machine.ranks.problems) == 1, "said once"


def test_other_workers_are_no_ranks(machine):
    machine.worker(101, "ray::IDLE", grouped=True, RANK="0")
    machine.worker(102, "ray::ReadParquet")
    machine.worker(103, "ray::RuntimeEnvAgent", RANK="1")
    machine.tree.process(104, 1, "ray::Trainer.fit")
    machine.live[104] = {"RANK": "2"}
    assert machine.look(actor(102), actor(104)) == [], "104 is another raylet's"


def test_a_worker_that_is_idle_again_is_a_rank_no_more(machine):
    machine.worker(101, "ray::train", grouped=True, RANK="1", WORLD_SIZE="2")
    assert len(machine.look()) == 1
    machine.worker(101, "ray::IDLE", grouped=True)
    # Settled processes are looked at again in turn.
    assert [machine.look() for _ in range(SLICES)][-1] == []


def test_an_actor_that_started_its_ranks_as_processes(machine):
    machine.worker(101, "ray::Launcher", RANK="0", WORLD_SIZE="2")
    machine.tree.process(201, 101, "python", "t.py", environ={"RANK": "0", "WORLD_SIZE": "2"})
    assert machine.look(actor(101)) == []


def test_found_by_environment_or_attached_already(machine):
    machine.tree.process(101, RAYLET, "ray::A", environ={"RANK": "1", "WORLD_SIZE": "2"})
    machine.live[101] = {"RANK": "1"}
    machine.worker(102, "ray::A", RANK="0")
    assert machine.look(actor(101), actor(102), attached={(102, 1020)}) == []


def test_what_was_found_stays_and_old_workers_are_asked_rarely(machine):
    machine.worker(101, "ray::Trainer.fit", RANK="3")
    machine.worker(102, "ray::Other")
    machine.look(actor(101))
    machine.live[101] = {"RANK": "4"}
    assert machine.look(actor(101)) == [("train-1.Trainer", 3, 101)]
    machine.look(after=YOUNG_SECONDS)
    asked = machine.asked.count(102)
    for _ in range(int(SELDOM_SECONDS) - 1):
        machine.look()
    assert machine.asked.count(102) == asked
    machine.look(after=SELDOM_SECONDS)
    assert machine.asked.count(102) == asked + 1
    assert machine.asked.count(101) == 1


def test_the_thread_that_trains_in_ray_train(machine):
    machine.worker(101, "ray::RayTrainWorker", RANK="0")
    machine.train_log(101, "r", 0)
    machine.tree.thread(101, 102, cpu=2.0)
    machine.look(actor(101))
    process = machine.table.refresh(machine.now)[101]
    assert machine.ranks.training_tid(process, machine.now) == 102
    machine.worker(103, "ray::Plain.fit", RANK="0")
    machine.tree.thread(103, 104, cpu=2.0)
    machine.look(actor(103))
    assert machine.ranks.training_tid(machine.table.refresh(machine.now)[103], machine.now) == 0


def test_what_was_said_of_groups_that_are_gone_is_forgotten(machine):
    for number in range(50):
        group = f"train-{number}.Trainer"
        for first in (200, 300):  # its actors are started again
            for order in (0, 1):
                machine.worker(first + order, "ray::Trainer.fit", grouped=True)
            found = machine.look(actor(first, 0, 2, group), actor(first + 1, 1, 2, group))
            assert found == [(group, 0, first), (group, 1, first + 1)]
            for order in (0, 1):
                machine.tree.remove(first + order)
    assert len(machine.ranks.problems) == 50, "each once"
    machine.worker(200, "ray::Trainer.fit", grouped=True)
    machine.look(actor(200, 0, 2, "train-0.Trainer"))
    assert machine.ranks.problems[50:] == [machine.ranks.problems[0]], "it is another one"


def test_a_train_log_that_hangs_holds_up_nobody(tmp_path: Path, hanging) -> None:
    machine = Machine(tmp_path)
    machine.worker(101, "ray::RayTrainWorker", grouped=True, RANK="1")
    machine.train_log(101, "run", 1)
    hanging("log")
    machine.look()
    for _ in range(int(TRAIN_LOG_SECONDS) + 3):
        found = machine.look()
    assert [(rank, pid) for _, rank, pid in found] == [(1, 101)], "its variables tell"
