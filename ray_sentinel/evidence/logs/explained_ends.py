"""Reports of a process's end that the process's own output explains.

A process that lost its peer ends with an exit code or, in a library, with SIGABRT. A report of such
an end adds nothing and accuses nobody. The same holds for an exit code whose report names no rank,
such as srun's table of the tasks that ran torchrun, and for one that may belong to an unnamed
process that lost its peer. Processes do not end by SIGSEGV or SIGKILL after an error: such reports
stay.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.evidence.logs.causes import ended_by_signal, in_order, reports_lost_peer
from ray_sentinel.evidence.logs.errors.launchers import is_of_srun, is_of_torchrun
from ray_sentinel.evidence.logs.errors.signatures import Signature
from ray_sentinel.evidence.logs.lines.lines import Origin
from ray_sentinel.evidence.logs.process_index import ProcessIndex, named_by, same_place
from ray_sentinel.evidence.logs.records import FileFacts, Hit

_ENDS = frozenset(
    {
        "exit-code",
        "exit-abort",
        "lightning-child-exited",
        "segfault-handler",
        "srun-task-aborted",
    }
)
_EXIT_CODES = frozenset({"exit-code", "lightning-child-exited"})
"""Reports that a process ended by itself with an error code: the process's own output says why."""
_SOON = 60.0
"""Seconds within which the report of an end follows the output that explains it."""
_UCX = re.compile(r"\[(?P<host>[\w.-]{1,255}):0*(?P<pid>\d{1,9})(?::\d+)+\]")
"""The prefix ``[host:pid:thread:tid]`` that UCX writes before its lines."""


def with_explained_ends(
    hits: Sequence[Hit], files: Sequence[FileFacts], processes: ProcessIndex
) -> list[Hit]:
    """``hits``, with ends that their process explained turned into echoes that accuse nobody.

    If nothing else is trouble, the loss of a peer is, in whatever words a library reports it.
    """
    lost: dict[int, list[tuple[Hit, Origin]]] = {}
    for hit in hits:
        if _lost_its_peer(hit):
            who = _printed_by(hit, files, processes)
            for number in {who.rank, who.local_rank, who.pid} - {None}:
                lost.setdefault(number or 0, []).append((hit, who))
    gone = [(hit, _printed_by(hit, files, processes)) for hit in hits if _is_lost_link(hit)]
    torchrun = any(map(is_of_torchrun, hits))
    told = [
        _replaced(hit, role="echo", accuses="nobody")
        if _is_explained(hit, lost, processes) or _may_be_explained(hit, gone, torchrun)
        else hit
        for hit in hits
    ]
    if any(hit.signature.role in ("cause", "symptom") for hit in told):
        return told
    first = next((hit for hit in in_order(told) if _is_first_hand(hit)), None)
    if first is None or first.signature.kind == "cancelled":
        return told
    return [_replaced(hit, role="symptom") if _is_lost_link(hit) else hit for hit in told]


def explained(row: Hit) -> bool:
    """Whether the report is about an end that its process explained."""
    return row.signature.id in _ENDS and row.signature.accuses == "nobody"


def _lost_its_peer(hit: Hit) -> bool:
    return hit.exit is None and hit.signature.id not in _ENDS and reports_lost_peer(hit)


def _is_lost_link(hit: Hit) -> bool:
    lost = hit.signature.kind == "transport-lost" and hit.signature.role == "echo"
    return lost and hit.signature.peer_lost and hit.signature.severity != "info"


def _is_first_hand(hit: Hit) -> bool:
    """Whether a process itself reports a lost peer, rather than a launcher that only passes on the
    end of another process."""
    return hit.signature.role == "echo" and not explained(hit)


def _is_explained(
    hit: Hit, lost: dict[int, list[tuple[Hit, Origin]]], processes: ProcessIndex
) -> bool:
    """``lost``: what processes said about lost peers, by their ranks, local ranks and pids."""
    if hit.signature.id not in _ENDS or not lost:
        return False
    if hit.signature.id == "segfault-handler" and ended_by_signal(hit) != "SIGABRT":
        return False
    ended = processes.complete(named_by(hit).filled(hit.origin))
    numbers = {ended.rank, ended.local_rank, ended.pid} - {None}
    words = (word for number in numbers for word in lost.get(number or 0, ()))
    return any(
        _is_same_process(ended, who, processes) and _soon_after(hit, said) for said, who in words
    )


def _may_be_explained(hit: Hit, gone: Sequence[tuple[Hit, Origin]], torchrun: bool) -> bool:
    """Whether an exit code that names no rank, or one beside a nameless process that lost its
    peer, says no more than the lost connections in ``gone`` do."""
    if hit.signature.id not in _EXIT_CODES:
        return False
    near = [who for said, who in gone if _soon_after(hit, said)]
    # Where torchrun starts the ranks, srun's tasks are its launchers.
    named = not (torchrun and is_of_srun(hit)) and named_by(hit).filled(hit.origin).names_process
    return bool(near) and (not named or not all(who.names_process for who in near))


def _printed_by(hit: Hit, files: Sequence[FileFacts], processes: ProcessIndex) -> Origin:
    origin = hit.origin
    if match := _UCX.search(hit.text[:120]):
        origin = Origin(pid=int(match["pid"]), host=match["host"]).filled(origin)
    return processes.complete(origin.filled(files[hit.file].file.origin))


def _is_same_process(ended: Origin, said: Origin, processes: ProcessIndex) -> bool:
    """Whether both name the same process; on one node a local rank is the rank."""
    if not same_place(ended, said):
        return False
    if ended.rank is not None and said.rank is not None:
        return ended.rank == said.rank
    if ended.pid is not None and said.pid is not None:
        return ended.pid == said.pid
    if ended.local_rank is None or not processes.one_node:
        return False
    return ended.local_rank in (said.local_rank, said.rank)


def _soon_after(end: Hit, said: Hit) -> bool:
    if end.file == said.file and end.exit is None and end.offset < said.offset:
        return False
    if end.time is None or said.time is None or not said.own_time:
        return True
    return -_SOON <= end.time - said.time <= _SOON


def _replaced(hit: Hit, **changes: str) -> Hit:
    signature: Signature = msgspec.structs.replace(hit.signature, **changes)
    return msgspec.structs.replace(hit, signature=signature)
