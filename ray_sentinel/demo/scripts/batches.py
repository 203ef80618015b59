"""Batches of a made-up data set; plan.json may tell one rank to get into trouble at one step."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent


class Batches:
    """``steps`` batches, each ready after ``seconds``."""

    def __init__(self, rank: int, steps: int, seconds: float) -> None:
        self.rank, self.steps, self.seconds = rank, steps, seconds
        self.plan = json.loads((HERE / "plan.json").read_text())

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        generator = torch.Generator().manual_seed(self.rank)
        weights = torch.linspace(-1, 1, 32)
        for step in range(self.steps):
            time.sleep(self.seconds)
            if self.rank == self.plan["rank"] and step == self.plan["step"]:
                self.get_into_trouble()
            inputs = torch.randn(64, 32, generator=generator)
            yield inputs, (inputs @ weights).unsqueeze(1)

    def get_into_trouble(self) -> None:
        """Whatever the plan says; the moment is noted so that the time to the verdict is known."""
        (HERE / "began").write_text(repr(time.time()))
        getattr(self, self.plan["how"])()

    def sleep(self) -> None:
        time.sleep(86400)

    def sigstop(self) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    def sigkill(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def gil(self) -> None:
        ctypes.PyDLL(None).sleep(86400)

    def fifo(self) -> None:
        path = HERE / f"shard-{self.rank}"
        os.mkfifo(path)
        path.read_bytes()
