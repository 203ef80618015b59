"""Jobs of Ray actors, without process groups, that stand still at one place. argv: which.

``asleep``: a driver waits for trainers that wait for a rollout that sleeps for ever. ``circle``:
two actors wait for each other. ``async``: coroutines of a front end wait for an engine that sleeps.
``group``: a placement group that no node can hold. ``queue``: a trainer waits at a queue into which
a coroutine has put some samples, and ended. ``flight``: two calls that work are in flight,
one that only computes and one that mostly waits for a device, and the driver takes whichever ends
first.
"""

from __future__ import annotations

import asyncio
import sys
import time

import ray
from ray.util import placement_group
from ray.util.queue import Queue


@ray.remote(num_cpus=0)
class Rollout:
    def __init__(self, number: int) -> None:
        self.number = number

    def generate(self, step: int) -> int:
        if self.number == 2 and step == 3:
            self.score()
        return step

    def score(self) -> None:
        time.sleep(10_000)

    def work(self) -> None:
        while True:
            sum(range(1000))
            if self.number:
                time.sleep(0.02)


@ray.remote(num_cpus=0)
class Trainer:
    def __init__(self, rollouts: list) -> None:
        self.rollouts = rollouts

    def update(self, step: int) -> int:
        ray.get([rollout.generate.remote(step) for rollout in self.rollouts])
        return step

    def ask(self, other: list, back: list) -> object:
        return ray.get(other[0].answer.remote(back))

    def answer(self, other: list) -> object:
        return ray.get(other[0].update.remote(0))


@ray.remote(num_cpus=0)
class Front:
    def __init__(self, engine: list) -> None:
        self.engine = engine

    async def serve(self) -> object:
        return await self.engine[0].score.remote()


def asleep() -> None:
    rollouts = [Rollout.remote(number) for number in range(3)]
    trainers = [Trainer.remote(rollouts) for _ in range(2)]
    for step in range(10_000):
        ray.get([trainer.update.remote(step) for trainer in trainers])


def circle() -> None:
    one, other = Trainer.remote([]), Trainer.remote([])
    ray.get(one.ask.remote([other], [one]))


def coroutines() -> None:
    engine = Rollout.remote(0)
    front = Front.remote([engine])
    ray.get([front.serve.remote() for _ in range(3)])


@ray.remote(num_cpus=0)
class Producer:
    async def run(self, queue: Queue) -> None:
        for step in range(12):
            await asyncio.sleep(0.3)
            await queue.put_async(step)


@ray.remote(num_cpus=0)
class Consumer:
    def fit(self, queue: Queue) -> None:
        while True:
            queue.get()


def starved() -> None:
    queue = Queue(actor_options={"num_cpus": 0})
    producer, consumer = Producer.remote(), Consumer.remote()
    ray.get([one.__ray_ready__.remote() for one in (producer, consumer)])
    fitting = consumer.fit.remote(queue)  # it waits for each of them
    ray.get([fitting, producer.run.remote(queue)])


def group() -> None:
    ray.get(placement_group([{"CPU": 500}, {"CPU": 1}], name="trainers").ready())


def flight() -> None:
    waiting = [Rollout.remote(number).work.remote() for number in range(2)]
    ray.wait(waiting, num_returns=1)


JOBS = {
    "asleep": asleep,
    "circle": circle,
    "async": coroutines,
    "group": group,
    "queue": starved,
    "flight": flight,
}

if __name__ == "__main__":
    ray.init(log_to_driver=False)
    JOBS[sys.argv[1]]()
