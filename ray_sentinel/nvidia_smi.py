"""Asks ``nvidia-smi``: the one place that runs it on this node.

The program, not the library: a driver that hangs then holds a child of ours with a deadline, and
not the caller.
"""

from __future__ import annotations

import shutil
from functools import lru_cache

from ray_sentinel import process
from ray_sentinel.errors import SentinelError
from ray_sentinel.evidence.node.nvidia_smi import SmiAnswer, parse
from ray_sentinel.text import one_line

OPTIONS = ("-q", "-x")
SECONDS = 8.0
"""Seconds that the program may take: eight GPUs without persistence mode need about four."""


def ask() -> SmiAnswer | None:
    """Ask the driver now; None if there is no ``nvidia-smi``. Raises SentinelError."""
    program = shutil.which("nvidia-smi")
    return _run(program) if program else None


def ask_once() -> SmiAnswer | None:
    """``ask``, whose answer is kept: for a process that lives for seconds and checks much."""
    program = shutil.which("nvidia-smi")
    return _once(program) if program else None


def _run(program: str) -> SmiAnswer:
    done = process.run([program, *OPTIONS], deadline=SECONDS)
    output = done.stdout.decode("utf-8", "replace")
    if not done.ok:
        said = [one_line(line, 200) for line in output.strip().splitlines()[:1]]
        raise SentinelError(" ".join([done.explain(), *said]))
    return parse(output)


_once = lru_cache(maxsize=4)(_run)
