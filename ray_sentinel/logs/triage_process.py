"""Runs triage in a child process, for callers that must not block: supervisor and coordinator.

Logs are what a job printed, in any size and shape. Reading them holds the GIL for long stretches;
here that affects only a separate process, which ends at a deadline, has limited memory, and dies
with its parent. It is this module run as a program; the answer goes to stdout as MessagePack, a
reason for its absence to stderr.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

from ray_sentinel import process
from ray_sentinel.errors import InputError, SentinelError
from ray_sentinel.logs.catalogue import load_catalogue
from ray_sentinel.logs.triage import triage_path
from ray_sentinel.model.triage import Triage
from ray_sentinel.process.memory_limit import limit_address_space

MEMORY = 2 << 30
"""Most bytes of address space that the reading process may have."""
_MAX_ANSWER = 64 << 20
_NOTHING_TO_READ = 3
"""The exit status of the program if there is nothing to read."""


class UnreadError(InputError):
    """The logs could not be read to their end: there is too much, or reading takes too long."""


def triage_in_process(root: Path, *, seconds: float, memory: int = MEMORY) -> Triage:
    """As ``triage.triage_path``, in a process that is killed after ``seconds``, and that may use
    ``memory`` bytes.

    Raises InputError if there is nothing to read, UnreadError if it did not end normally: the
    message says how.
    """
    command = process.python_module(
        "ray_sentinel.logs.triage_process", os.fspath(root), str(memory)
    )
    try:
        done = process.run(command, deadline=seconds, max_output=_MAX_ANSWER)
    except OSError as error:
        raise UnreadError(f"{root}: no process to read it could be started: {error}") from None
    if done.truncated or not done.ok:
        raise _failed(root, done, seconds, memory)
    try:
        return msgspec.msgpack.decode(done.stdout, type=Triage)
    except msgspec.DecodeError as error:
        raise UnreadError(f"{root}: the answer cannot be read: {error}") from None


def _failed(root: Path, done: process.Completed, seconds: float, memory: int) -> InputError:
    if done.timed_out:
        return UnreadError(f"{root}: it was not read to its end within {seconds:g} s")
    if done.truncated:
        return UnreadError(f"{root}: the answer is larger than {_MAX_ANSWER >> 20} MiB")
    last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
    if done.returncode == _NOTHING_TO_READ:
        return InputError("".join(last) or f"{root}: there is nothing to read")
    if done.returncode == 1:
        return UnreadError(f"{root}: {''.join(last)}")
    # A library that gets no memory may end the process itself.
    may = f"it may have {memory >> 20} MiB of memory"
    return UnreadError(f"{root}: the process that reads it, {may}: {done.explain()}")


def main() -> int:
    """Read the path that is the first argument, within the bytes of memory that are the second."""
    most = limit_address_space(int(sys.argv[2]))
    try:
        answer = msgspec.msgpack.encode(triage_path(Path(sys.argv[1]), load_catalogue()))
    except SentinelError as error:
        sys.stderr.write(f"{error}\n")
        return _NOTHING_TO_READ
    except MemoryError:
        sys.stderr.write(f"reading it takes more than {most >> 20} MiB of memory\n")
        return 1
    sys.stdout.buffer.write(answer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
