"""How the ranks work together: the collectives of one step, for each layout."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

x_Call = tuple[Callable[[torch.Tensor], None], torch.Tensor]


class x_Layout(ABC):
    """A step is some work of the rank's own, and then its collectives in their order."""

    x_apart: tuple[int, ...] = ()
    """Indices of collectives that can change places with the next one, which has other ranks,
    without anybody waiting for ever."""

    def __init__(self, rank: int, world: int, trouble: Any) -> None:
        self.rank, self.world, self.trouble = rank, world, trouble
        self.x_groups()

    def x_groups(self) -> None:  # noqa: B027 - most layouts need none
        """Make the process groups that the layout needs: all ranks make all of them."""

    @abstractmethod
    def x_calls(self) -> list[x_Call]:
        """The collectives of a step, in their order."""

    def x_step(self, step: int, seconds: float) -> None:
        time.sleep(seconds)
        calls = self.trouble.x_change(step, self.x_calls(), self.x_apart)
        for index, (call, tensor) in enumerate(calls):
            if index == 1:
                self.trouble.x_at("inside", step)
            call(tensor)

    def x_mean(self, tensor: torch.Tensor) -> None:
        dist.all_reduce(tensor)

    def x_share(self, tensor: torch.Tensor) -> None:
        dist.all_gather([torch.empty_like(tensor) for _ in range(self.world)], tensor)


class x_Data(x_Layout):
    """Every rank has the whole model: gradients are summed by hand."""

    def x_calls(self) -> list[x_Call]:
        return [
            (self.x_gradients, torch.ones(4096)),
            (self.x_share, torch.ones(16)),
            (self.x_mean, torch.ones(3)),
        ]

    def x_gradients(self, tensor: torch.Tensor) -> None:
        work = dist.all_reduce(tensor, async_op=True)
        work.wait()


class x_Wrapped(x_Layout):
    """The same by DistributedDataParallel, with an optimizer."""

    def x_groups(self) -> None:
        torch.manual_seed(0)
        self.model = DistributedDataParallel(
            nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1))
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def x_calls(self) -> list[x_Call]:
        return [
            (self.x_learn, torch.randn(64, 32)),
            (self.x_mean, torch.ones(3)),
            (self.x_share, torch.ones(16)),
        ]

    def x_learn(self, inputs: torch.Tensor) -> None:
        loss = self.model(inputs[:, :32].float()).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


class x_Tensor(x_Layout):
    """Two ranks share each layer; all that hold the same part form a data-parallel group."""

    x_apart = (2,)

    def x_groups(self) -> None:
        pairs = [[first, first + 1] for first in range(0, self.world, 2)]
        rows = [list(range(part, self.world, 2)) for part in range(2)]
        for ranks in pairs:
            group = dist.new_group(ranks)
            if self.rank in ranks:
                self.pair = group
        for ranks in rows:
            group = dist.new_group(ranks)
            if self.rank in ranks:
                self.row, self.size = group, len(ranks)
        self.weights = nn.Linear(8, 8)
        self.optimizer = torch.optim.SGD(self.weights.parameters(), lr=0.01)

    def x_calls(self) -> list[x_Call]:
        return [
            (self.x_forward, torch.ones(512)),
            (self.x_gather, torch.ones(24)),
            (self.x_backward, torch.ones(640)),
            (self.x_gradients, torch.ones(2048)),
            (self.x_norm, torch.ones(5)),
        ]

    def x_forward(self, tensor: torch.Tensor) -> None:
        dist.all_reduce(tensor, group=self.pair)

    def x_gather(self, tensor: torch.Tensor) -> None:
        dist.all_gather([torch.empty_like(tensor) for _ in range(2)], tensor, group=self.pair)

    def x_backward(self, tensor: torch.Tensor) -> None:
        dist.all_reduce(tensor, group=self.pair)

    def x_gradients(self, tensor: torch.Tensor) -> None:
        dist.all_reduce(tensor, group=self.row)

    def x_norm(self, tensor: torch.Tensor) -> None:
        into = [torch.empty_like(tensor) for _ in range(self.size)]
        dist.all_gather(into, tensor, group=self.row)
        loss = self.weights(torch.ones(8)).sum()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


class x_Pipeline(x_Layout):
    """Two pipelines of equal stages: activations go down, gradients up, stages are averaged."""

    def x_groups(self) -> None:
        self.depth = self.world // 2
        self.stage, self.line = self.rank % self.depth, self.rank // self.depth
        for stage in range(self.depth):
            group = dist.new_group([stage, stage + self.depth])
            if stage == self.stage:
                self.group = group

    def x_calls(self) -> list[x_Call]:
        return [
            (self.x_down, torch.ones(256)),
            (self.x_up, torch.ones(256)),
            (self.x_gradients, torch.ones(1024)),
            (self.x_norm, torch.ones(7)),
        ]

    def x_down(self, tensor: torch.Tensor) -> None:
        if self.stage > 0:
            dist.recv(tensor, self.rank - 1)
        tensor = torch.tanh(tensor)
        if self.stage < self.depth - 1:
            dist.send(tensor, self.rank + 1)

    def x_up(self, tensor: torch.Tensor) -> None:
        if self.stage < self.depth - 1:
            dist.recv(tensor, self.rank + 1)
        if self.stage > 0:
            dist.send(tensor, self.rank - 1)

    def x_gradients(self, tensor: torch.Tensor) -> None:
        dist.all_reduce(tensor, group=self.group)

    def x_norm(self, tensor: torch.Tensor) -> None:
        dist.all_gather([torch.empty_like(tensor) for _ in range(2)], tensor, group=self.group)


class x_Experts(x_Layout):
    """Tokens go to the rank that has their expert, and back."""

    def x_calls(self) -> list[x_Call]:
        return [
            (self.x_dispatch, torch.ones(32 * self.world)),
            (self.x_combine, torch.ones(32 * self.world)),
            (self.x_mean, torch.ones(900)),
            (self.x_share, torch.ones(11)),
        ]

    def x_dispatch(self, tensor: torch.Tensor) -> None:
        dist.all_to_all_single(torch.empty_like(tensor), tensor)

    def x_combine(self, tensor: torch.Tensor) -> None:
        dist.all_to_all_single(torch.empty_like(tensor), tensor)


x_LAYOUTS: dict[str, type[x_Layout]] = {
    "data": x_Data,
    "ddp": x_Wrapped,
    "tensor": x_Tensor,
    "pipeline": x_Pipeline,
    "experts": x_Experts,
}
