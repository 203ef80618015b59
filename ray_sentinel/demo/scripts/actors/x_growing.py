"""A job that asks for more while it runs: groups, actors, environments, room for objects."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import ray
from ray.util import placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from x_calling import x_Worker
from x_part import x_FOLDER, x_make, x_note, x_Part, x_PLAN

x_GUEST = "guest"
"""A resource that only a node that may leave has."""
x_LARGE = 40_000_000
"""Bytes of a large object: half of the guest's object store. Ray gives task arguments 70 % of
it."""


class x_Newcomer(x_Part):
    """Comes later than the others."""

    def __init__(self, number: int) -> None:
        super().__init__("newcomer", number)

    def x_do(self, item: int) -> int:
        self.x_begin()
        self.x_work()
        return item


@ray.remote(num_cpus=0, resources={x_GUEST: 0.1})
def x_keep(argument: bytes) -> None:
    """Go on for ever with a large argument."""
    part = x_Part("newcomer", 0)
    while argument:
        part.x_work()


@ray.remote(num_cpus=0, resources={x_GUEST: 0.1})
def x_measure(argument: bytes) -> int:
    return len(argument)


class x_Growing:
    """A few workers, and more as time goes by."""

    def __init__(self) -> None:
        how = x_PLAN["how"]
        on_head = {"resources": {"node:__internal_head__": 0.001}, "scheduling_strategy": "DEFAULT"}
        stay: dict[str, Any] = on_head if how in ("gone", "rebuild", "store") else {}
        numbers = range(x_PLAN["sizes"]["worker"])
        self.x_workers = [x_make(x_Worker, "worker", n, **stay) for n in numbers]
        self.x_more: list[Any] = []
        self.x_made: Any = None
        if how == "rebuild":
            there = NodeAffinitySchedulingStrategy(x_guest_node(), soft=True)
            self.x_made = x_produce.options(scheduling_strategy=there).remote()
            ray.wait([self.x_made], fetch_local=False)
        if how == "store":
            self.x_made = x_keep.remote(ray.put(bytes(x_LARGE)))

    def x_iterate(self, step: int) -> None:
        ray.get([worker.x_do.remote(step) for worker in self.x_workers + self.x_more])
        if x_PLAN["how"] == "scale":
            self.x_scale(step)
        elif step == x_PLAN["step"] and x_PLAN["how"] in x_GROWTH:
            x_GROWTH[x_PLAN["how"]](self)

    def x_scale(self, step: int) -> None:
        if step % 6 == 2:
            self.x_more.append(x_make(x_Worker, "worker", 10 + step))
        if step % 6 == 5 and self.x_more:
            ray.kill(self.x_more.pop())

    def x_ask_for_more(self) -> None:
        """One actor more than there were."""
        if x_PLAN["place"] != "constructor":
            x_begun()
        more = {}
        if x_PLAN["how"] == "environment":
            os.mkfifo(x_FOLDER / "packages.zip")
            more["runtime_env"] = {"working_dir": f"file://{x_FOLDER}/packages.zip"}
        newcomer = x_make(x_Newcomer, "newcomer", 0, **more)
        ray.get(newcomer.x_do.remote(0))

    def x_ask_for_too_much(self) -> None:
        x_begun()
        if x_PLAN["variant"] % 2:
            ray.get(placement_group([{"CPU": 1}, {"CPU": 64}], name="x_more").ready())
        else:
            ray.get(x_make(x_Newcomer, "newcomer", 0, num_cpus=64).x_do.remote(0))

    def x_ask_for_all(self) -> None:
        """A group on all three nodes, of which another job has one."""
        x_begun()
        ray.get(placement_group([{"CPU": 2}] * 3, strategy="STRICT_SPREAD", name="x_more").ready())

    def x_ask_the_guest(self) -> None:
        x_until_the_guest_left()
        x_begun()
        ray.get(placement_group([{x_GUEST: 1}], name="x_more").ready())

    def x_send_too_much(self) -> None:
        x_begun()
        ray.get(x_measure.remote(ray.put(bytes(x_LARGE))))

    def x_make_again(self) -> None:
        x_until_the_guest_left()
        x_note("began-healthy", time.time())
        ray.get(self.x_made)
        x_note("made-again", time.time())


@ray.remote(num_cpus=0.5)
def x_produce() -> bytes:
    time.sleep(3.0)
    return bytes(3_000_000)


def x_begun() -> None:
    x_note("began-driver-0", time.time())


def x_guest_node() -> str:
    (found,) = [node["NodeID"] for node in ray.nodes()
                if node["Alive"] and x_GUEST in node["Resources"]]  # fmt: skip
    return str(found)


def x_until_the_guest_left() -> None:
    x_note("guest-may-go", time.time())
    while any(node["Alive"] and x_GUEST in node["Resources"] for node in ray.nodes()):
        time.sleep(0.2)


x_GROWTH: dict[str, Callable[[x_Growing], None]] = {
    "sleep": x_Growing.x_ask_for_more,
    "environment": x_Growing.x_ask_for_more,
    "large": x_Growing.x_ask_for_too_much,
    "held": x_Growing.x_ask_for_all,
    "gone": x_Growing.x_ask_the_guest,
    "store": x_Growing.x_send_too_much,
    "rebuild": x_Growing.x_make_again,
}
