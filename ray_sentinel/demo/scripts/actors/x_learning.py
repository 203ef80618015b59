"""Reinforcement learning: rollouts, a reward, trainers that share gradients, engines."""

from __future__ import annotations

import os
import socket
import threading
import time
from datetime import timedelta
from typing import Any

import ray
from x_part import x_compute, x_make, x_note, x_Part, x_PLAN, x_SECONDS
from x_report import report, told

x_SIZES: dict[str, int] = x_PLAN["sizes"]


class x_Rollout(x_Part):
    """Generates, and judges a part of it by itself."""

    def __init__(self, number: int) -> None:
        super().__init__("rollout", number)

    def x_generate(self, weights: Any = None) -> list[int]:
        self.x_begin()
        return self.x_judge()

    def x_judge(self) -> list[int]:
        self.x_work()
        return [self.x_calls] * 64

    def x_evaluate(self, seconds: float) -> float:
        return float(x_compute(seconds))


class x_Reward(x_Part):
    def __init__(self, number: int) -> None:
        super().__init__("reward", number)

    def x_score(self, samples: list[list[int]]) -> list[float]:
        self.x_begin()
        self.x_work()
        return [float(len(sample)) for sample in samples]


class x_Trainer(x_Part):
    """One rank of the group that learns."""

    def __init__(self, rank: int, size: int, port: int, peers: int = 0) -> None:
        """``peers``: so many engines are in the group, behind the trainers."""
        super().__init__("trainer", rank)
        x_join(rank, size + peers, port)
        self.x_weights_now = x_numbers(1 << 10)
        self.x_engine: list[Any] = []
        if not peers:
            told(rank, size)

    def x_update(self, step: int, samples: Any, scores: Any) -> float:
        self.x_begin()
        x_compute(x_SECONDS / 2)
        self.x_work()
        total = self.x_reduce()
        report(step)
        return total

    def x_reduce(self) -> float:
        import torch.distributed as dist

        for _ in range(2):
            dist.all_reduce(self.x_weights_now)
            self.x_weights_now /= dist.get_world_size()
        return float(self.x_weights_now.sum())

    def x_give(self) -> list[float]:
        return [1.0] * 64

    def x_meet(self, engines: list[Any]) -> None:
        self.x_engine = engines

    def x_refine(self, step: int) -> float:
        """A step of a trainer that is alone, and has an engine answer in the middle of it."""
        self.x_begin()
        self.x_work()
        answers = ray.get([engine.x_answer.remote(step) for engine in self.x_engine])
        return float(len(answers))

    def x_send(self) -> None:
        """New weights to all engines."""
        import torch.distributed as dist

        dist.broadcast(x_numbers(1 << 22), 0)


class x_Engine(x_Part):
    """Answers with the weights that it got last."""

    def __init__(self, number: int, size: int, port: int) -> None:
        super().__init__("engine", number)
        x_join(number + 1, size, port)
        self.x_trainer: list[Any] = []
        self.x_fresh = threading.Event()

    def x_meet(self, trainer: list[Any]) -> None:
        self.x_trainer = trainer

    def x_answer(self, step: int) -> int:
        self.x_begin()
        x_compute(x_SECONDS)  # the trouble of an engine comes on the way to the broadcast
        if self.rank == 0 and step == x_PLAN["step"]:
            if x_PLAN["how"] == "circle":
                x_note(f"began-{self.x_name}", time.time())
                ray.get(self.x_trainer[0].x_give.remote())
            if x_PLAN["how"] == "event":
                x_note(f"began-{self.x_name}", time.time())
                self.x_fresh.clear()
                self.x_fresh.wait()
        return step

    def x_receive(self) -> None:
        import torch.distributed as dist

        tensor = x_numbers(1 << 22)
        self.x_at("deep", self.x_calls)
        dist.broadcast(tensor, 0)
        self.x_fresh.set()


def x_numbers(count: int) -> Any:
    import torch

    return torch.ones(count)


