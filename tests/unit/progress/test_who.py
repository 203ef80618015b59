"""Who a rank is: the sources in the process, and which of them prevails."""

from types import ModuleType, SimpleNamespace

import pytest

from ray_sentinel.progress.rank.who import is_sure, resolve

TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "MASTER_ADDR": "h",
    "MASTER_PORT": "1",
}


def module(**members) -> ModuleType:
    found = ModuleType("fake")
    for name, value in members.items():
        setattr(found, name, value)
    return found


def torch(rank=5, size=16, initialized=True) -> dict[str, ModuleType]:
    return {
        "torch.distributed": module(
            is_initialized=lambda: initialized,
            get_rank=lambda: rank,
            get_world_size=lambda: size,
        )
    }


def ray_train(rank=2) -> dict[str, ModuleType]:
    context = SimpleNamespace(
        get_world_rank=lambda: rank,
        get_world_size=lambda: 4,
        get_local_rank=lambda: 0,
        get_experiment_name=lambda: "run-1",
    )
    return {
        "ray.train": module(get_context=lambda: context),
        "ray.train.v2._internal.execution.context": module(_train_context=object()),
    }


def test_alone():
    who = resolve(environ={}, modules={})
    assert (who.job, who.rank, who.world_size, who.source) == ("default", 0, None, "assumed")
    assert who.assumed
    assert who.host


def test_torchrun():
    who = resolve(environ=TORCHRUN, modules={})
    assert (who.job, who.rank, who.world_size, who.local_rank) == ("h:1", 3, 8, 1)
    assert who.source == "torchrun"


def test_torch_distributed_knows_better_than_the_environment():
    who = resolve(environ=TORCHRUN, modules=torch())
    assert (who.rank, who.world_size, who.local_rank, who.source) == (5, 16, None, "torch")
    same = resolve(environ=TORCHRUN, modules=torch(rank=3, size=8))
    assert (same.rank, same.local_rank) == (3, 1)


def test_torch_not_yet_initialized():
    assert resolve(environ=TORCHRUN, modules=torch(initialized=False)).source == "torchrun"


def test_torch_half_imported():
    assert resolve(environ={}, modules={"torch.distributed": module()}).assumed


def test_ray_train():
    who = resolve(environ=TORCHRUN, modules=ray_train() | torch())
    assert (who.job, who.rank, who.world_size, who.source) == ("run-1", 2, 4, "ray-train")


def test_ray_train_outside_of_a_worker_is_not_asked():
    modules = ray_train()
    modules["ray.train.v2._internal.execution.context"] = module(_train_context=None)
    assert resolve(environ={}, modules=modules).assumed


def test_arguments_win():
    who = resolve("mine", 7, 9, environ=TORCHRUN, modules=ray_train())
    assert (who.job, who.rank, who.world_size, who.source) == ("mine", 7, 9, "argument")
    assert who.local_rank is None


def test_the_rank_alone_as_argument_keeps_what_agrees():
    who = resolve(rank=3, environ=TORCHRUN, modules={})
    assert (who.job, who.rank, who.world_size, who.local_rank) == ("h:1", 3, 8, 1)


@pytest.mark.parametrize("client", [object(), None])
def test_jax(client):
    state = SimpleNamespace(client=client, process_id=1, num_processes=2)
    who = resolve(environ={}, modules={"jax._src.distributed": module(global_state=state)})
    assert (who.source, who.rank) == (("jax", 1) if client else ("assumed", 0))


def test_the_named_job_wins_over_the_launchers():
    who = resolve(environ={**TORCHRUN, "RAY_SENTINEL_JOB": "x"}, modules=ray_train())
    assert who.job == "x"


def test_rays_node_and_the_gpus():
    ray = module(
        is_initialized=lambda: True,
        get_runtime_context=lambda: SimpleNamespace(get_node_id=lambda: "abc"),
    )
    who = resolve(environ={"CUDA_VISIBLE_DEVICES": "2"}, modules={"ray": ray})
    assert (who.node, who.gpus) == ("abc", ("2",))


def connected(mode: int = 0) -> dict[str, ModuleType]:
    return {
        "ray": module(is_initialized=lambda: True),
        "ray._private.worker": module(SCRIPT_MODE=0, global_worker=SimpleNamespace(mode=mode)),
    }


SLURM = {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "4", "SLURM_LOCALID": "0"}
POD = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "h"}


@pytest.mark.parametrize("environ", [SLURM, POD])
def test_a_driver_of_ray_with_what_all_inherit_may_be_no_rank(environ):
    who = resolve(environ=environ, modules={})
    assert is_sure(who, {})
    assert is_sure(who, {"ray": module(is_initialized=lambda: False)})
    assert is_sure(who, connected(mode=1))
    assert not is_sure(who, connected())
    client = module(ray=SimpleNamespace(is_connected=lambda: True))
    assert not is_sure(who, {**connected(mode=None), "ray.util.client": client})


def test_a_driver_of_ray_that_a_launcher_gave_its_own_rank_is_that_rank():
    assert is_sure(resolve(environ=TORCHRUN, modules={}), connected())
    assert is_sure(resolve(rank=0, environ=SLURM, modules={}), connected())
    assert not is_sure(resolve(environ={}, modules={}), {})
