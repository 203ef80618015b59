"""Reinforcement learning as its users write it: a driver, rollouts, a reward, two trainers.

Nothing here knows of ray_sentinel. On a cluster that is watched (``ray-sentinel up``)
``ray-sentinel status`` says who waits for whom once it stands still: with ``STUCK=20`` one rollout
waits for ever for its judge in step 20. ``python examples/rl_job.py``; it ends by itself otherwise.
"""

import os
import socket
import time

import ray
import torch
import torch.distributed as dist

ROLLOUTS, TRAINERS = 3, 2
STEPS = int(os.environ.get("STEPS", "50"))
STUCK = int(os.environ.get("STUCK", "-1"))


@ray.remote(num_cpus=0)
class Rollout:
    """Generates with the newest weights; an inference engine in a real job."""

    def __init__(self, number: int) -> None:
        self.number = number

    def generate(self, step: int, weights: torch.Tensor) -> torch.Tensor:
        time.sleep(0.1)
        samples = torch.randn(32, 16) * weights.abs().mean()
        if (self.number, step) == (1, STUCK):
            self.ask_judge()
        return samples

    def ask_judge(self) -> None:
        time.sleep(100_000)  # a service that does not answer


@ray.remote(num_cpus=0)
class Reward:
    """Scores what was generated."""

    def score(self, samples: list[torch.Tensor]) -> torch.Tensor:
        return torch.cat(samples).mean(1, keepdim=True)


@ray.remote(num_cpus=0)
class Trainer:
    """One rank of the data-parallel group that learns."""

    def __init__(self, rank: int, port: int) -> None:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        address = f"tcp://127.0.0.1:{port}"
        dist.init_process_group("gloo", init_method=address, rank=rank, world_size=TRAINERS)
        torch.manual_seed(0)
        self.model = torch.nn.Linear(16, 1)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)

    def weights(self) -> torch.Tensor:
        return self.model.weight.detach()

    def update(self, samples: list[torch.Tensor], scores: torch.Tensor) -> float:
        loss = torch.nn.functional.mse_loss(self.model(torch.cat(samples)), scores)
        self.optimizer.zero_grad()
        loss.backward()
        for parameter in self.model.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= TRAINERS
        self.optimizer.step()
        return loss.item()


def main() -> None:
    ray.init(log_to_driver=False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    rollouts = [Rollout.remote(number) for number in range(ROLLOUTS)]
    reward = Reward.remote()
    trainers = [Trainer.remote(rank, port) for rank in range(TRAINERS)]
    for step in range(1, STEPS + 1):
        weights = trainers[0].weights.remote()
        samples = ray.get([rollout.generate.remote(step, weights) for rollout in rollouts])
        scores = ray.get(reward.score.remote(samples))
        losses = ray.get([trainer.update.remote(samples, scores) for trainer in trainers])
        if step % 10 == 0:
            print(f"step {step} loss {sum(losses) / TRAINERS:.5f}", flush=True)


if __name__ == "__main__":
    main()
