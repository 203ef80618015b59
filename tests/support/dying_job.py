"""A Ray job that ends, or loses an actor, in the way that the name of its file says. argv: a file
that is written, with the driver's pid, once all actors live; it goes on once the file FILE.go is
there, for who watches must have seen them."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray


@ray.remote(num_cpus=0)
class Engine:
    def __init__(self) -> None:
        print("the engine is up", flush=True)

    def pid(self) -> int:
        return os.getpid()

    def generate(self, step: int) -> int:
        if step == 3:
            raise KeyError("prompt 3")
        return step

    def leave(self) -> None:
        os._exit(3)

    def make(self) -> Any:
        self.child = _engines.options(name="child").remote()
        return ray.get(self.child.pid.remote())


_engines: Any = Engine


@ray.remote(num_cpus=0)
class Broken:
    def __init__(self) -> None:
        raise LookupError("no model")

    def pid(self) -> int:
        return os.getpid()


_broken: Any = Broken


@ray.remote(num_cpus=0, max_retries=0)
def crush(step: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return step


@ray.remote(num_cpus=0, max_retries=1)
def part(step: int) -> int:
    sys.exit(0)


@ray.remote(num_cpus=0, max_retries=0)
def leave(step: int) -> int:
    sys.exit(0)


@ray.remote(num_cpus=0)
def add(*parts: int) -> int:
    return sum(parts)


@ray.remote(num_cpus=0, max_retries=0)
def hold(step: int) -> int:
    try:
        return int(ray.get(crush.remote(step)))
    except ray.exceptions.WorkerCrashedError:
        time.sleep(2.5)  # who asked tells of a failure once a second, and ends with the driver
        raise


@ray.remote(num_cpus=0, max_retries=0)
def ask(step: int) -> int:
    return int(ray.get(crush.remote(step)))


BY_TASKS: dict[str, Callable[[], Any]] = {
    "crushed": lambda: add.remote(1, crush.remote(2)),
    "parts": lambda: add.remote(1, part.remote(2)),
    "leaves": lambda: [add.remote(1, 2), leave.remote(3)],
    "unheard": lambda: ask.remote(2),
    "hidden": lambda: [hold.remote(step) for step in range(2)],
}
"""What drivers wait for that fail by a task."""
NOT_THERE = {"working_dir": "gcs://_ray_pkg_0123456789abcdef.zip"}


def engine(name: str) -> Any:
    made = _engines.options(name=name).remote()
    ray.get(made.pid.remote())
    return made


def ends_first(handle: Any, how: int) -> None:
    os.kill(ray.get(handle.pid.remote()), how)


LOST = ("killed", "crashed", "unwanted", "left", "owner")


def losses(made: dict[str, Any]) -> None:
    """Actors die in all ways while their driver goes on."""
    ends_first(made["killed"], signal.SIGKILL)
    ends_first(made["crashed"], signal.SIGSEGV)
    ray.kill(made["unwanted"])
    made["left"].leave.remote()
    ends_first(made["owner"], signal.SIGKILL)


def main() -> None:
    how = Path(__file__).stem
    ray.init(log_to_driver=False)
    made = {name: engine(name) for name in (LOST if how == "losses" else (how, f"{how}-other"))}
    if how == "losses":
        ray.get(made["owner"].make.remote())
    Path(sys.argv[1]).write_text(str(os.getpid()))
    while not Path(f"{sys.argv[1]}.go").exists():
        time.sleep(0.05)
    if how == "losses":
        losses(made)
    end(how, made)


def end(how: str, made: dict[str, Any]) -> None:
    if how in ("losses", "waits", "killed", "interrupted"):
        time.sleep(600)
    if how == "raises":
        raise ValueError("no data")
    if how == "builds":
        ray.get(_broken.options(name="broken").remote().pid.remote())
    if how == "unpacks":
        bare = _engines.options(name="bare", runtime_env=NOT_THERE).remote()
        ray.get(bare.pid.remote())
    if how == "falls":
        for step in range(10):
            ray.get([made[how].generate.remote(step), made[f"{how}-other"].pid.remote()])
    if how in BY_TASKS:
        ray.get(BY_TASKS[how]())
    if how == "misses":
        ends_first(made["misses-other"], signal.SIGKILL)
        while True:
            ray.get([actor.pid.remote() for actor in made.values()])


main()
