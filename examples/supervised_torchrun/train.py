"""A data-parallel training that saves, resumes, and says what it does. See run.sh.

torchrun --nproc-per-node 2 train.py --folder /tmp/ckpt --steps 200 --resume ""
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import ray_sentinel


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True, help="where checkpoints go")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--every", type=int, default=20, help="steps between two checkpoints")
    parser.add_argument("--resume", default="", help="a checkpoint's folder; empty: the beginning")
    parser.add_argument("--crash-at", type=int, default=0, help="the first attempt fails there")
    return parser.parse_args()


def save(folder: Path, step: int, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Whole or not at all: the folder gets its name last."""
    partial = folder / f"tmp-step_{step}"
    partial.mkdir(parents=True, exist_ok=True)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    torch.save(state, partial / "model.pt")
    partial.rename(folder / f"step_{step}")


def main() -> None:
    args = parse()
    gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if gpu else "gloo")
    rank = dist.get_rank()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if gpu else torch.device("cpu")
    sentinel = ray_sentinel.attach()

    torch.manual_seed(0)
    model = torch.nn.Linear(32, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    begin = 0
    if args.resume:
        with sentinel.phase("model_load"):
            state = torch.load(Path(args.resume) / "model.pt", map_location=device)
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            begin = state["step"]
    parallel = DistributedDataParallel(model)
    batches = torch.Generator().manual_seed(1000 + rank)

    for step in range(begin + 1, args.steps + 1):
        inputs = torch.randn(64, 32, generator=batches).to(device)
        loss = torch.nn.functional.mse_loss(parallel(inputs), inputs.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        sentinel.step(step, loss=loss.item())
        if rank == 0 and step % 10 == 0:
            print(f"step {step} loss {loss.item():.5f}", flush=True)
        if step == args.crash_at and os.environ.get("RAY_SENTINEL_ATTEMPT", "0") == "0":
            raise RuntimeError("as asked for with --crash-at")
        if step % args.every == 0:
            with sentinel.phase("checkpoint"):
                if rank == 0:
                    save(args.folder, step, model, optimizer)
                dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
