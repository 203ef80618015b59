"""An actor of ours ends with its raylet.

Ray 2.60 ends a worker whose raylet has gone when the worker next talks to it, which an actor may
never do: agents were left after the loss of the control store, on ``:9400``, with their collectors.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

from ray_sentinel import process
from ray_sentinel.actors.loops import Loop
from ray_sentinel.progress.own_process import raylet_above
from ray_sentinel.progress.proc_stat import parse_stat

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
CLOSE_SECONDS = 5.0
"""For what is to be closed before; it may wait for Ray, or for a disk that hangs."""


def end_with_raylet(close: Callable[[], object], seconds: float = CLOSE_SECONDS) -> Loop | None:
    """End this process, and all that it started, once its raylet has ended; ``close`` is called
    first and has so many ``seconds``. None where this process descends from no raylet."""
    raylet = raylet_above(os.getpid())
    start = _start_of(raylet)
    if start is None:
        return None

    def look() -> None:
        if _start_of(raylet) != start:
            _end(f"the raylet (pid {raylet}) has ended: this process ends too", close, seconds)

    return Loop(LOOK_SECONDS, look, name="ray-sentinel-raylet")


def _start_of(pid: int) -> int | None:
    """When a living process started (clock ticks since boot); None once it has ended, though nobody
    may have reaped it."""
    try:
        stat = parse_stat(Path(f"/proc/{pid}/stat").read_bytes())
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if stat.state in "ZX" else stat.start


def _end(why: str, close: Callable[[], object], seconds: float) -> None:
    def last() -> None:
        log.warning("%s", why)
        try:
            close()
        finally:
            logging.shutdown()

    closing = threading.Thread(target=last, name="ray-sentinel-closing", daemon=True)
    closing.start()
    closing.join(seconds)
    process.end_all()
    os._exit(1)
