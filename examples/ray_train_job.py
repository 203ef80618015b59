"""A Ray Train job, watched: the driver and every worker attach; nothing else changes.

Run it with ``python examples/ray_train_job.py``, or supervised, with STORAGE a folder that all
nodes see: ``ray-sentinel run --job ray-train-example --checkpoint-dir $STORAGE/ray-train-example
-- python examples/ray_train_job.py``. It resumes from RAY_SENTINEL_CHECKPOINT where that is set;
STEPS is how many it makes (100).
"""

import os
import tempfile

import ray
import torch
from ray import train
from ray.train import Checkpoint, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, get_device, prepare_model

import ray_sentinel

JOB = "ray-train-example"


def train_loop(config: dict) -> None:
    sentinel = ray_sentinel.attach(job=JOB)
    model = prepare_model(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    begin = 0
    if config["resume"]:
        with sentinel.phase("model_load"):
            file = os.path.join(config["resume"], "model.pt")
            state = torch.load(file, map_location=get_device())
            model.load_state_dict(state["model"])
            begin = state["step"]
    for step in range(begin + 1, config["steps"] + 1):
        inputs = torch.randn(32, 8, device=get_device())
        loss = torch.nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        sentinel.step(step, loss=loss.item())
        if step % 20 == 0:
            with sentinel.phase("checkpoint"), tempfile.TemporaryDirectory() as folder:
                if train.get_context().get_world_rank() == 0:
                    state = {"model": model.state_dict(), "step": step}
                    torch.save(state, os.path.join(folder, "model.pt"))
                    train.report({"loss": loss.item()}, checkpoint=Checkpoint(folder))
                else:
                    train.report({"loss": loss.item()})


if __name__ == "__main__":
    ray.init(include_dashboard=False)
    watcher = ray_sentinel.attach(job=JOB)
    watcher.wait(60)
    gpus = ray.cluster_resources().get("GPU", 0) >= 2
    trainer = TorchTrainer(
        train_loop,
        train_loop_config={
            "steps": int(os.environ.get("STEPS", "100")),
            "resume": os.environ.get("RAY_SENTINEL_CHECKPOINT", ""),
        },
        scaling_config=ScalingConfig(num_workers=2, use_gpu=gpus),
        run_config=RunConfig(name=JOB, storage_path=os.environ.get("STORAGE") or None),
    )
    print(trainer.fit().metrics)
    print(watcher.status().verdict)
