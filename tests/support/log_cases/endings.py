# ruff: noqa: E501 - log lines are as long as they are
"""Endings that frameworks put in words of their own, and lines that came out of order."""

from __future__ import annotations

from tests.support.log_cases.parts import ANYBODY, Case, bad_batch, minutes


def _bars(loss: str, first: int = 0) -> str:
    return "".join(
        f"Epoch 0:  {n}%|####      | {n}/100 [00:{n:02d}<01:00,  1.00it/s, v_num=0, train_loss={loss}]\n"
        for n in range(first, first + 30)
    )


def _transformers(loss: str, norm: str) -> str:
    return "".join(
        f"{{'loss': {loss}, 'grad_norm': {norm}, 'learning_rate': 5e-05, 'epoch': 0.{n}}}\n"
        for n in range(10, 39)
    )


def _of_worker(rank: int, text: str) -> str:
    head = f"(RayTrainWorker pid={100 + rank}, ip=10.0.0.{(rank + 1) // 2}) [rank{rank}]: "
    return "".join(f"{head}{line}\n" for line in text.splitlines())


_PEER_WENT = """\
Traceback (most recent call last):
  File "/app/train.py", line 88, in step
    dist.all_reduce(x)
torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1970, remote process exited or there was a network error, NCCL version 2.19.3
ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.
"""
_CHILD = "[rank: 1] Child process with PID 2977 terminated with code {code}. Forcefully terminating all other processes to avoid zombies\n"

CASES: dict[str, Case] = {
    "a padded bar of nan": Case("nan-loss", ANYBODY, _bars("0.123") + _bars("nan.0", 30)),
    "a padded bar of inf": Case("nan-loss", ANYBODY, _bars("0.123") + _bars("inf.0", 30)),
    "transformers hides losses that are nan": Case(
        "nan-loss", ANYBODY, _transformers("1.5", "0.4") + _transformers("0.0", "nan")
    ),
    "transformers, a loss of zero": Case(
        "unknown-death", ANYBODY, _transformers("1.5", "0.4") + _transformers("0.0", "0.1")
    ),
    "lightning's child was killed": Case(
        "signal-kill", {"rank": 1, "pid": 2977}, minutes() + "INFO " + _CHILD.format(code=-9)
    ),
    "lightning's child failed": Case(
        "unknown-death",
        {"rank": 1, "pid": 2977},
        minutes() + "2025-03-01 10:12:00 INFO " + _CHILD.format(code=1),
    ),
    "an event told as information": Case(
        "cancelled", ANYBODY, minutes() + "2025-03-01 10:12:00 INFO Received SIGTERM, stopping\n"
    ),
    "the culprit's lines came after its peer's": Case(
        "python-exception",
        {"rank": 3, "pid": 103},
        minutes() + _of_worker(1, _PEER_WENT) + _of_worker(3, bad_batch()),
    ),
    "two lost their peers": Case(
        "transport-lost",
        ANYBODY,
        minutes() + _of_worker(1, _PEER_WENT) + _of_worker(3, _PEER_WENT),
    ),
}
