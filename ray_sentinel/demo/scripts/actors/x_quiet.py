"""Jobs without a rhythm: a notebook, one call that takes hours, loops in the background."""

from __future__ import annotations

import asyncio
import code
import queue
import threading
import time
from collections.abc import Callable

import ray
from ray.util.queue import Queue
from x_calling import x_Worker
from x_part import x_compute, x_FOLDER, x_make, x_note, x_Part, x_PLAN

x_LONG: float = x_PLAN["seconds"]


class x_Poller(x_Part):
    """Has one method that takes as long as the job does."""

    def __init__(self, number: int) -> None:
        super().__init__("poller", number)

    def x_poll(self, pause: float) -> int:
        """Look again and again whether something has come."""
        end, looks = time.monotonic() + x_LONG, 0
        while time.monotonic() < end and not (x_FOLDER / "arrived").exists():
            looks += 1
            time.sleep(min(pause, max(0.0, end - time.monotonic())))
        return looks

    def x_take(self, shared: Queue | None) -> object:
        """Take from a queue into which nothing comes for a long time."""
        if shared is not None:
            return shared.get()
        own: queue.Queue[str] = queue.Queue()
        threading.Timer(x_LONG, own.put, ["at last"]).start()
        return own.get()

    def x_spin_slowly(self) -> None:
        while True:
            x_compute(0.2)
            time.sleep(0.5)


def x_one_call(pause: float) -> Callable[[], None]:
    def wait() -> None:
        poller = x_make(x_Poller, "poller", 0)
        x_note("began-healthy", time.time())
        ray.get(poller.x_poll.remote(pause))

    return wait


def x_consume() -> None:
    poller = x_make(x_Poller, "poller", 0)
    x_note("began-healthy", time.time())
    if x_PLAN["variant"] % 2:
        ray.get(poller.x_take.remote(None))
        return
    shared = Queue(actor_options={"num_cpus": 0})
    waiting = poller.x_take.remote(shared)
    threading.Timer(x_LONG, shared.put, ["at last"]).start()
    ray.get(waiting)


def x_loops() -> None:
    """Fire and forget."""
    pollers = [x_make(x_Poller, "poller", n) for n in range(2)]
    for poller in pollers:
        poller.x_spin_slowly.remote()
    worker = x_make(x_Worker, "worker", 0)
    x_note("began-healthy", time.time())
    end = time.monotonic() + x_LONG
    while time.monotonic() < end:
        ray.get(worker.x_do.remote(1))


x_CELLS = (
    "import ray\nfrom x_part import x_make, x_note\nfrom x_calling import x_Worker\n",
    "workers = [x_make(x_Worker, 'worker', n) for n in range(2)]\n",
    "print(ray.get([worker.x_do.remote(1) for worker in workers for _ in range(4)]))\n",
    "x_note('began-healthy', __import__('time').time())\n",
    "print(ray.get([worker.x_do.remote(2) for worker in workers for _ in range(6)]))\n",
    "kept = ray.put(list(range(1000)))\n",
)


async def x_kernel_loop() -> None:
    """What a notebook's kernel does: it rests in its event loop until the next cell comes, at ports
    where its front end asks."""
    await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    console = code.InteractiveInterpreter()
    for number, cell in enumerate(x_CELLS):
        # The person reads and thinks.
        await asyncio.sleep(0.5 if number < 3 else x_LONG / 3)
        console.runsource(cell, symbol="exec")


def x_notebook() -> None:
    asyncio.run(x_kernel_loop())


x_QUIET: dict[str, Callable[[], None]] = {
    "polls": x_one_call(0.5),
    "sleeps": x_one_call(25.0),
    "queue": x_consume,
    "background": x_loops,
    "notebook": x_notebook,
}
