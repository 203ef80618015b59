"""verl's single controller on CPUs: a worker group in which trainer and rollout share processes.

argv: the step from which on rank 1 stands still while it rolls out; -1 for never. The classes are
toys; the driver, the resource pool, the worker group and the colocated ``WorkerDict`` are verl's.
"""

# mypy: disable-error-code="misc, untyped-decorator"

from __future__ import annotations

import os
import sys
import time

import ray
import torch
from verl.single_controller.base import Worker
from verl.single_controller.base.decorator import Dispatch, register
from verl.single_controller.ray import (
    RayClassWithInitArgs,
    RayResourcePool,
    RayWorkerGroup,
    create_colocated_worker_cls,
)

STUCK_FROM = int(sys.argv[1])


@ray.remote
class Actor(Worker):
    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def init_model(self) -> None:
        torch.distributed.init_process_group("gloo")

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def update_actor(self, step: int) -> float:
        time.sleep(0.2)
        gradient = torch.ones(1000)
        torch.distributed.all_reduce(gradient)
        return float(gradient.sum())


@ray.remote
class Rollout(Worker):
    def __init__(self, stuck_from: int) -> None:
        super().__init__()
        self.stuck_from = stuck_from

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def generate_sequences(self, step: int) -> int:
        time.sleep(0.3)
        if 0 <= self.stuck_from <= step and self.rank == 1:
            self.reward()
        return step

    def reward(self) -> None:
        time.sleep(10_000)


def main() -> None:
    # Workers find verl where the driver has it.
    found = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    ray.init(address="auto", log_to_driver=False, runtime_env={"env_vars": found})
    roles = {
        "actor": RayClassWithInitArgs(cls=Actor),
        "rollout": RayClassWithInitArgs(cls=Rollout, stuck_from=STUCK_FROM),
    }
    pool = RayResourcePool(process_on_nodes=[2], use_gpu=False, max_colocate_count=1)
    group = RayWorkerGroup(
        resource_pool=pool,
        ray_cls_with_init=create_colocated_worker_cls(class_dict=roles),
        name_prefix="tiny",
        device_name="cpu",
    )
    workers = group.spawn(prefix_set=roles.keys())
    workers["actor"].init_model()
    for step in range(100_000):
        workers["rollout"].generate_sequences(step)
        workers["actor"].update_actor(step)
        print(f"step:{step} - actor/loss:0.5", flush=True)


main()
