"""Real failures of real programs, and what triage says of the logs they leave."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_sentinel.logs.catalogue import load_catalogue
from ray_sentinel.logs.triage import triage_path
from ray_sentinel.model.triage import Triage
from tests.support.parts import require_module
from tests.support.small_disk import small_disk as mounted

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
require_module("torch")

DEADLINE = 200.0
TRAIN = """
import datetime, os, signal, sys, time
import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=30))
weight = torch.ones(8)
for step in range(1, 60):
    fault(rank, step, weight)
    grad = weight * 0.5
    dist.all_reduce(grad)
    if rank == 0:
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
        print(f"{now} step: {step} loss: {weight.sum().item() * 0.1:.4f} time: 0.01s", flush=True)
    time.sleep(0.01)
print(f"rank {rank}: done", flush=True)
if rank == 0:
    print("Training completed", flush=True)
dist.destroy_process_group()
"""


def torchrun(
    tmp_path: Path, fault: str, *, ranks: int = 2, options: tuple[str, ...] = (), **env: str
) -> Triage:
    """Run a small job whose ``fault(rank, step, weight)`` has the given body; triage its output."""
    script = tmp_path / "train.py"
    body = textwrap.indent(textwrap.dedent(fault), "    ")
    script.write_text(f"def fault(rank, step, weight):\n{body}\n{TRAIN}")
    command = [
        sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}", *options,
        str(script),
    ]  # fmt: skip
    return triage_output(command, tmp_path, **env)


def triage_output(command: list[str], tmp_path: Path, **env: str) -> Triage:
    log = tmp_path / "job.log"
    clean = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    environment = {**clean, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **env}
    with log.open("wb") as out:
        subprocess.run(
            command, stdout=out, stderr=subprocess.STDOUT, timeout=DEADLINE, check=False,
            env=environment, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    answer = triage_path(log, load_catalogue())
    assert answer.evidence, log.read_text()[-2000:]
    return answer


@pytest.fixture
def port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


STANDALONE = ("--standalone",)


def test_an_exception_on_one_rank(tmp_path: Path) -> None:
    answer = torchrun(tmp_path, "if rank == 1 and step == 20: [][3]", options=STANDALONE)
    assert (answer.kind, answer.culprits[0].rank) == ("python-exception", 1)
    assert answer.exception is not None
    assert answer.exception.kind == "IndexError"
    assert answer.progress.last_step in (19, 20)


def test_a_rank_that_is_killed(tmp_path: Path) -> None:
    answer = torchrun(
        tmp_path,
        "if rank == 1 and step == 20: os.kill(os.getpid(), signal.SIGKILL)",
        options=STANDALONE,
    )
    assert (answer.kind, answer.culprits[0].rank) == ("signal-kill", 1)
    assert "SIGKILL" in answer.culprits[0].reason


def test_a_crash_in_native_code(tmp_path: Path) -> None:
    answer = torchrun(
        tmp_path,
        "if rank == 1 and step == 20: os.kill(os.getpid(), signal.SIGSEGV)",
        options=STANDALONE,
    )
    assert (answer.kind, answer.culprits[0].rank) == ("signal-kill", 1)


def test_a_rank_that_does_not_come_to_the_collective(tmp_path: Path) -> None:
    sleeps = "if rank == 1 and step == 20: time.sleep(60)"
    answer = torchrun(tmp_path, sleeps, ranks=3, options=STANDALONE)
    assert answer.kind in ("nccl-timeout", "python-exception")
    assert all(culprit.rank != 0 or answer.kind != "nccl-timeout" for culprit in answer.culprits)


def test_a_run_that_goes_well(tmp_path: Path) -> None:
    answer = torchrun(tmp_path, "pass", options=STANDALONE)
    assert (answer.kind, answer.culprits) == ("completed", ())
    assert answer.progress.last_step == 59


def test_a_loss_that_is_no_number(tmp_path: Path) -> None:
    answer = torchrun(tmp_path, "if step == 30: weight.fill_(float('nan'))", options=STANDALONE)
    assert answer.kind == "nan-loss"


def test_a_port_that_is_taken(tmp_path: Path, port: int) -> None:
    options = ("--master-addr=127.0.0.1", f"--master-port={port}")
    answer = torchrun(tmp_path, "pass", options=options)
    assert answer.kind == "port-in-use"


def test_nodes_that_do_not_join(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = free.getsockname()[1]
    options = (
        "--nnodes=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{number}",
        "--rdzv-id=x", "--rdzv-conf=join_timeout=5,timeout=5",
    )  # fmt: skip
    answer = torchrun(tmp_path, "pass", options=options)
    assert (answer.kind, answer.culprits) == ("rendezvous", ())


def test_a_script_without_a_launcher(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text('import torch.distributed as dist\ndist.init_process_group("gloo")\n')
    answer = triage_output([sys.executable, str(script)], tmp_path)
    assert (answer.kind, answer.culprits) == ("missing-env", ())


def test_a_checkpoint_that_does_not_fit_the_model(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\n"
        "torch.save(torch.nn.Linear(3, 4).state_dict(), 'm.pt')\n"
        "torch.nn.Linear(5, 6).load_state_dict(torch.load('m.pt'))\n"
    )
    answer = triage_output(["sh", "-c", f"cd {tmp_path} && {sys.executable} train.py"], tmp_path)
    assert answer.kind == "checkpoint-load"


def test_a_checkpoint_that_is_cut_off(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\n"
        "torch.save(torch.ones(1000), 'm.pt')\n"
        "data = open('m.pt', 'rb').read()\n"
        "open('m.pt', 'wb').write(data[: len(data) // 2])\n"
        "torch.load('m.pt')\n"
    )
    answer = triage_output(["sh", "-c", f"cd {tmp_path} && {sys.executable} train.py"], tmp_path)
    assert answer.kind == "checkpoint-load"


def test_a_dataloader_worker_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent(
            """
            import os, signal
            from torch.utils.data import DataLoader, Dataset

            class Data(Dataset):
                def __len__(self):
                    return 100
                def __getitem__(self, index):
                    if index == 50:
                        os.kill(os.getpid(), signal.SIGKILL)
                    return index

            if __name__ == "__main__":
                for batch in DataLoader(Data(), batch_size=4, num_workers=2):
                    pass
            """
        )
    )
    answer = triage_output([sys.executable, str(script)], tmp_path)
    assert answer.kind == "data-loading"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    with mounted(tmp_path / "small", "4m") as folder:
        yield folder


def test_a_full_disk(tmp_path: Path, small_disk: Path) -> None:
    answer = torchrun(
        tmp_path,
        f"if rank == 0 and step == 20: torch.save(torch.ones(4_000_000), {str(small_disk / 'step_20.pt')!r})",  # noqa: E501
        options=STANDALONE,
    )
    assert answer.kind in ("checkpoint-fs-error", "storage")
    assert answer.culprits[0].rank == 0


def test_plain_no_space_left(tmp_path: Path, small_disk: Path) -> None:
    code = f"open({str(small_disk / 'x')!r}, 'wb').write(bytes(10 << 20))"
    answer = triage_output([sys.executable, "-c", code], tmp_path)
    assert answer.kind == "storage"
    assert os.strerror(errno.ENOSPC) in answer.evidence[0].text


def test_host_memory_that_is_limited(tmp_path: Path) -> None:
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))\n"
        "x = bytearray(16 << 30)"
    )
    answer = triage_output([sys.executable, "-c", code], tmp_path)
    assert answer.kind == "oom-host"
