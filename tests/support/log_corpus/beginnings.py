# ruff: noqa: E501 - log lines are as long as they are
"""What comes before a failure: thousands of steps, or a long start-up, with decoys."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.log_corpus.job import RANKS, Job, maxtext

STEPS = 7800
"""With the chatter that makes more than ten thousand lines."""


def decoys(job: Job) -> None:
    """Trouble of other classes that training survives."""
    job.say(
        f"{job.iso()} ERROR ckpt: upload of step 500 failed: An error occurred (SlowDown) when calling the PutObject operation: Please reduce your request rate; will retry",
        0,
    )
    job.say(
        f"{job.iso()} WARNING tokenizer: skipped a document\n"
        "Traceback (most recent call last):\n"
        '  File "/app/data.py", line 40, in clean\n'
        "    return json.loads(line)\n"
        "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
        3,
    )
    job.say(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB; emptied the cache and tried again",
        5,
    )
    job.say("OSError: [Errno 98] Address already in use", 2)


def begun(seed: int, writer: Callable[[Job], str] = maxtext, steps: int = STEPS) -> Job:
    job = Job(seed)
    job.header(writer.__name__)
    job.train(steps // 2, writer)
    decoys(job)
    job.train(steps - steps // 2, writer)
    return job


def startup(seed: int) -> Job:
    """A job that fails before its first step, after a long start-up with decoys."""
    job = Job(seed)
    job.header("startup")
    for shard in range(11_000):
        job.now += 0.03
        rank = shard % RANKS
        job.say(
            f"{job.iso()} INFO loader: Multi-thread loading shards: {shard * 100 // 11000}% Completed | {shard}/11000",
            rank,
        )
        if shard % 700 == 0:
            job.say(
                f"{job.iso()} WARNING hub: read timed out, retrying in 1.0 s (attempt 1/5)", rank
            )
            job.say(
                "[W socket.cpp:464] [c10d] The client socket cannot be initialized to connect to [node001]:29500 (errno: 97 - Address family not supported by protocol).",
                rank,
            )
        if shard % 1900 == 5:
            job.say(
                f"[{job.iso()} E 900 950] core_worker.cc:800: Failed to establish connection to the metrics exporter agent.",
                rank,
            )
    return job
