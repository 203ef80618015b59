"""How fast stacks become classes: many ranks with 64 threads each, one of them apart.

    python bench/stacks.py [--ranks 10000] [--threads 64] [--repeat 3] [--json]

Two jobs are measured: ``plain``, whose main thread is in a collective, and ``backward``, whose main
thread is in the backward pass, so that the telling one must be found among all 64. Timed are
``merge`` (traces to classes and the explanation, the figure that counts) and, apart, ``parse`` (the
tools' text to traces). The text differs from rank to rank in pids, thread ids and addresses, as it
does in life. Exit code 1 if merging takes more than a second, or the odd rank is not the one named.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import msgspec

from ray_sentinel.evidence.stacks import (
    StackReader,
    classes,
    classify_process,
    merge,
    parse,
)
from ray_sentinel.model.identity import ProcessId, RankId
from ray_sentinel.model.stacks import StackTrace
from ray_sentinel.waitgraph.stacks import explain

LIMIT = 1.0
_TOP = "    train_step (train.py:210)\n    main (train.py:400)\n    <module> (train.py:450)\n"
_WAIT = (
    "    c10d::Work::wait (libtorch_cpu.so)\n"
    "    all_reduce (torch/distributed/distributed_c10d.py:2806)\n"
    "    wrapper (torch/distributed/c10d_logger.py:83)\n" + _TOP
)
_BACKWARD = (
    "    _engine_run_backward (torch/autograd/graph.py:829)\n"
    "    backward (torch/autograd/__init__.py:353)\n" + _TOP
)
_ENGINE = (
    "    ncclGroupEnd (libnccl.so.2)\n    c10d::ProcessGroupNCCL::allreduce (libtorch_cuda.so)\n"
    "    hook (model.py:77)\n"
)
_ODD = "    read_shard (data.py:31)\n    next_batch (data.py:12)\n" + _TOP
_TAIL = "    run (threading.py:982)\n    _bootstrap_inner (threading.py:1045)\n"
_HELPERS = (
    "    _worker (concurrent/futures/thread.py:81)\n" + _TAIL,
    "    wait (threading.py:327)\n    _feed (multiprocessing/queues.py:231)\n" + _TAIL,
    "    0x{address:x} (libc.so.6)\n    ReadyQueue::pop (libtorch_cpu.so)\n"
    "    torch::autograd::ReadyQueue::pop (libtorch_cpu.so)\n",
    "    select (selectors.py:415)\n    _run_once (asyncio/base_events.py:1898)\n" + _TAIL,
)


def dump(rank: int, threads: int, job: str, odd: bool) -> str:
    """py-spy's text of one rank."""
    pid = 1000 + rank * 100
    main = _ODD if odd else (_WAIT if job == "plain" else _BACKWARD)
    parts = [f"Process {pid}: python train.py\nPython v3.11.7 (/usr/bin/python3)\n\n"]
    parts.append(f'Thread {pid} (idle): "MainThread"\n{main}')
    for number in range(1, threads):
        body = _HELPERS[number % len(_HELPERS)].format(address=pid * 4096 + number)
        name = f"pool_{number}"
        if job == "backward" and number == threads - 1 and not odd:
            body, name = _ENGINE, "pt_autograd_0"
        parts.append(f'Thread {pid + number} (idle): "{name}"\n{body}')
    return "".join(parts)


def read(texts: list[str]) -> list[StackTrace]:
    """All texts parsed, each with its rank."""
    return [
        msgspec.structs.replace(trace, rank=RankId("job", 0, rank))
        for rank, text in enumerate(texts)
        for trace in parse(text, ProcessId(f"node{rank // 8}", 1000 + rank * 100, 1))
    ]


def merged(traces: list[StackTrace]) -> list[int | None]:
    """The whole way from traces to culprits."""
    reader = StackReader()
    facts = [classify_process([trace], reader) for trace in traces]
    merge(classes(facts))
    return [culprit.rank for culprit in explain([facts]).culprits]


def timed(work: Callable[[], Any], repeat: int) -> tuple[float, Any]:
    """The median of ``repeat`` runs in seconds, and the last result."""
    seconds, result = [], None
    for _ in range(repeat):
        started = time.perf_counter()
        result = work()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds), result


def measure(job: str, ranks: int, threads: int, repeat: int) -> dict[str, Any]:
    """Figures of one job."""
    odd = ranks * 2 // 3
    texts = [dump(rank, threads, job, rank == odd) for rank in range(ranks)]
    parse_seconds, traces = timed(lambda: read(texts), 1)
    merge_seconds, culprits = timed(lambda: merged(traces), repeat)
    return {
        "job": job,
        "ranks": ranks,
        "threads": threads,
        "megabytes": round(sum(map(len, texts)) / 1e6, 1),
        "parse_seconds": round(parse_seconds, 3),
        "parse_ranks_per_second": round(ranks / parse_seconds),
        "merge_seconds": round(merge_seconds, 3),
        "culprits": culprits,
        "right": culprits == [odd],
    }


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=10_000)
    parser.add_argument("--threads", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found = [measure(job, args.ranks, args.threads, args.repeat) for job in ("plain", "backward")]
    if args.json:
        print(json.dumps(found, indent=2))
    else:
        for item in found:
            print(
                f"{item['job']}: {item['ranks']} ranks x {item['threads']} threads "
                f"({item['megabytes']} MB): merged in {item['merge_seconds']} s; parsed in "
                f"{item['parse_seconds']} s ({item['parse_ranks_per_second']} ranks/s); "
                f"culprits {item['culprits']}"
            )
    return 0 if all(item["right"] and item["merge_seconds"] < LIMIT for item in found) else 1


if __name__ == "__main__":
    sys.exit(main())
