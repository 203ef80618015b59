"""Chooses among a job's files: by rank, node, actor class, pid, ip and kind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ray_sentinel.evidence.logs.lines.lines import Origin
from ray_sentinel.logs.find import FoundLog
from ray_sentinel.logs.reading import compression, open_log
from ray_sentinel.logs.unpacking import READ_ERRORS

_FRONT = 16 << 10


class LineFilter(msgspec.Struct, frozen=True, kw_only=True):
    """The criteria; empty fields do not restrict anything."""

    rank: int | None = None
    node: str = ""
    actor: str = ""
    pid: int | None = None
    ip: str = ""
    kind: str = ""


def describe(found: Iterable[FoundLog]) -> tuple[FoundLog, ...]:
    """The files, with what the beginning of Ray's worker files adds to the origin that their names
    show: the actor's class (``:actor_name:``) and the rank (RANK)."""
    return tuple(_with_front(item) for item in found)


def choose(described: Sequence[FoundLog], wanted: LineFilter) -> tuple[FoundLog, ...]:
    """The files that may contain what is wanted.

    A file that states its origin must match; one that does not (a driver's log, which contains
    lines of many processes) is kept if a rank, an actor, a pid or an ip is requested.
    """
    return tuple(item for item in described if _fits(item, wanted))


def line_fits(origin: Origin, file: Origin, wanted: LineFilter) -> bool:
    """Whether a line matches; ``origin`` is the line's, ``file`` the file's own."""
    whole = origin.filled(file)
    checks = (
        wanted.rank is None or wanted.rank in (whole.rank, whole.local_rank),
        wanted.pid is None or whole.pid == wanted.pid,
        not wanted.ip or whole.ip == wanted.ip or not whole.ip,
        not wanted.actor or wanted.actor.lower() in whole.actor.lower(),
        not wanted.node or wanted.node in (whole.host, whole.ip) or not (whole.host or whole.ip),
    )
    return all(checks)


def _fits(item: FoundLog, wanted: LineFilter) -> bool:
    if wanted.kind and item.file.kind != wanted.kind:
        return False
    own = item.file.origin
    mixed = item.file.kind in ("log", "driver", "slurm")
    return (
        _agrees(wanted.rank, own.rank, mixed)
        and _agrees(wanted.pid, own.pid, mixed)
        and _agrees(wanted.node, own.host or own.ip, mixed)
        and (not wanted.ip or not own.ip or own.ip == wanted.ip)
        and (
            not wanted.actor
            or wanted.actor.lower() in own.actor.lower()
            or (mixed and not own.actor)
        )
    )


def _agrees(asked: int | str | None, own: int | str | None, mixed: bool) -> bool:
    if asked is None or asked == "":
        return True
    if own is None or own == "":
        return mixed
    return asked == own


def _with_front(item: FoundLog) -> FoundLog:
    if item.file.kind != "worker":
        return item
    try:
        with open_log(item.path, compression(item.path)) as file:
            front = file.read(_FRONT).decode("utf-8", "replace")
    except READ_ERRORS:
        return item  # listed all the same; reading it will say why it cannot be read
    actor, rank = "", None
    for line in front.splitlines()[:60]:
        if line.startswith(":actor_name:"):
            actor = line.removeprefix(":actor_name:").strip()
        elif line.startswith("RANK=") and line[5:].strip().isdigit():
            rank = int(line[5:])
    origin = item.file.origin.filled(Origin(actor=actor, rank=rank))
    return FoundLog(item.path, msgspec.structs.replace(item.file, origin=origin))
