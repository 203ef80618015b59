"""Ranks that are found by the environment of their processes."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from ray_sentinel.progress.discovery.ranks import Claim, DiscoveredRank, Discovery
from ray_sentinel.progress.proc.processes import SLICES, ProcessTable
from tests.support.proc_tree import ProcTree

BASH = {"exe": "/usr/bin/bash", "command": "bash"}


def torchrun(rank: int, world: int = 4, port: int = 29500, **more: str) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_RANK": str(rank),
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": str(port),
        **more,
    }


class Machine:
    """A fake machine and what is found on it, look after look."""

    def __init__(self, root: Path) -> None:
        self.tree = ProcTree(root)
        self.table = ProcessTable(root)
        self.discovery = Discovery()

    def look(self, *claims: Claim) -> tuple[DiscoveredRank, ...]:
        for _ in range(SLICES):
            table: Mapping = self.table.refresh(0)
        return self.discovery.discover(table, claims)

    def ranks(self, *claims: Claim) -> list[tuple[int, int]]:
        return [(item.rank, item.process.pid) for item in self.look(*claims)]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "proc")


def test_nothing(machine):
    machine.tree.process(100, 1, "python", "app.py")
    assert machine.look() == ()


def test_torchrun(machine):
    tree = machine.tree
    tree.process(100, 1, "/usr/bin/python3", "/usr/local/bin/torchrun", "train.py")
    for rank in range(2):
        tree.process(101 + rank, 100, "python", "-u", "train.py", environ=torchrun(rank))
    found = machine.look()
    assert [(item.rank, item.process.pid) for item in found] == [(0, 101), (1, 102)]
    assert found[1].job == "10.0.0.1:29500"
    assert (found[1].world_size, found[1].local_rank, found[1].source) == (4, 1, "environ")


def test_children_are_not_ranks_also_when_their_rank_is_dead(machine):
    tree = machine.tree
    tree.process(101, 1, "python", "train.py", environ=torchrun(0))
    tree.process(110, 101, "python", "train.py", environ=torchrun(0))
    tree.process(111, 110, "python", "-m", "compile_worker", environ=torchrun(0))
    assert machine.ranks() == [(0, 101)]
    tree.remove(101)
    tree.process(110, 1, "python", "train.py", environ=torchrun(0))
    assert machine.ranks() == []


def test_shells_with_the_variables_are_not_ranks(machine):
    tree = machine.tree
    tree.process(100, 1, "bash", "run.sh", environ=torchrun(0), **BASH)
    assert machine.ranks() == []
    tree.process(101, 100, "python", "train.py", environ=torchrun(0))
    assert machine.ranks() == [(0, 101)]


def test_two_jobs(machine):
    machine.tree.process(101, 1, "python", "a.py", environ=torchrun(0))
    machine.tree.process(201, 1, "python", "b.py", environ=torchrun(0, port=29600))
    assert [(item.job, item.rank) for item in machine.look()] == [
        ("10.0.0.1:29500", 0),
        ("10.0.0.1:29600", 0),
    ]


def test_the_same_rank_twice_is_shown_twice(machine):
    machine.tree.process(101, 1, "python", "a.py", environ=torchrun(0))
    machine.tree.process(201, 1, "python", "a.py", environ=torchrun(0))
    assert machine.ranks() == [(0, 101), (0, 201)]


def test_attempts(machine):
    environ = torchrun(0, TORCHELASTIC_RESTART_COUNT="2", TORCHELASTIC_RUN_ID="run")
    machine.tree.process(101, 1, "python", "a.py", environ=environ)
    (item,) = machine.look()
    assert (item.job, item.attempt) == ("run", 2)


@pytest.mark.parametrize(
    "arguments",
    [
        ("python", "/opt/bin/torchrun", "--nnodes=2", "train.py"),
        ("python", "-m", "torch.distributed.run", "train.py"),
        ("python", "-u", "-X", "dev", "-m", "torch.distributed.launch", "train.py"),
        ("python", "/opt/bin/accelerate", "launch", "train.py"),
        ("python", "-m", "accelerate.commands.launch", "train.py"),
        ("python", "/opt/bin/deepspeed", "train.py"),
        ("python", "/opt/bin/ray", "start", "--head"),
        ("python", "-m", "ray_sentinel.cli.main", "run", "--", "x"),
        ("ray::IDLE",),
        ("python", "/site-packages/ray/dashboard/agent.py"),
        ("ray-dashboard-StateHead-0 (python -m x)",),
        ("python", "-u", "/site-packages/ray/_private/ray_process_reaper.py"),
        ("python", "-m", "ray.util.client.server", "--port=10001"),
        ("python", "/site-packages/ray/util/client/server/server.py"),
    ],
)
def test_launchers_are_not_ranks(machine, arguments):
    # As in a pod whose operator sets the node's rank for everything in it.
    pod = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "h", "MASTER_PORT": "1"}
    machine.tree.process(100, 1, *arguments, environ=pod)
    assert machine.ranks() == []
    machine.tree.process(101, 100, "python", "train.py", environ=torchrun(8, 16))
    machine.tree.process(102, 100, "python", "train.py", environ=torchrun(9, 16))
    assert machine.ranks() == [(8, 101), (9, 102)]


def test_an_unknown_launcher_is_known_by_its_children(machine):
    tree = machine.tree
    pod = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "h", "MASTER_PORT": "1"}
    tree.process(100, 1, "python", "our_launcher.py", environ=pod)
    tree.process(101, 100, "python", "train.py", environ={**pod, **torchrun(0, 16)})
    tree.process(102, 100, "python", "train.py", environ={**pod, **torchrun(1, 16)})
    assert machine.ranks() == [(0, 101), (1, 102)]


@pytest.mark.parametrize("launcher", [("python", "/bin/torchrun"), ("/usr/bin/mpirun", "-n", "2")])
@pytest.mark.parametrize("attached", [False, True])
def test_a_job_that_a_rank_launches_has_a_rank_0_of_its_own(machine, launcher, attached):
    tree = machine.tree
    words = (claim(100, 0),) if attached else ()
    tree.process(100, 1, "python", "train.py", environ=torchrun(0))
    first = machine.ranks(*words)
    exe = {} if launcher[0] == "python" else {"exe": launcher[0], "command": "mpirun"}
    tree.process(101, 100, *launcher, environ=torchrun(0), **exe)
    for rank in range(2):
        own = torchrun(rank, 2, port=29600)
        tree.process(102 + rank, 101, "python", "evaluate.py", environ=own)
        tree.process(110 + rank, 102 + rank, "python", "-c", "spawn_main()", environ=own)
    assert first == [(0, 100)]
    assert sorted(machine.ranks(*words)) == [(0, 100), (0, 102), (1, 103)]


def test_helpers_of_a_rank_that_names_its_job_anew_are_no_ranks(machine):
    machine.tree.process(100, 1, "python", "train.py", environ=torchrun(0))
    assert machine.ranks() == [(0, 100)]
    machine.tree.process(101, 100, "python", "-m", "worker", environ=torchrun(0, port=29600))
    assert machine.ranks() == [(0, 100)]


def test_a_wrapper_above_a_launcher_that_gives_its_rank_out_again_is_no_rank(machine):
    tree = machine.tree
    pod = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "h", "MASTER_PORT": "1"}
    tree.process(100, 1, "python", "start.py", environ=pod)
    tree.process(101, 100, "python", "/bin/torchrun", "train.py", environ=pod)
    tree.process(102, 101, "python", "train.py", environ={**pod, "LOCAL_RANK": "0"})
    assert machine.ranks() == [(0, 102)]


@pytest.mark.parametrize(
    "wrapper",
    [
        ("python", "/opt/conda/bin/conda", "run", "-n", "e", "python", "train.py"),
        ("python", "-m", "determined.launch.wrap_rank", "0", "--", "python", "train.py"),
    ],
)
def test_what_only_starts_the_trainer_is_no_rank(machine, wrapper):
    tree = machine.tree
    tree.process(100, 1, *wrapper, environ=torchrun(0))
    tree.process(101, 100, "bash", "/tmp/tmp5ta", environ=torchrun(0), exe="/usr/bin/bash")
    tree.process(102, 101, "python", "train.py", environ=torchrun(0))
    tree.process(103, 102, "python", "train.py", environ=torchrun(0))
    assert machine.ranks() == [(0, 102)]


def test_srun_of_a_launcher(machine):
    slurm = {
        "SLURM_PROCID": "1",
        "SLURM_STEP_NUM_TASKS": "2",
        "SLURM_JOB_ID": "7",
        "SLURM_STEP_ID": "0",
    }
    machine.tree.process(100, 1, "python", "start.py", environ=slurm)
    assert machine.ranks() == [(1, 100)]
    machine.tree.process(101, 100, "python", "train.py", environ={**slurm, **torchrun(8, 16)})
    assert machine.ranks() == [(8, 101)]


def test_an_mpi_rank_whose_workers_got_its_rank_again_is_the_rank(machine):
    mpi = {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4"}
    machine.tree.process(100, 1, "python", "train.py", environ=mpi)
    worker = {**mpi, "RANK": "2", "WORLD_SIZE": "4", "LOCAL_RANK": "0"}
    machine.tree.process(101, 100, "python", "-c", "spawn_main()", environ=worker)
    assert (2, 100) in machine.ranks()


def test_ray_started_from_a_rank_environment(machine):
    tree = machine.tree
    tree.process(100, 1, "raylet", exe="/x/raylet", command="raylet", environ=torchrun(0))
    tree.process(101, 100, "ray::Actor.method", environ=torchrun(0))
    tree.process(102, 100, "ray::Trainer.fit", environ=torchrun(3))
    assert machine.ranks() == [(3, 102)]


def test_a_driver_that_rays_own_command_starts_is_no_rank(machine):
    slurm = {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_LOCALID": "0"}
    tree = machine.tree
    tree.process(100, 1, "python", "/venv/bin/ray", "symmetric-run", "--", environ=slurm)
    tree.process(101, 100, "python", "driver.py", environ=slurm)
    tree.process(102, 100, "python", "-m", "ray.util.client.server", environ=slurm)
    assert machine.ranks() == []
    tree.process(103, 101, "python", "train.py", environ=torchrun(1))
    assert machine.ranks() == [(1, 103)]


def test_our_own_processes_are_never_ranks(machine):
    ours = torchrun(0, RAY_SENTINEL_ROLE="agent")
    machine.tree.process(100, 1, "python", "agent.py", environ=ours)
    machine.tree.process(101, 1, "sglang::scheduler_TP0", environ=ours)
    claim = Claim(pid=100, start=1000, job="j", rank=0)
    assert machine.look(claim) == ()


def claim(pid: int, rank: int, job: str = "told", **more) -> Claim:
    return Claim(pid=pid, start=more.pop("start", pid * 10), job=job, rank=rank, **more)


def test_a_record_wins_over_the_environment(machine):
    machine.tree.process(101, 1, "python", "train.py", environ=torchrun(0))
    (item,) = machine.look(claim(101, 5))
    assert (item.job, item.rank, item.source) == ("told", 5, "record")


def test_a_claim_for_an_earlier_process_of_that_pid_is_void(machine):
    machine.tree.process(101, 1, "python", "train.py")
    assert machine.look(claim(101, 5, start=7)) == ()
    assert len(machine.look(claim(101, 5, start=0))) == 1


def test_records_come_before_what_ray_says(machine):
    machine.tree.process(101, 1, "ray::Worker")
    (item,) = machine.look(claim(101, 1), claim(101, 2, source="ray"))
    assert (item.rank, item.source) == (1, "record")


def test_a_wrapper_above_an_attached_rank_is_not_a_rank(machine):
    tree = machine.tree
    tree.process(100, 1, "python", "wrapper.py", environ=torchrun(1))
    tree.process(101, 100, "python", "train.py", environ=torchrun(1))
    tree.process(102, 100, "python", "sidecar.py", environ=torchrun(1))
    assert machine.ranks() == [(1, 100)]
    assert machine.ranks(claim(101, 1)) == [(1, 101)]


def test_children_of_an_attached_rank_are_not_ranks(machine):
    tree = machine.tree
    tree.process(101, 1, "ray::RayTrainWorker")
    # A spawned dataloader worker shows what the rank put into os.environ.
    tree.process(102, 101, "python", "-c", "spawn_main()", environ=torchrun(3))
    assert machine.ranks(claim(101, 3)) == [(3, 101)]


def test_children_of_an_attached_worker_between_its_tasks_are_not_ranks(machine):
    machine.tree.process(101, 1, "ray::IDLE")
    machine.tree.process(102, 101, "python", "-c", "spawn_main()", environ=torchrun(3))
    assert machine.ranks(claim(101, 3)) == [(3, 101)]


def test_a_child_that_attached_again_is_not_a_rank(machine):
    machine.tree.process(101, 1, "python", "train.py")
    machine.tree.process(102, 101, "python", "-c", "spawn_main()")
    assert machine.ranks(claim(101, 3), claim(102, 3)) == [(3, 101)]


def test_ranks_under_one_attached_parent_are_all_ranks(machine):
    machine.tree.process(100, 1, "python", "spawn.py")
    machine.tree.process(101, 100, "python", "-c", "spawn_main()")
    machine.tree.process(102, 100, "python", "-c", "spawn_main()")
    assert machine.ranks(claim(101, 0), claim(102, 1)) == [(0, 101), (1, 102)]


def test_order_is_by_job_attempt_rank_and_pid(machine):
    for pid, rank in ((105, 10), (104, 9), (103, 9)):
        machine.tree.process(pid, 1, "python", environ=torchrun(rank, 16))
    assert machine.ranks() == [(9, 103), (9, 104), (10, 105)]
