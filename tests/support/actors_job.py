"""A job on plain Ray actors over gloo without a line of ray_sentinel. argv: folder, workers, how.

``how``: "environ" sets RANK in os.environ, "silent" tells only torch which rank it is.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path

import ray


@ray.remote(num_cpus=0, scheduling_strategy="SPREAD")
class Trainer:
    def __init__(self, rank: int, size: int, port: int, how: str) -> None:
        self.rank, self.size, self.port = rank, size, port
        if how == "environ":
            os.environ.update(
                RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
            )

    def fit(self, folder: str) -> None:
        import torch
        import torch.distributed as dist

        address = f"tcp://127.0.0.1:{self.port}"
        dist.init_process_group("gloo", init_method=address, rank=self.rank, world_size=self.size)
        for step in range(10_000):
            time.sleep(0.2)
            dist.all_reduce(torch.ones(100))
            if step == 3:
                (Path(folder) / f"rank-{self.rank}").write_text(str(os.getpid()))


def main() -> None:
    folder, size, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    ray.init(log_to_driver=False)
    actors = [Trainer.remote(rank, size, port, how) for rank in range(size)]
    ray.get([actor.fit.remote(folder) for actor in actors])


if __name__ == "__main__":
    main()
