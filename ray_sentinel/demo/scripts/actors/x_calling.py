"""Jobs that are nothing but calls: tasks, nested actors, pools, circles, concurrency groups."""

from __future__ import annotations

import asyncio
import time
from typing import Any, ClassVar

import ray
from ray.exceptions import RayActorError
from ray.util import ActorPool
from x_part import x_make, x_note, x_Part, x_PLAN

x_SIZES: dict[str, int] = x_PLAN["sizes"]


def x_trouble_now(part: x_Part, step: int) -> bool:
    """Whether the job as a whole gets into trouble at this step; notes that it has."""
    now = bool(step == x_PLAN["step"])
    if now:
        x_note(f"began-{part.x_name}", time.time())
    return now


class x_Piece(x_Part):
    """A task's body."""

    def __init__(self, number: int, step: int) -> None:
        super().__init__("task", number)
        self.x_calls = step


@ray.remote(num_cpus=0.5, max_retries=0, scheduling_strategy="SPREAD")
def x_map(number: int, step: int) -> list[int]:
    piece = x_Piece(number, step)
    piece.x_at("call", step)
    piece.x_work()
    return [number] * 1000


@ray.remote(num_cpus=0.5, max_retries=0)
def x_reduce(*parts: list[int]) -> int:
    return sum(map(sum, parts))


class x_Tasks:
    """Map and reduce, round after round; no actor anywhere."""

    def x_iterate(self, step: int) -> None:
        parts = [x_map.remote(n, step) for n in range(x_SIZES["task"])]
        ray.get(x_reduce.remote(*parts))


class x_Worker(x_Part):
    def __init__(self, number: int) -> None:
        super().__init__("worker", number)

    def x_do(self, item: int) -> int:
        self.x_begin()
        self.x_work()
        return item

    def x_enter(self, step: int, front: list[Any]) -> int:
        """Called by a front end; once it calls back, into the group that waits for it."""
        self.x_begin()
        self.x_work()
        if x_PLAN["how"] == "circle" and x_trouble_now(self, step):
            ray.get(front[0].x_fetch.remote(step))
        return step


class x_Manager(x_Part):
    """Has workers of its own."""

    def __init__(self, number: int, workers: list[Any]) -> None:
        super().__init__("manager", number)
        self.x_workers = workers or [
            x_make(x_Worker, "worker", n) for n in range(x_SIZES["worker"])
        ]

    def x_run(self, step: int) -> int:
        self.x_begin()
        self.x_work()
        return sum(ray.get([worker.x_do.remote(step) for worker in self.x_workers]))


class x_Nested:
    """The driver calls a manager, which calls workers that it made, or that the driver made."""

    def __init__(self) -> None:
        more = {"lifetime": "detached"} if x_PLAN["how"] == "end-detached" else {}
        given = [x_make(x_Worker, "worker", n, **more) for n in range(x_SIZES["worker"])]
        idle = 2 if x_PLAN["how"] == "idle" else 0
        self.x_idle = [x_make(x_Worker, "worker", 90 + n) for n in range(idle)]
        if x_PLAN["variant"] % 2 and not more:
            given = []
        self.x_manager = x_make(x_Manager, "manager", 0, given, **more)

    def x_iterate(self, step: int) -> None:
        ray.get(self.x_manager.x_run.remote(step))


class x_Pooled:
    """Rounds of ``ActorPool.map_unordered``."""

    def __init__(self) -> None:
        more = {"lifetime": "detached"} if x_PLAN["how"] == "end-detached" else {}
        self.x_actors = [x_make(x_Worker, "worker", n, **more) for n in range(x_SIZES["worker"])]

    def x_iterate(self, step: int) -> None:
        pool = ActorPool(self.x_actors)
        list(pool.map_unordered(lambda actor, item: actor.x_do.remote(item), range(8)))


class x_Link(x_Part):
    """Of a chain; once it becomes a circle."""

    def __init__(self, number: int) -> None:
        super().__init__("link", number)
        self.x_next: list[Any] = []

    def x_tie(self, following: list[Any]) -> None:
        self.x_next = following

    def x_pull(self, step: int, left: int) -> int:
        """Pull at the next one, as long as some are ``left``."""
        self.x_begin()
        self.x_work()
        closed = left == 0 and step == x_PLAN["step"] and x_PLAN["how"] == "circle"
        if closed:
            x_trouble_now(self, step)
        if left or closed:
            return int(ray.get(self.x_next[0].x_pull.remote(step, left - 1)))
        return step


class x_Chained:
    """Two or three actors, each of which calls the next one."""

    def __init__(self) -> None:
        self.x_links = [x_make(x_Link, "link", n) for n in range(x_SIZES["link"])]
        turned = self.x_links[1:] + self.x_links[:1]
        ray.get([a.x_tie.remote([b]) for a, b in zip(self.x_links, turned, strict=True)])

    def x_iterate(self, step: int) -> None:
        ray.get(self.x_links[0].x_pull.remote(step, len(self.x_links) - 1))


class x_Front(x_Part):
    """Has two concurrency groups, and a place in each."""

    x_groups: ClassVar[dict[str, int]] = {"fetching": 1, "counting": 1}

    def __init__(self, number: int, workers: list[Any]) -> None:
        super().__init__("front", number)
        self.x_workers = workers

    @ray.method(concurrency_group="fetching")
    def x_fetch(self, step: int, own: list[Any] | None = None) -> int:
        self.x_begin()
        self.x_work()
        if own is None:
            return step
        return int(ray.get(self.x_workers[0].x_enter.remote(step, own)))

    @ray.method(concurrency_group="fetching")
    def x_flush(self, step: int) -> None:
        if x_PLAN["how"] == "fill" and x_trouble_now(self, step):
            self.x_write()

    def x_write(self) -> None:
        time.sleep(86_400)

    @ray.method(concurrency_group="counting")
    def x_count(self) -> int:
        return self.x_calls


class x_Grouped:
    """A front end with concurrency groups, and workers behind it."""

    def __init__(self) -> None:
        workers = [x_make(x_Worker, "worker", n) for n in range(x_SIZES["worker"])]
        self.x_front = x_make(x_Front, "front", 0, workers)

    def x_iterate(self, step: int) -> None:
        self.x_front.x_flush.remote(step)  # nobody waits for it
        ray.get(self.x_front.x_count.remote())
        ray.get(self.x_front.x_fetch.remote(step, [self.x_front]))


class x_Motor(x_Part):
    """An engine."""

    def __init__(self, number: int) -> None:
        super().__init__("engine", number)

    def x_answer(self, question: int) -> int:
        self.x_begin()
        self.x_work()
        return question


class x_Desk(x_Part):
    """A front end before engines: it takes many questions at once, and lets none fail."""

    def __init__(self, number: int) -> None:
        super().__init__("front", number)
        self.x_engines = [x_make(x_Motor, "engine", n) for n in range(x_SIZES["engine"])]

    async def x_ask(self, question: int) -> int:
        self.x_begin()
        engine = self.x_engines[question % len(self.x_engines)]
        self.x_at("deep", self.x_calls)
        while True:
            try:
                return int(await engine.x_answer.remote(question))
            except RayActorError:
                await asyncio.sleep(1.0)


class x_Desks:
    """Questions, some at a time, to a front end with engines."""

    def __init__(self) -> None:
        self.x_desk = x_make(x_Desk, "front", 0, max_concurrency=16)

    def x_iterate(self, step: int) -> None:
        ray.get([self.x_desk.x_ask.remote(n) for n in range(4)])
