"""A stand-in of SkyRL on CPUs. argv: a folder, in which a file ``stuck`` is the sign for trouble.

Classes, variables and lines are SkyRL's: all is driven by a task, ``skyrl_entrypoint``; actors set
their ranks in ``os.environ`` when they run already, and send their output to one file. Only, its
engines are asked by HTTP where the job says so; here by calls.
"""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import ray

FOLDER = Path(sys.argv[-1])
STEPS = 10_000


def redirect_actor_output_to_file() -> None:
    with open(os.environ["SKYRL_LOG_FILE"], "a", buffering=1) as log:
        os.dup2(log.fileno(), sys.stdout.fileno())
        os.dup2(log.fileno(), sys.stderr.fileno())


@ray.remote(num_cpus=0)
class FSDPPolicyWorkerBase:
    def __init__(self, size: int, rank: int, address: str, port: int) -> None:
        self.rank, self.address, self.port = rank, address or "127.0.0.1", port or free_port()
        os.environ.update(
            MASTER_ADDR=self.address,
            MASTER_PORT=str(self.port),
            WORLD_SIZE=str(size),
            RANK=str(rank),
            LOCAL_RANK="0",
        )
        redirect_actor_output_to_file()

    def get_master_addr_port(self) -> tuple[str, int]:
        return self.address, self.port

    def init_worker_process_group(self, folder: str) -> None:
        import torch.distributed

        torch.distributed.init_process_group("gloo")
        Path(folder, f"rank-{self.rank}").write_text(str(os.getpid()))

    def forward_backward(self, step: int) -> float:
        import torch.distributed

        loss = torch.ones(1000)
        torch.distributed.all_reduce(loss)
        time.sleep(0.2)
        print(f"rank {self.rank} has trained", flush=True)
        return float(loss[0])


@ray.remote(num_cpus=0)
class VLLMServerActor:
    def __init__(self, number: int, folder: str) -> None:
        self.number, self.sign = number, Path(folder, "stuck")
        redirect_actor_output_to_file()

    async def generate(self, step: int) -> int:
        await asyncio.sleep(0.2)
        if self.number == 1 and self.sign.exists():
            self.detokenize()
        return step

    def detokenize(self) -> None:
        time.sleep(10_000)


@contextmanager
def timer(what: str) -> Iterator[None]:
    begun = time.monotonic()
    log(f"__enter__:95 - Started: '{what}'")
    yield
    log(f"__exit__:101 - Finished: '{what}', time cost: {time.monotonic() - begun:.2f}s")


def log(text: str) -> None:
    print(f"{time.strftime('%F %T')}.123 | INFO     | skyrl.train.utils.utils:{text}", flush=True)


@ray.remote(num_cpus=0)
def skyrl_entrypoint(folder: str) -> None:
    first = FSDPPolicyWorkerBase.remote(2, 0, "", 0)
    address, port = ray.get(first.get_master_addr_port.remote())
    policy = [first, FSDPPolicyWorkerBase.remote(2, 1, address, port)]
    servers = [VLLMServerActor.remote(number, folder) for number in range(2)]
    ray.get([worker.init_worker_process_group.remote(folder) for worker in policy])
    for step in range(1, STEPS):
        with timer("step"):
            with timer("generate"):
                ray.get([server.generate.remote(step) for server in servers])
            with timer("policy_train"):
                ray.get([worker.forward_backward.remote(step) for worker in policy])
        share = 100 * step // STEPS
        print(f"Training Batches Processed: {share}%|#   | {step}/{STEPS} [00:10<20:00, 1.0s/it]")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def main() -> None:
    variables = {
        "GLOO_SOCKET_IFNAME": "lo",
        "SKYRL_LOG_FILE": str(FOLDER / "infra.log"),
    }
    ray.init(address="auto", runtime_env={"env_vars": variables})
    ray.get(skyrl_entrypoint.remote(str(FOLDER)))


main()
