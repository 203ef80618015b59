"""A job of Ray actors as verl or OpenRLHF build it: rollout, reward and a group of trainers.

The controller attaches, and so does each trainer, with its rank; the other actors are found from
outside. ``python examples/actors_job.py``, on one machine: not with RAY_ADDRESS set to a cluster of
several nodes. It ends by itself.
"""

import os
import socket
import time

import ray
import torch
import torch.distributed as dist

import ray_sentinel

JOB = "actors-example"
TRAINERS = 2


@ray.remote(num_cpus=0)
class Rollout:
    """Generates; an inference engine in a real job."""

    def generate(self, count: int) -> torch.Tensor:
        time.sleep(0.05)
        return torch.randn(count, 16)


@ray.remote(num_cpus=0)
class Reward:
    """Judges what was generated."""

    def score(self, samples: torch.Tensor) -> torch.Tensor:
        return samples.mean(1, keepdim=True)


@ray.remote(num_cpus=0)
class Trainer:
    """One rank of the data-parallel group that learns."""

    def __init__(self, rank: int, port: int) -> None:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
        self._sentinel = ray_sentinel.attach(job=JOB, rank=rank, world_size=TRAINERS)
        with self._sentinel.phase("process_group"):
            dist.init_process_group("gloo", rank=rank, world_size=TRAINERS)
        torch.manual_seed(0)
        self._model = torch.nn.Linear(16, 1)
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=0.01)

    def update(self, step: int, samples: torch.Tensor, scores: torch.Tensor) -> float:
        loss = torch.nn.functional.mse_loss(self._model(samples), scores)
        self._optimizer.zero_grad()
        loss.backward()
        for parameter in self._model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= TRAINERS
        self._optimizer.step()
        self._sentinel.step(step, loss=loss.item())
        return loss.item()


def main(steps: int) -> None:
    ray.init(include_dashboard=False)
    watcher = ray_sentinel.attach(job=JOB)
    watcher.wait(60)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    rollout, reward = Rollout.remote(), Reward.remote()
    trainers = [Trainer.remote(rank, port) for rank in range(TRAINERS)]
    for step in range(1, steps + 1):
        samples = ray.get(rollout.generate.remote(64))
        scores = ray.get(reward.score.remote(samples))
        losses = ray.get([trainer.update.remote(step, samples, scores) for trainer in trainers])
        if step % 10 == 0:
            print(f"step {step} loss {sum(losses) / TRAINERS:.5f}", flush=True)
    print(watcher.status().verdict)


if __name__ == "__main__":
    main(int(os.environ.get("STEPS", "50")))
