"""A stand-in of OpenRLHF on CPUs. argv: a folder, where a file ``stuck`` is the sign for trouble.

Classes, methods, variables and lines are OpenRLHF's: its trainer is an actor; each group of models
has a rank 0 of its own, which its actors set in ``os.environ`` when they run already.
"""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

import ray

FOLDER = Path(sys.argv[-1])


class BaseDistributedActor:
    def __init__(self, size: int, rank: int, address: str, port: int) -> None:
        self.rank, self.address, self.port = rank, address or "127.0.0.1", port or free_port()
        os.environ.update(
            MASTER_ADDR=self.address,
            MASTER_PORT=str(self.port),
            WORLD_SIZE=str(size),
            RANK=str(rank),
            LOCAL_RANK="0",
        )

    def get_master_addr_port(self) -> tuple[str, int]:
        return self.address, self.port


@ray.remote(num_cpus=0)
class ReferenceModelActor(BaseDistributedActor):
    def forward(self, step: int) -> int:
        time.sleep(0.1)
        return step


@ray.remote(num_cpus=0)
class PolicyModelActor(BaseDistributedActor):
    def init_model_from_pretrained(self, folder: str) -> None:
        import torch.distributed

        torch.distributed.init_process_group("gloo")
        Path(folder, f"rank-{self.rank}").write_text(str(os.getpid()))

    def fit(self, step: int) -> dict[str, float]:
        import torch.distributed

        loss = torch.ones(1000)
        torch.distributed.all_reduce(loss)
        time.sleep(0.2)
        return {"policy_loss": float(loss[0]) / (step + 1)}


@ray.remote(num_cpus=0)
class RolloutRayActor:
    def __init__(self, number: int, folder: str) -> None:
        self.number, self.sign = number, Path(folder, "stuck")

    def generate_responses(self, step: int) -> int:
        time.sleep(0.2)
        if self.number == 1 and self.sign.exists():
            self.reward()
        return step

    def reward(self) -> None:
        time.sleep(10_000)


@ray.remote(num_cpus=0)
class PPOTrainer:
    def __init__(self, policy: list[Any], reference: Any, rollouts: list[Any]) -> None:
        self.policy, self.reference, self.rollouts = policy, reference, rollouts

    def fit(self) -> None:
        for step in range(1, 100_000):
            made = [rollout.generate_responses.remote(step) for rollout in self.rollouts]
            ray.get(self.reference.forward.remote(ray.get(made)[0]))
            status = ray.get([actor.fit.remote(step) for actor in self.policy])[0]
            print(f"✨ Global step {step}: {status}", flush=True)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def main() -> None:
    ray.init(address="auto", runtime_env={"env_vars": {"GLOO_SOCKET_IFNAME": "lo"}})
    first = PolicyModelActor.remote(2, 0, "", 0)
    address, port = ray.get(first.get_master_addr_port.remote())
    policy = [first, PolicyModelActor.remote(2, 1, address, port)]
    reference = ReferenceModelActor.remote(1, 0, "", 0)
    rollouts = [RolloutRayActor.remote(number, str(FOLDER)) for number in range(2)]
    ray.get([actor.init_model_from_pretrained.remote(str(FOLDER)) for actor in policy])
    ray.get(PPOTrainer.remote(policy, reference, rollouts).fit.remote())


main()
