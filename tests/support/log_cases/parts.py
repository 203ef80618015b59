# ruff: noqa: E501 - log lines are as long as they are
"""What the cases are made of: steps, watchdogs, torchrun's table, logs of single ranks."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

Culprit = dict[str, object] | str
ANYBODY, NOBODY = "anybody", "nobody"
"""A case that says nothing of the culprit; one where none may be named."""


class Case(NamedTuple):
    """A job's files (or the text of its only one), its class, and who is to be named first."""

    kind: str
    culprit: Culprit
    files: str | dict[str, str]


STEPS = "".join(
    f" [2025-05-01 10:00:{i:02d}] iteration {i:8d}/  500000 | consumed samples: {i * 512:12d} | elapsed time per iteration (ms): 1000.0 | learning rate: 6.0E-05 | global batch size:   512 | lm loss: {9 - i * 0.01:.6E} | loss scale: 1.0 | grad norm: 1.3 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
    for i in range(1, 60)
)
MAXTEXT_STEPS = "".join(
    f"completed step: {i}, seconds: 10.1, TFLOP/s/device: 200.1, Tokens/s/device: 1000.0, total_weights: 100, loss: 5.{i}\n"
    for i in range(40)
)
INDEX_ERROR = """\
[rank37]: Traceback (most recent call last):
[rank37]:   File "/workspace/pretrain_gpt.py", line 300, in <module>
[rank37]:     pretrain(train_valid_test_datasets_provider)
[rank37]:   File "/workspace/megatron/training/training.py", line 400, in train_step
[rank37]:     batch = next(data_iterator)
[rank37]:   File "/workspace/megatron/core/models/gpt.py", line 77, in forward
[rank37]:     x = table[idx]
[rank37]: IndexError: index 50304 is out of bounds for dimension 0 with size 50304
"""
REMOTE_EXITED = "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1970, remote process exited or there was a network error, NCCL version 2.19.3\nncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\nLast error:\nsocketProgress: Connection closed by remote peer node1<45678>"
GLOO_CLOSED = "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.3]:12345"
STORE_RESET = "[W501 10:01:05.000000000 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=64, addr=[node1]:45678, remote=[node1]:29500): Connection reset by peer"
_TABLE = """\
W0501 10:10:05.100000 1000 torch/distributed/elastic/multiprocessing/api.py:898] Sending process 1001 closing signal SIGTERM
W0501 10:10:05.100000 1000 torch/distributed/elastic/multiprocessing/api.py:898] Sending process 1002 closing signal SIGTERM
E0501 10:10:07.100000 1000 torch/distributed/elastic/multiprocessing/api.py:870] failed (exitcode: {code}) local_rank: {lr} (pid: {pid}) of binary: /usr/bin/python3
Traceback (most recent call last):
  File "/usr/local/bin/torchrun", line 8, in <module>
    sys.exit(main())
  File "/usr/local/lib/python3.10/dist-packages/torch/distributed/launcher/api.py", line 269, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
pretrain_gpt.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2025-05-01_10:10:05
  host      : node{node}
  rank      : {rank} (local_rank: {lr})
  exitcode  : {code} (pid: {pid})
  error_file: <N/A>
  traceback : {tb}
============================================================
"""


def watchdog(
    rank: int, seq: int = 120, t: str = "10:10:00.000000000", op: str = "ALLREDUCE"
) -> str:
    """What a rank's NCCL watchdog prints at the time-out."""
    head = f"[rank{rank}]:[E501 {t} ProcessGroupNCCL.cpp"
    return (
        f"{head}:632] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn=4096, NumelOut=4096, Timeout(ms)=600000) ran for 600031 milliseconds before timing out.\n"
        f"{head}:2271] [PG ID 0 PG GUID 0(default_pg) Rank {rank}]  failure detected by watchdog at work sequence id: {seq} PG status: last enqueued work: {seq}, last completed work: {seq - 1}\n"
        f"{head}:684] [Rank {rank}] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.\n"
        f"{head}:698] [Rank {rank}] To avoid data inconsistency, we are taking the entire process down.\n"
    )


def watchdog_detail(
    rank: int, seq: int, enqueued: int, completed: int, t: str = "10:10:00.0"
) -> str:
    """The watchdog's line with the numbers of the last collectives."""
    return f"[rank{rank}]:[E501 {t} ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Exception (either an error or timeout) detected by watchdog at work: {seq}, last enqueued NCCL work: {enqueued}, last completed NCCL work: {completed}.\n"


def torchrun_table(rank: int, local: int, pid: int, code: int, node: str, said: str = "") -> str:
    """torchrun's table of one failed rank, and what it prints before."""
    said = said or (
        f"Signal {-code} received by PID {pid}"
        if code < 0
        else "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"
    )
    return _TABLE.format(rank=rank, lr=local, pid=pid, code=code, node=node, tb=said)


def rank_log(rank: int, steps: int = 60, start: str = "2025-05-01 10:00:00") -> str:
    """One rank's own log: a step a second."""
    begin = datetime.fromisoformat(start)
    return "".join(
        f"{begin + timedelta(seconds=i)},000 INFO [rank {rank}] train.py:10 step {i} loss {3 - i * 0.01:.3f} time 1.0s\n"
        for i in range(1, steps + 1)
    )


def logged_traceback(when: str, exception: str) -> str:
    """A traceback as ``logging`` prints it."""
    return f"""{when},100 ERROR train.py:88 Traceback (most recent call last):
Traceback (most recent call last):
  File "/app/train.py", line 88, in <module>
    main()
  File "/app/train.py", line 60, in main
    loss.backward()
{exception}
"""


def minutes(count: int = 12, hour: int = 10, first: int = 0, prefix: str = "") -> str:
    """A step a minute, on the 1st of March."""
    return "".join(
        f"{prefix}[2025-03-01 {hour + m // 60:02d}:{m % 60:02d}:00] iteration {hour * 60 + m:8d}/ 5000 | elapsed time per iteration (ms): 60000.0 | lm loss: 2.3E+00 |\n"
        for m in range(first, first + count)
    )


def bad_batch(rank: int | None = None, prefix: str = "") -> str:
    """An undated traceback, of a rank or of nobody."""
    lead = prefix if rank is None else f"{prefix}[rank{rank}]: "
    return (
        f"{lead}Traceback (most recent call last):\n"
        f'{lead}  File "/app/train.py", line 88, in step\n'
        f"{lead}    loss = model(batch)\n"
        f"{lead}ValueError: bad batch\n"
    )
