"""One real collective over all nodes: NCCL where GPUs are, gloo elsewhere.

Each node runs this file as a program of its own, with PyTorch, under a deadline:
``python -m ray_sentinel.doctor.collective`` with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. It
prints one line of JSON, a ``Reduced``.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping

import msgspec

from ray_sentinel import process
from ray_sentinel.process import python_module

SECONDS = 90.0
"""Seconds that every node may take to import PyTorch, form the group and receive the sum."""
JOIN_SECONDS = 45.0
"""Seconds to wait for the other nodes to join."""
ELEMENTS = 1 << 22
"""Number of floats that are summed: 16 MiB, so that more than one packet and channel is used."""


class Reduced(msgspec.Struct, frozen=True, kw_only=True):
    """How one node's part went."""

    host: str = ""
    backend: str = ""
    """"nccl" or "gloo"; empty if there is no PyTorch."""
    gpus: int = 0
    join_seconds: float | None = None
    seconds: float | None = None
    """Seconds that one sum of ``ELEMENTS`` floats took; None if it did not end."""
    problem: str = ""


def reduce_here(
    host: str, rank: int, size: int, address: str, port: int, environ: Mapping[str, str]
) -> Reduced:
    """Run this node's part and return its result."""
    # Ray hides the GPUs from an actor that has reserved none.
    mine = {name: value for name, value in environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    mine |= {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
    }
    ended = process.run(python_module("ray_sentinel.doctor.collective"), deadline=SECONDS, env=mine)
    lines = ended.stdout.decode("utf-8", "replace").strip().splitlines()
    if ended.ok and lines:
        try:
            return msgspec.structs.replace(msgspec.json.decode(lines[-1], type=Reduced), host=host)
        except (ValueError, RecursionError):
            pass
    late = f"it did not end within {SECONDS:.0f} s: nodes do not hear each other"
    return Reduced(host=host, problem=late if ended.timed_out else ended.explain())


def main() -> int:
    """Join, sum once to warm up and once to be timed, and check the sum."""
    try:
        import torch
        import torch.distributed as dist
    except ImportError as error:
        return _print_answer({"problem": f"no PyTorch: {error}"})
    from datetime import timedelta

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    nccl = torch.cuda.is_available() and dist.is_nccl_available()
    backend = "nccl" if nccl else "gloo"
    try:
        begun = time.monotonic()
        dist.init_process_group(backend, timeout=timedelta(seconds=JOIN_SECONDS))
        values = torch.full((ELEMENTS,), float(rank + 1), device="cuda:0" if nccl else "cpu")
        dist.all_reduce(values)
        joined = time.monotonic()
        again = torch.full_like(values, float(rank + 1))
        dist.all_reduce(again)
        if nccl:
            torch.cuda.synchronize()
        ended = time.monotonic()
        right = bool((again == size * (size + 1) / 2).all())
        dist.destroy_process_group()
    except (RuntimeError, OSError, ValueError) as error:
        problem = str(error).strip().splitlines()[0][:300] if str(error) else repr(error)
        return _print_answer({"backend": backend, "problem": problem})
    answer = {
        "backend": backend,
        "gpus": torch.cuda.device_count() if nccl else 0,
        "join_seconds": joined - begun,
        "seconds": ended - joined,
        "problem": "" if right else "the sum that came back is wrong",
    }
    return _print_answer(answer)


def _print_answer(answer: Mapping[str, object]) -> int:
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
