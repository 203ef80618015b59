"""Jobs of Ray's own libraries: Data that feeds Train, Serve, Tune."""

from __future__ import annotations

import itertools
import os
import time
from typing import Any

from x_part import x_FOLDER, x_note, x_Part, x_PLAN
from x_report import report

x_SIZES: dict[str, int] = x_PLAN["sizes"]
x_BATCH = 8


def x_last(step: int) -> bool:
    return bool(x_PLAN["how"] == "end-return" and step > x_PLAN["step"])


def x_shape(batch: dict[str, Any]) -> dict[str, Any]:
    """Makes one batch of the training's input."""
    mapper = x_Part("mapper", 0)
    mapper.x_at("call", int(batch["id"].max()) // x_BATCH)
    time.sleep(0.05)
    return batch


def x_learn(config: dict[str, Any]) -> None:
    import ray.train
    import torch
    import torch.distributed as dist

    rank = ray.train.get_context().get_world_rank()
    part = x_Part("rank", rank)
    shard = ray.train.get_dataset_shard("train")
    for _ in itertools.count():
        for batch in shard.iter_torch_batches(batch_size=x_BATCH):
            part.x_begin()
            part.x_work()
            dist.all_reduce(torch.ones(1024) * len(batch))
            report(part.x_calls)
            if rank == 0:
                (x_FOLDER / "moved").write_text(repr(time.time()))
                if part.x_calls == 3:
                    x_note("steady", time.time())
            # All ranks have as many batches, so that all leave at the same one.
            if x_last(part.x_calls):
                return


def x_feed() -> None:
    import ray.data
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    rows = x_BATCH * 100
    made = ray.data.range(rows, override_num_blocks=50).map_batches(
        x_shape, batch_size=x_BATCH, num_cpus=0.25
    )
    TorchTrainer(
        x_learn,
        datasets={"train": made},
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(
            num_workers=x_SIZES["rank"], resources_per_worker={"CPU": 0.5}
        ),
        run_config=RunConfig(storage_path=str(x_FOLDER / "kept"), name="x_run"),
    ).fit()


class x_Replica:
    """Answers; a deployment of Serve has as many as it needs."""

    def __init__(self) -> None:
        number = 0
        while not x_note(f"replica-{number}", os.getpid()):
            number += 1
        self.x_part = x_Part("replica", number)

    def __call__(self, item: int) -> int:
        self.x_part.x_begin()
        self.x_part.x_work()
        return item


def x_serve() -> None:
    from ray import serve

    serve.start(http_options={"location": "NoServer"})
    deployment = serve.deployment(
        x_Replica,
        num_replicas=x_SIZES["replica"],
        ray_actor_options={"num_cpus": 0.1},
        graceful_shutdown_timeout_s=0.5,
    )
    handle = serve.run(deployment.bind(), name="x_answers", route_prefix=None)
    for step in itertools.count():
        for answer in [handle.remote(item) for item in range(4)]:
            answer.result()
        if step == 3:
            x_note("steady", time.time())
        if x_last(step):
            serve.shutdown()
            return


def x_try(config: dict[str, Any]) -> None:
    from ray import tune

    part = x_Part("trial", config["number"])
    while not x_last(part.x_calls):
        part.x_begin()
        part.x_work()
        tune.report({"score": part.x_calls})
        if part.x_calls == 3:
            x_note("steady", time.time())


def x_tune() -> None:
    from ray import tune

    numbers = list(range(x_SIZES["trial"]))
    tune.Tuner(
        tune.with_resources(x_try, {"cpu": 0.5}),
        param_space={"number": tune.grid_search(numbers)},
        run_config=tune.RunConfig(storage_path=str(x_FOLDER / "kept"), name="x_search", verbose=0),
    ).fit()
