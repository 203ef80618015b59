"""Transformers' ``trainer_state.json``, which its trainer saves with every checkpoint.

Its ``max_steps`` is the whole training's number of steps, worked out from the epochs where those
were what was asked for; ``global_step`` is where the checkpoint was taken.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import msgspec

from ray_sentinel.diagnose.logs import Total

NAME = "trainer_state.json"
MOST_FILES = 32
"""Read: every checkpoint has one."""
MOST_BYTES = 64 << 20
"""It holds every line that was logged."""


class _State(msgspec.Struct):
    max_steps: float
    global_step: float


def saved_totals(folder: Path) -> tuple[Total, ...]:
    """What the states in a job's folder and up to two below it give; damaged ones give nothing.

    Of many those of the checkpoints with the highest numbers are read.
    """
    found = itertools.chain.from_iterable(
        folder.glob(f"{depth}{NAME}") for depth in ("", "*/", "*/*/")
    )
    newest = sorted(found, key=_number, reverse=True)[:MOST_FILES]
    return tuple(dict.fromkeys(total for file in newest if (total := _total(file)) is not None))


def _number(file: Path) -> float:
    """The step of ``checkpoint-1500``; what lies in no checkpoint's folder was saved at the end."""
    name = file.parent.name.rpartition("-")[2]
    return float(name) if name.isascii() and name.isdigit() and len(name) < 16 else float("inf")


def _total(file: Path) -> Total | None:
    try:
        if file.stat().st_size > MOST_BYTES:
            return None
        state = msgspec.json.decode(file.read_bytes(), type=_State)
    except (OSError, ValueError, RecursionError):
        # A state that was being saved when the job ended; an earlier checkpoint has one, too.
        return None
    if not 1 < state.max_steps < 1e15 or not 0 <= state.global_step <= state.max_steps:
        return None
    return Total(state.max_steps, state.global_step, saved=True)
