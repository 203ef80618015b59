"""A job of Ray Train over gloo without a line of ray_sentinel. argv: folder, run, workers.

Where ``folder/stuck-RANK`` appears, that rank falls asleep.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any


def loop(config: dict[str, Any]) -> None:
    import ray.train
    import torch
    import torch.distributed as dist

    rank = ray.train.get_context().get_world_rank()
    for step in range(10_000):
        time.sleep(0.2)
        if (Path(config["folder"]) / f"stuck-{rank}").exists():
            time.sleep(600)
        dist.all_reduce(torch.ones(100))
        if step == 3:
            (Path(config["folder"]) / f"rank-{rank}").write_text(str(os.getpid()))


def main() -> None:
    import ray
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    folder, run, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    ray.init(log_to_driver=False)
    TorchTrainer(
        loop,
        train_loop_config={"folder": folder},
        scaling_config=ScalingConfig(num_workers=count, resources_per_worker={"CPU": 1}),
        run_config=RunConfig(name=run, storage_path=f"{folder}/storage"),
    ).fit()


if __name__ == "__main__":
    main()
