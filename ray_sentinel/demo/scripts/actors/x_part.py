"""A member of the job: who it is, and what the plan has it do to itself."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from x_ways import x_OWN_WAYS

x_FOLDER = Path(__file__).resolve().parent
x_PLAN: dict[str, Any] = json.loads((x_FOLDER / "plan.json").read_text())
x_SECONDS: float = x_PLAN["step_seconds"]
x_CGROUP = Path("/sys/fs/cgroup")


class x_Part:
    """``x_role`` and ``rank`` are what the plan calls it by: "rollout" and 2."""

    def __init__(self, role: str, number: int) -> None:
        self.x_role, self.rank = role, number
        self.x_calls = 0
        self.x_in_trouble = False
        os.chdir(x_FOLDER)
        self.x_sign()
        self.x_at("constructor", x_PLAN["step"])

    def x_sign(self) -> None:
        """Which process it is; a task may be another one each time, until one is in trouble."""
        if not (x_FOLDER / f"began-{self.x_name}").exists() or self.x_in_trouble:
            (x_FOLDER / f"process-{self.x_name}").write_text(repr(os.getpid()))

    @property
    def x_name(self) -> str:
        return f"{self.x_role}-{self.rank}"

    @property
    def variant(self) -> int:
        return int(x_PLAN["variant"])

    def x_begin(self) -> None:
        """The beginning of one more of its calls."""
        self.x_calls += 1
        self.x_at("call", self.x_calls)

    def x_at(self, place: str, step: int) -> None:
        """Get into trouble if this is the place and the step for it."""
        if x_PLAN["culprit"] == self.x_name and place == x_PLAN["place"] and step == x_PLAN["step"]:
            way = x_MEMBER_WAYS.get(x_PLAN["how"])
            if way is not None and x_note(f"began-{self.x_name}", time.time()):
                self.x_in_trouble = True
                self.x_sign()
                way(self)

    def x_work(self) -> None:
        """One usual call's work, in small steps."""
        seconds = x_SECONDS
        mine = x_PLAN["culprit"] == self.x_name
        if mine and x_PLAN["how"] == "slow":
            x_note(f"began-{self.x_name}", time.time())
            seconds *= 5
        if mine and x_PLAN["how"] == "long" and self.x_calls == x_PLAN["step"]:
            x_note("began-healthy", time.time())
            seconds *= 100
        x_compute(seconds)
        self.x_at("deep", self.x_calls)


def x_compute(seconds: float) -> int:
    """Token after token: a little work, and a little waiting for a device."""
    tokens, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        tokens += sum(range(2000)) % 7
        time.sleep(0.02)
    return tokens


def x_note(name: str, value: object) -> bool:
    """Write it down once; False where it had been written before."""
    try:
        with open(x_FOLDER / name, "x") as file:
            file.write(repr(value))
    except FileExistsError:
        return False
    return True


def x_make(kind: type, role: str, number: int, *arguments: Any, **options: Any) -> Any:
    """An actor of the class ``kind``, which is told its number first."""
    given: dict[str, Any] = {"num_cpus": 0, "scheduling_strategy": "SPREAD", **options}
    if x_PLAN["named"] or "lifetime" in options:  # who is detached needs a name
        given["name"] = f"{x_PLAN['called'].get(role, role)}_{number}"
    groups = getattr(kind, "x_groups", None)
    remote = ray.remote(concurrency_groups=groups)(kind) if groups else ray.remote(kind)
    return remote.options(**given).remote(number, *arguments)


def x_exit(part: Any) -> None:
    os._exit(3)


def x_devour(part: Any) -> None:
    """More memory than the cgroup has that the process goes into."""
    version_1 = x_CGROUP / "memory"
    group = (version_1 if version_1.is_dir() else x_CGROUP) / f"demo-{os.getpid()}"
    group.mkdir()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    limit = "memory.limit_in_bytes" if version_1.is_dir() else "memory.max"
    (group / limit).write_text(str(resident + (64 << 20)))
    (group / "cgroup.procs").write_text(str(os.getpid()))
    held = []
    while True:
        held.append(os.urandom(1 << 20))


x_MEMBER_WAYS: dict[str, Callable[[Any], None]] = {
    **x_OWN_WAYS,
    "exit": x_exit,
    "oom": x_devour,
}
