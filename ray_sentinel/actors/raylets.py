"""The raylets on this machine, as /proc shows them: ours, our cluster's, and others; and the end of
our actors with their own raylet."""

from __future__ import annotations

import errno
import logging
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

from ray_sentinel import process
from ray_sentinel.actors.loops import Loop
from ray_sentinel.evidence_file import users_of
from ray_sentinel.kernel_files import kernel_text
from ray_sentinel.progress.proc.proc_stat import parse_stat
from ray_sentinel.progress.proc.process_memory import memory_file
from ray_sentinel.progress.rank.own_process import raylet_above
from ray_sentinel.trusted_path import TRUSTED_UIDS_VARIABLE, are_trusted

log = logging.getLogger(__name__)

_NOBODY = frozenset({-1})


def raylets(proc: Path = Path("/proc")) -> dict[int, str]:
    """All raylets that are visible from here, of any cluster: pid → address of their cluster."""
    return {
        int(entry.name): raylet_address(entry)
        for entry in proc.iterdir()
        if entry.name.isdigit() and kernel_text(entry / "comm") == "raylet"
    }


def trusted_raylets(proc: Path = Path("/proc")) -> dict[int, str]:
    """Those of users whom we trust: a cluster that is found by its raylet can run any code as ours,
    and anybody can start a process that looks like a raylet."""
    found = raylets(proc)
    return {pid: found[pid] for pid in found if are_trusted(_users(pid, proc))}


def untrusted_raylets(proc: Path = Path("/proc")) -> list[str]:
    """The others, in words: how the cluster of each is named."""
    found = {(address, min(_users(pid, proc))) for pid, address in raylets(proc).items() if address}
    return [
        f"a raylet of user {user}, whose cluster is not joined unless it is named: --address "
        f"{address}, or {TRUSTED_UIDS_VARIABLE}={user} to trust that user"
        for address, user in sorted(found)
        if not are_trusted([user])
    ]


def _users(pid: int, proc: Path) -> frozenset[int]:
    """A process's users; one that nobody is for a process that has ended."""
    try:
        return users_of(pid, str(proc))
    except (OSError, ValueError):
        return _NOBODY


def address_here() -> str:
    """The address of the cluster that this process belongs to, or else a trusted user's on this
    machine; empty if there is none."""
    above = raylet_above(os.getpid())
    if above:
        return raylet_address(Path(f"/proc/{above}"))
    return next(iter(trusted_raylets().values()), "")


def raylet_address(folder: Path) -> str:
    """The address of a raylet's cluster, given its folder in /proc; empty if it is not a raylet."""
    if kernel_text(folder / "comm") != "raylet":
        return ""
    line = memory_file(int(folder.name), "cmdline", folder.parent) or b""
    prefix = b"--gcs-address="
    for argument in line.split(b"\0"):
        if argument.startswith(prefix):
            return argument[len(prefix) :].decode("ascii", "replace")
    return ""


# Ray 2.60 ends a worker whose raylet has gone when the worker next talks to it, which an actor may
# never do: agents were left after the loss of the control store, on ``:9400``, with their
# collectors.

CHECK_SECONDS = 1.0
"""Seconds between two looks whether our raylet lives."""
CLOSE_SECONDS = 5.0
"""Seconds that cleaning up before the end may take; it may wait for Ray, or for a disk that hangs.
"""


def end_with_raylet(close: Callable[[], object], seconds: float = CLOSE_SECONDS) -> Loop | None:
    """End this process, and all that it started, once its raylet has ended; ``close`` is called
    first and has this many ``seconds``. None if this process descends from no raylet."""
    raylet = raylet_above(os.getpid())
    start = _start_of(raylet)
    if start is None:
        return None

    def check() -> None:
        if _start_of(raylet) != start:
            _end(f"the raylet (pid {raylet}) has ended: this process ends too", close, seconds)

    return Loop(CHECK_SECONDS, check, name="ray-sentinel-raylet")


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


PROBE_SECONDS = 1.0
"""Seconds that a raylet has to accept a connection; one that is alive takes milliseconds."""

_REFUSED = frozenset({errno.ECONNREFUSED, errno.ECONNRESET})


def raylet_answers(address: str, port: int) -> tuple[bool | None, str]:
    """(True, ...) if a connection was accepted, (False, why) if nobody listens, otherwise None.

    None means unknown: for example no port is known, or this machine itself has no network.
    """
    if not address or not port:
        return None, "its port is not known"
    try:
        socket.create_connection((address, port), timeout=PROBE_SECONDS).close()
    except TimeoutError:
        return False, f"{address}:{port} did not accept within {PROBE_SECONDS:.0f} s"
    except OSError as error:
        text = f"{address}:{port}: {error.strerror or error}"
        if error.errno in _REFUSED or error.errno in (errno.EHOSTUNREACH, errno.EHOSTDOWN):
            return False, text
        return None, text
    return True, f"{address}:{port} accepts connections"
