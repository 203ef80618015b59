"""Train on CPUs: a few ranks, one layout, and whatever plan.json says."""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from x_layouts import x_LAYOUTS
from x_pauses import x_PAUSES, x_score
from x_report import declared, report
from x_troubles import x_Left, x_Trouble


class x_Service:
    """Something outside of the job that every rank needs in every step."""

    def __init__(self, port: int) -> None:
        self.stream = socket.create_connection(("127.0.0.1", port)) if port else None

    def x_ask(self) -> None:
        if self.stream is not None:
            self.stream.sendall(b"?")
            self.stream.recv(1)


def x_train(plan: dict, rank: int, world: int, trouble: x_Trouble) -> None:
    layout = x_LAYOUTS[plan["layout"]](rank, world, trouble)
    service = x_Service(int(os.environ.get("SERVICE_PORT", "0")))
    dice = random.Random(plan["seed"] + rank)
    with contextlib.suppress(x_Left):
        for step in range(plan["steps"]):
            if step == 0:
                x_score(plan["first_seconds"])
            service.x_ask()
            trouble.x_at("input", step)
            layout.x_step(step, plan["step_seconds"] * dice.uniform(1, plan["spread"]))
            report(step)
            if step == plan["step"]:
                x_pause(plan, rank)
            if rank == 0:
                print(f"step {step}", flush=True)


def x_pause(plan: dict, rank: int) -> None:
    if rank == 0:
        Path("began-healthy").write_text(repr(time.time()))
    if plan["pause"]:
        with declared(plan["phase"]):
            x_PAUSES[plan["pause"]](rank, plan["seconds"])


def x_main() -> None:
    plan = json.loads(Path("plan.json").read_text())
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    trouble = x_Trouble(plan, rank)
    trouble.x_at("start", plan["step"])
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    x_train(plan, rank, world, trouble)
    trouble.x_at("end", plan["step"])
    if plan["last"] == "barrier":
        dist.barrier()
    if rank == 0 and plan["last"] == "export":
        x_score(plan["seconds"])
    dist.destroy_process_group()
    # A thread of gloo may still give back what the last collective used, for which it needs the
    # GIL; PyTorch aborts a process whose interpreter ends at that moment.
    time.sleep(1.0)


if __name__ == "__main__":
    x_main()
