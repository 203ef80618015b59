"""Twenty lines of a user's own: a training over Ray, watched, in which one rank gets stuck.

Run it with ``python examples/quickstart.py``, on one machine: not with RAY_ADDRESS set to a cluster
of several nodes. It ends by itself after the verdict.
"""

import os
import socket
import time

import ray
import torch
import torch.distributed as dist

import ray_sentinel

WORLD = 4


@ray.remote(num_cpus=0)
def train(rank: int, port: int) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    sentinel = ray_sentinel.attach(job="quickstart", rank=rank, world_size=WORLD)
    for step in range(10_000):
        time.sleep(0.2 if (rank, step) != (2, 60) else 3600)  # rank 2 gets stuck in step 60
        dist.all_reduce(torch.ones(1000))
        sentinel.step(step)


if __name__ == "__main__":
    ray.init(include_dashboard=False)
    watcher = ray_sentinel.attach(job="quickstart")
    watcher.wait(60)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    ranks = [train.remote(rank, port) for rank in range(WORLD)]
    deadline = time.monotonic() + 120
    incidents = watcher.incidents()
    while not any(found.bundle for found in incidents) and time.monotonic() < deadline:
        time.sleep(1)
        incidents = watcher.incidents()
    print(incidents[0].summary if incidents else "no verdict came")
    print(incidents[0].bundle if incidents else "")
