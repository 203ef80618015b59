"""Starting a keeper that outlives the supervisor, and signalling exactly one process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ray_sentinel import process, signals
from ray_sentinel.private_files import opener
from ray_sentinel.progress import pidfd
from ray_sentinel.progress.environment import ROLE_VARIABLE
from ray_sentinel.progress.own_process import start_ticks
from ray_sentinel.supervise.attempt_keeper import Order
from ray_sentinel.supervise.kept import encode
from ray_sentinel.supervise.run_folder import STATE, State
from ray_sentinel.whole_file import write_whole


def start_keeper(folder: Path, order: Order) -> None:
    """Start a keeper that lives on when we are killed. Raises SentinelError, OSError."""
    environ: Mapping[str, str] = {**os.environ, ROLE_VARIABLE: "keeper"}
    reading, writing = os.pipe()
    try:
        with open(folder / "keeper.log", "ab", opener=opener) as log:
            keeper = process.spawn(
                process.python_module("ray_sentinel.supervise.attempt_keeper", str(folder)),
                stdin=reading,
                stdout=log,
                stderr=log,
                env=environ,
                outlives_us=True,
            )
    finally:
        os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        # Before the keeper may begin: when we are killed now, our next life must find it.
        state = State(keeper=keeper.pid, keeper_start=start_ticks(keeper.pid))
        write_whole(folder / STATE, encode(state))
        pipe.write(encode(order))


def signal_process(pid: int, start: int, number: int) -> None:
    """Signal exactly this process, if it is still there."""
    if not pidfd.has_ended(pid, start):
        signals.send(pid, start, number)
