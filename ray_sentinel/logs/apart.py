"""Triage in a process of its own, for those who must not stand still: a supervisor, a coordinator.

Logs are what a job printed, in any size and shape. Reading them holds the interpreter's lock for
long stretches; here it costs its own process only, which ends at a deadline, has a bound on its
memory, and dies with us. It is this module run as a program; the answer goes to stdout as
MessagePack, a reason why there is none to stderr.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

import msgspec

from ray_sentinel import process
from ray_sentinel.errors import InputError, SentinelError
from ray_sentinel.logs.catalogue import load_catalogue
from ray_sentinel.logs.triage import triage_path
from ray_sentinel.model.triage import Triage

MEMORY = 2 << 30
"""Bytes of address space that the reading process may have."""
_MAX_ANSWER = 64 << 20


def triage_apart(root: Path, *, seconds: float) -> Triage:
    """As ``triage.triage_path``, in a process that is killed after so many seconds.

    Raises InputError where there is nothing to read, or where it did not end well: then the message
    says how.
    """
    command = process.python_module("ray_sentinel.logs.apart", os.fspath(root))
    try:
        done = process.run(command, deadline=seconds, max_output=_MAX_ANSWER)
    except OSError as error:
        raise InputError(f"{root}: no process to read it could be started: {error}") from None
    if done.truncated or not done.ok:
        last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        ended = f"it was not read to its end within {seconds:g} s"
        raise InputError(f"{root}: {ended if done.timed_out else ''.join(last) or done.explain()}")
    try:
        return msgspec.msgpack.decode(done.stdout, type=Triage)
    except msgspec.DecodeError as error:
        raise InputError(f"{root}: the answer cannot be read: {error}") from None


def main() -> int:
    """Read the path that is the one argument."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = MEMORY if hard == resource.RLIM_INFINITY else min(MEMORY, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    try:
        answer = triage_path(Path(sys.argv[1]), load_catalogue())
    except (SentinelError, MemoryError) as error:
        sys.stderr.write(f"{error or 'more memory is needed than it may have'}\n")
        return 1
    sys.stdout.buffer.write(msgspec.msgpack.encode(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
