"""Runs triage in a process of its own, for callers that must not block: supervisor and coordinator.

Logs are what a job printed, in any size and shape, and reading them holds the GIL for long.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

from ray_sentinel.logs.catalogue import load_catalogue
from ray_sentinel.logs.triage import triage_path
from ray_sentinel.model.triage import Triage
from ray_sentinel.process.apart import UnreadError, answer_apart, ask_apart

MEMORY = 2 << 30
"""Most bytes of address space that the reading process may take beyond its program's."""


def triage_in_process(root: Path, *, seconds: float, memory: int = MEMORY) -> Triage:
    """As ``triage.triage_path``, in a process that is killed after ``seconds``, and that may use
    ``memory`` bytes.

    Raises InputError if there is nothing to read, UnreadError if it did not end normally: the
    message says how.
    """
    answer = ask_apart(
        "ray_sentinel.logs.triage_process",
        os.fspath(root),
        what=str(root),
        seconds=seconds,
        memory=memory,
    )
    try:
        return msgspec.msgpack.decode(answer, type=Triage)
    except msgspec.DecodeError as error:
        raise UnreadError(f"{root}: the answer cannot be read: {error}") from None


def _read(arguments: list[str]) -> bytes:
    return msgspec.msgpack.encode(triage_path(Path(arguments[0]), load_catalogue()))


if __name__ == "__main__":
    sys.exit(answer_apart(_read))
