"""Queries the RAS services of this node's ranks, if their version allows it.

One answer covers all processes that share communicators with the one that answers, so one is
queried for each address; several jobs on a node share a port, and any of them may answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from ray_sentinel.bounded import Bounded
from ray_sentinel.capture import ras_client
from ray_sentinel.capture.nccl_library import Library, library_of
from ray_sentinel.errors import SentinelError
from ray_sentinel.evidence.nccl_ras.version import gate
from ray_sentinel.kernel_files import parse_environ
from ray_sentinel.model.identity import ProcessId, Rank

POLL_SECONDS = 8.0
"""Seconds to ask all addresses of the node, one after the other."""
LOOK_SECONDS = 2.0
"""Seconds for each batch of 16 processes, whose maps and environments are read in parallel."""

Ask = Callable[..., bytes]


class RasPolls(msgspec.Struct, frozen=True, kw_only=True):
    """The answers on one node."""

    polls: tuple[bytes, ...] = ()
    problems: tuple[str, ...] = ()
    """For each service that was not asked or did not answer, why."""


class _Examined(msgspec.Struct, frozen=True):
    """The facts that decide whether a process may be asked."""

    library: Library | None
    environ: dict[str, str]


# Reading a memory map or an environment waits for the process's memory lock, which a thread of it
# that hangs in the kernel may hold.
_looks: Bounded[ProcessId, _Examined] = Bounded(LOOK_SECONDS, most=16)


def poll_ranks(
    ranks: Sequence[Rank], setting: str = "auto", *, proc: str = "/proc", ask: Ask = ras_client.ask
) -> RasPolls:
    """Query each RAS address of ``ranks`` once. ``setting``: "auto", "always" or "never".

    Ranks without NCCL (on CPUs, or before they load it) are skipped silently.
    """
    places: dict[tuple[str, int], bool] = {}
    problems: dict[str, None] = {}
    looked, unseen = _looks.run(
        {rank.process: partial(_examine, rank.process.pid, proc) for rank in ranks}
    )
    for process, why in unseen.items():
        problems[f"NCCL RAS: pid {process.pid}: its libraries cannot be seen: {why}"] = None
    for found in looked.values():
        if found.library is None:
            continue
        try:
            place = _place(found.library, found.environ, setting)
        except SentinelError as error:
            problems[f"NCCL RAS: {error}"] = None
            continue
        places.setdefault(*place)
    end = time.monotonic() + POLL_SECONDS
    polls = []
    for (host, port), json in places.items():
        try:
            left = max(1.0, end - time.monotonic())
            polls.append(ask(host, port, json=json, deadline=left))
        except SentinelError as error:
            problems[f"NCCL RAS: {error}"] = None
    return RasPolls(polls=tuple(polls), problems=tuple(problems))


class _NotAskedError(SentinelError):
    """A version, or a setting, that forbids to ask."""


def _examine(pid: int, proc: str) -> _Examined:
    library = library_of(pid, proc)
    return _Examined(library, {} if library is None else _environ(pid, proc))


def _place(library: Library, environ: dict[str, str], setting: str) -> tuple[tuple[str, int], bool]:
    """Where to ask, and whether for JSON. Raises SentinelError if it must not be asked."""
    found = gate(library.version, setting, library.name)
    if not found.ask:
        raise _NotAskedError(found.reason)
    if environ.get("NCCL_RAS_ENABLE", "1").strip() == "0":
        raise _NotAskedError("the job has switched it off (NCCL_RAS_ENABLE=0)")
    return ras_client.address(environ.get("NCCL_RAS_ADDR", "")), found.json


def _environ(pid: int, proc: str) -> dict[str, str]:
    try:
        with open(f"{proc}/{pid}/environ", "rb") as file:
            data = file.read(4 << 20)
    except OSError:
        return {}  # the defaults are as good a guess
    return parse_environ(data, "replace")
