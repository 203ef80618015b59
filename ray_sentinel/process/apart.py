"""A module of ours run as a program, for input that may take any amount of memory and time.

The program limits its own memory, ends at a deadline and dies with its parent, and only it waits
for the interpreter. Its answer goes to standard output, the reason for its absence to standard
error.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from ray_sentinel import process
from ray_sentinel.errors import InputError, SentinelError
from ray_sentinel.process.memory_limit import address_space, limit_address_space

MOST_ANSWER = 64 << 20
"""Most bytes of an answer."""
_REFUSED = 3
"""The program's exit status if it refused its input; 1 if it could not read it."""


class UnreadError(InputError):
    """Something could not be read to its end: it takes too much memory or too long."""


def ask_apart(
    module: str,
    *arguments: str,
    what: str,
    seconds: float,
    memory: int,
    input: bytes = b"",
    most: int = MOST_ANSWER,
    crowded: float = 0.0,
) -> bytes:
    """The answer of ``module``, whose ``main`` calls ``answer_apart``.

    ``memory`` is the number of bytes that it may take beyond its program's, ``most`` that of the
    answer, ``crowded`` as in ``process.run``. Raises InputError if the module refuses its input,
    UnreadError, which begins with ``what`` is read (in the singular), if it gives no answer.
    """
    command = process.python_module(module, str(memory), *arguments)
    try:
        done = process.run(command, deadline=seconds, max_output=most, input=input, crowded=crowded)
    except OSError as error:
        raise UnreadError(f"{what}: no process to read it could be started: {error}") from None
    if done.timed_out:
        raise UnreadError(f"{what}: it was not read to its end within {seconds:g} s")
    if done.truncated:
        raise UnreadError(f"{what}: the answer is larger than {most >> 20} MiB")
    if done.ok:
        return done.stdout
    said = "".join(done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:])[:300]
    if said and done.returncode == _REFUSED:
        raise InputError(said)
    if said and done.returncode == 1:
        raise UnreadError(f"{what}: {said}")
    # A library that gets no memory may end the process itself.
    may = f"it may have {memory >> 20} MiB of memory"
    raise UnreadError(f"{what}: the process that reads it, {may}: {done.explain()}")


def answer_apart(work: Callable[[list[str]], bytes]) -> int:
    """The program's part: print what ``work`` makes of the arguments. Returns the exit status."""
    memory = int(sys.argv[1])
    limit_address_space(address_space() + memory)
    try:
        answer = work(sys.argv[2:])
    except SentinelError as error:
        sys.stderr.write(f"{error}\n")
        return _REFUSED
    except MemoryError:
        sys.stderr.write(f"reading it takes more than {memory >> 20} MiB of memory\n")
        return 1
    sys.stdout.buffer.write(answer)
    return 0