def x_join(rank: int, size: int, port: int) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    if x_PLAN["told"] == "environ":
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(size))
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{port}",
        rank=rank,
        world_size=size,
        timeout=timedelta(minutes=30),
    )


def x_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def x_trainers(peers: int = 0) -> tuple[list[Any], int]:
    """All of them, and the port at which they meet."""
    size, port = x_SIZES["trainer"], x_port()
    made = []
    for rank in range(size):
        variables = {"RANK": str(rank), "WORLD_SIZE": str(size + peers)}
        more = {"runtime_env": {"env_vars": variables}} if x_PLAN["told"] == "runtime_env" else {}
        made.append(x_make(x_Trainer, "trainer", rank, size, port, peers, **more))
    return made, port


class x_InStep:
    """Everybody waits for everybody: generate, judge, learn."""

    def __init__(self) -> None:
        self.x_trainers, _ = x_trainers()
        self.x_rollouts = [x_make(x_Rollout, "rollout", n) for n in range(x_SIZES["rollout"])]
        self.x_reward = x_make(x_Reward, "reward", 0)
        idle = 2 if x_PLAN["how"] == "idle" else 0
        self.x_idle = [x_make(x_Reward, "reward", 1 + n) for n in range(idle)]

    def x_iterate(self, step: int) -> None:
        weights = self.x_trainers[0].x_give.remote()
        made = [rollout.x_generate.remote(weights) for rollout in self.x_rollouts]
        # Else the references travel on, and their values are fetched where they are used.
        samples = ray.get(made) if x_PLAN["variant"] % 2 else x_gather.remote(*made)
        scores: Any = self.x_reward.x_score.remote(samples)
        if x_PLAN["variant"] % 3:
            scores = ray.get(scores)
        ray.get([trainer.x_update.remote(step, samples, scores) for trainer in self.x_trainers])
        if x_PLAN["how"] == "evaluate" and step == x_PLAN["step"]:
            x_note("began-healthy", time.time())
            ray.get([rollout.x_evaluate.remote(30.0) for rollout in self.x_rollouts])


@ray.remote(num_cpus=0)
def x_gather(*samples: list[int]) -> list[list[int]]:
    return list(samples)


class x_InFlight:
    """Each rollout generates without a pause; whenever enough have come, the trainers learn."""

    def __init__(self) -> None:
        self.x_trainers, _ = x_trainers()
        self.x_rollouts = [x_make(x_Rollout, "rollout", n) for n in range(x_SIZES["rollout"])]
        self.x_flight = {rollout.x_generate.remote(): rollout for rollout in self.x_rollouts}

    def x_iterate(self, step: int) -> None:
        batch = []
        while len(batch) < len(self.x_rollouts):
            done, _ = ray.wait(list(self.x_flight), num_returns=1)
            rollout = self.x_flight.pop(done[0])
            batch.append(ray.get(done[0]))
            self.x_flight[rollout.x_generate.remote()] = rollout
        ray.get([trainer.x_update.remote(step, batch, None) for trainer in self.x_trainers])
        if x_PLAN["how"] == "evaluate" and step == x_PLAN["step"]:
            x_note("began-healthy", time.time())
            ray.get([rollout.x_evaluate.remote(30.0) for rollout in self.x_rollouts])


class x_Synchronised:
    """A trainer that has engines answer, and sends them its weights after each step."""

    def __init__(self) -> None:
        engines = x_SIZES["engine"]
        (self.x_trainer,), port = x_trainers(peers=engines)
        self.x_engines = [
            x_make(x_Engine, "engine", n, 1 + engines, port, max_concurrency=2)
            for n in range(engines)
        ]
        ray.get(self.x_trainer.x_meet.remote(self.x_engines))
        ray.get([engine.x_meet.remote([self.x_trainer]) for engine in self.x_engines])

    def x_iterate(self, step: int) -> None:
        ray.get(self.x_trainer.x_refine.remote(step))
        ray.get([engine.x_receive.remote() for engine in self.x_engines]
                + [self.x_trainer.x_send.remote()])  # fmt: skip
