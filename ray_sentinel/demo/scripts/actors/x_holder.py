"""An older job: it leaves an actor behind that keeps the CPUs of a node."""

from __future__ import annotations

import os
import time

import ray
from x_part import x_FOLDER, x_note, x_Part, x_PLAN


class x_Keeper(x_Part):
    def __init__(self, number: int) -> None:
        super().__init__("holder", number)

    def x_ready(self) -> int:
        return os.getpid()


def x_hold_on() -> None:
    ray.init(log_to_driver=False)
    made = ray.remote(x_Keeper).options(name="x_keeper", lifetime="detached", num_cpus=2)
    keeper = made.remote(0)
    ray.get(keeper.x_ready.remote())
    x_note("held", time.time())
    if x_PLAN["variant"] % 2:  # the job lives on; else it has left an orphan
        while (x_FOLDER / "plan.json").exists():
            time.sleep(0.5)


if __name__ == "__main__":
    x_hold_on()
