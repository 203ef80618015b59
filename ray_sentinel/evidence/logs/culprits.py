"""Who failed first: rank, node, process and device of the first cause.

A line is evidence against the process that printed it, against one that it names, or against
nobody. A watchdog's timeout is evidence against nobody: there the ranks' collective numbers decide.
Nobody is named if the lines do not show who it was: naming an innocent rank is worse than missing a
culprit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.evidence.logs.case import LogAnalysis
from ray_sentinel.evidence.logs.causes import ended_by_signal, is_concrete, is_trouble
from ray_sentinel.evidence.logs.errors.launchers import TORCHRUN, is_of_srun
from ray_sentinel.evidence.logs.errors.watchdog import RankWork, laggards
from ray_sentinel.evidence.logs.explained_ends import explained
from ray_sentinel.evidence.logs.lines.lines import NOBODY, Origin
from ray_sentinel.evidence.logs.process_index import ProcessIndex, may_be, named_by, same_place
from ray_sentinel.evidence.logs.records import Hit
from ray_sentinel.masking import mask
from ray_sentinel.model.triage import LogCulprit

_COMMON_FATE = frozenset(
    {"config", "missing-env", "etcd", "rendezvous", "topology-change", "cancelled", "preempted"}
)
_SAME_EVENT = 120.0
"""Seconds within which two lines of one class are about the same failure."""
_WAITING = frozenset({"nccl-timeout", "transport-lost", "hang", "startup-stuck"})
_BY_WATCHDOG = frozenset({"nccl-dump-signal", "nccl-watchdog-exception"})
"""Lines that say that a watchdog made its process abort: that process only waited for another
one."""
_ASKED_ALIKE = frozenset({"config", "hub-unreachable", "missing-env"})
_ELSEWHERE = re.compile(
    r"EngineDeadError|(?i:\bsee (?:the )?(?:stack ?trace|traceback|logs?|errors?)\b.{0,60}"
    r"\broot cause\b)"
)
"""The words of a line which says that its cause is found elsewhere: whoever printed it only heard
of it."""
_CARD = re.compile(
    r"\b(?P<name>(?:mlx[45]|bnxt(?:_re)?|irdma|ionic|hfi1|qib|erdma|efa|rocep|ibp|mlnx)_?\w*)"
    r"(?::(?P<port>\d+))?(?:.{0,60}?\bport (?P<told>\d+))?"
)
_OF_THE_HOST = frozenset({"shm-full"})
"""Signatures of what all processes of a host share: the one that asked first is no culprit."""
_OF_THE_KERNEL = frozenset({"kernel-oom-kill"})
"""Signatures of the kernel's records that it killed a process."""
_LAST_WORDS = 4096
"""Most bytes that a process prints after the error that ended it."""
_AT_ONCE = 10.0
"""Most seconds between the kernel's record of a kill and a launcher's of that process's end."""
_OF_THE_PROGRAM = frozenset(
    {"python-exception", "config", "missing-env", "xla-compile", "checkpoint-load", "data-loading"}
)
"""Classes of errors that a program or its settings have on each rank alike."""
_DIGITS = re.compile(r"\d")
_ABORTS = frozenset({"heap-corruption"})
"""Signatures of lines after which the process that printed them aborts."""
_MOST_LOCAL = 64
"""Most ranks that one node may have; a larger group of ranks is not taken for a node's."""
_ENDED = frozenset({"actor-fail", "heartbeat-timeout", "signal-kill", "unknown-death"})
"""Classes whose lines say that a process ended but not why: where they name none, the watchdogs'
lines may."""


def name_culprits(
    case: LogAnalysis, cause: Hit, kind: str, hits: Sequence[Hit]
) -> tuple[LogCulprit, ...]:
    """The culprits behind ``cause``, the likeliest first; empty if the logs do not show any."""
    processes = case.processes
    if cause.signature.id == "exit-abort" and _by_watchdog(hits):
        return _lagging(case, hits)
    if kind in _WAITING and cause.signature.accuses == "nobody":
        return _lagging(case, hits)
    if kind == "heartbeat-timeout":
        accused = _accused(cause, hits)
        if accused:
            return tuple(_culprit(o, processes, "its heartbeats stopped") for o in accused)
    origin = _ranked(cause, _accused_process(case, cause), hits)
    if cause.signature.accuses != "nobody" and not origin.names_process:
        origin = _joined(origin, _from_another_line(case, cause, hits))
    if _empty(origin) and kind in _ASKED_ALIKE:
        origin = _alone(cause, hits)
    if kind == "illegal-memory-access":
        origin = _with_device(case, origin, cause, hits)
    if cause.signature.id in _OF_THE_HOST:
        whole = processes.complete(origin)
        origin = Origin(host=whole.host, ip=whole.ip)
    elif _empty(origin):
        origin = _by_exit(kind, hits, cause)
    else:
        origin = _of_the_machine(case, origin, cause, hits)
    if _empty(origin):
        return _lagging(case, hits) if kind in _ENDED else ()
    if _raised_by_all(case, cause, hits):
        return ()
    return (_culprit(origin, processes, _reason(cause)),)


def behind_timeout(case: LogAnalysis, cause: Hit, kind: str) -> Hit | None:
    """The error with which the awaited rank's output ends, where no date tells that it came before
    the time-outs of the others; None if watchdogs name no rank, or its output ends otherwise."""
    if kind not in _WAITING or cause.signature.accuses != "nobody":
        return None
    awaited = {late.rank for late in _lagging(case, case.fatal)}
    own = [
        hit
        for hit in case.fatal
        if hit.time is None
        and hit.next_time is None
        and case.files[hit.file].last_offset - hit.offset <= _LAST_WORDS
        and is_trouble(hit)
        and is_concrete(hit, hit.signature.kind)
        and _rank(case.printed_by(hit), case.processes) in awaited
    ]
    return own[-1] if own else None


def _raised_by_all(case: LogAnalysis, cause: Hit, hits: Sequence[Hit]) -> bool:
    """Whether all ranks of the job raised the same exception at once: it is the program's or its
    settings', and the rank that printed first is no more to blame than the others."""
    if cause.signature.kind not in _OF_THE_PROGRAM:
        return False
    alike = [hit for hit in hits if _error_in(hit) == _error_in(cause)]
    times = [hit.time for hit in alike if hit.own_time and hit.time is not None]
    if times and max(times) - min(times) > _AT_ONCE:
        return False
    raised = {case.printed_by(hit).rank for hit in alike} - {None}
    seen = {case.printed_by(hit).rank for hit in hits}
    seen |= {step.rank for facts in case.files for step in facts.steps}
    every = set(range(case.world if case.world is not None else len(seen - {None})))
    return len(raised) > 1 and raised >= every | (seen - {None})


def _error_in(hit: Hit) -> str:
    """What the line says apart from its numbers, which differ between ranks."""
    raised = hit.exception
    return _DIGITS.sub("", f"{raised.kind}: {raised.message}" if raised else hit.text)


def _of_the_machine(case: LogAnalysis, origin: Origin, cause: Hit, hits: Sequence[Hit]) -> Origin:
    """``origin`` of a record about a machine: of its card, or of a process that it killed."""
    whole = case.processes.complete(origin)
    if cause.signature.kind == "link-down":
        return _of_card(whole)
    killed = cause.signature.id in _OF_THE_KERNEL and whole.rank is None
    return _killed_rank(case, origin, cause, hits) if killed else origin


def _killed_rank(case: LogAnalysis, origin: Origin, cause: Hit, hits: Sequence[Hit]) -> Origin:
    """``origin`` of the kernel's record, with the only rank whose launcher saw it end by SIGKILL at
    that moment: a container has pids, and often a host name, of its own."""
    machines = {f.file.origin.host for f in case.files if f.file.kind == "kernel"} - {origin.host}
    ended = {
        hit.exit.rank
        for hit in hits
        if hit.exit is not None
        and hit.exit.root
        and ended_by_signal(hit) == "SIGKILL"
        and hit.exit.host not in machines
        and hit.time is not None
        and cause.time is not None
        and abs(hit.time - cause.time) <= _AT_ONCE
    } - {None}
    return origin.filled(Origin(rank=ended.pop())) if len(ended) == 1 else origin


def _with_device(case: LogAnalysis, origin: Origin, cause: Hit, hits: Sequence[Hit]) -> Origin:
    """``origin`` with the GPU that the driver names beside it, if there is only one. Pids do not
    help: those of the driver are the host's, those of a rank may be its container's."""
    if origin.gpu:
        return origin
    whole = case.processes.complete(origin)
    place = Origin(host=whole.host, ip=whole.ip)
    named = {
        hit.groups["gpu"]
        for hit in hits
        if hit.signature.kind == cause.signature.kind
        and hit.groups.get("gpu")
        and may_be(Origin(host=hit.origin.host, ip=hit.origin.ip), place)
        and _near(hit, cause)
    }
    return origin.filled(Origin(gpu=named.pop())) if len(named) == 1 else origin


def _alone(cause: Hit, hits: Sequence[Hit]) -> Origin:
    """The only rank that failed like this, if the lines of others show that they did not fail: a
    request that all ranks make alike fails on one of them for a reason of its node."""
    ranks = {hit.origin.rank for hit in hits if hit.signature.kind == cause.signature.kind}
    others = {hit.origin.rank for hit in hits} - ranks - {None}
    return cause.origin if ranks == {cause.origin.rank} != {None} and others else NOBODY


def _of_card(origin: Origin) -> Origin:
    """The node of a card that all its processes share: the one that reported it first is not a
    culprit, and the index in its line is that of a GPU."""
    if origin.host or origin.ip:
        return Origin(host=origin.host, ip=origin.ip)
    return msgspec.structs.replace(origin, gpu="")


def _by_watchdog(hits: Sequence[Hit]) -> bool:
    return any(hit.signature.id in _BY_WATCHDOG for hit in hits)


def _lagging(case: LogAnalysis, hits: Sequence[Hit]) -> tuple[LogCulprit, ...]:
    works = [work for facts in case.files for work in facts.works]
    if not works:
        works = [RankWork(rank=rank) for rank in _timed_out(hits)]
    late = laggards(works, case.world, _heard(case, hits))
    return tuple(
        _culprit(Origin(rank=rank), case.processes, reason) for rank, reason in late.items()
    )


def _timed_out(hits: Iterable[Hit]) -> set[int]:
    """The ranks that say that a collective timed out, in any library's words."""
    told = (hit for hit in hits if hit.signature.kind == "nccl-timeout")
    ranks = (hit.origin.rank for hit in told if hit.signature.role != "echo")
    return {rank for rank in ranks if rank is not None}


def _heard(case: LogAnalysis, hits: Sequence[Hit]) -> set[int] | None:
    """The ranks whose output was read; None if all ranks write into one file."""
    reports = [
        {work.rank for work in facts.works} | _timed_out(hit for hit in hits if hit.file == index)
        for index, facts in enumerate(case.files)
    ]
    shared = [ranks for ranks in reports if len(ranks) > 1]
    if len(shared) == 1 and sum(map(bool, reports)) == 1:
        return None
    named: set[int | None] = {hit.origin.rank for hit in hits}
    for facts in case.files:
        own = facts.file.origin
        named |= {own.rank, own.local_rank if case.processes.one_node else None}
        named |= {seen.rank for seen in facts.steps}
    heard = {rank for rank in named if rank is not None}
    size = max((max(ranks) - min(ranks) + 1 for ranks in shared), default=0)
    for ranks in shared:
        # A node's ranks are numbered consecutively, and each node has equally many.
        first = min(ranks) // size * size
        if size <= _MOST_LOCAL and max(ranks) < first + size:
            heard |= set(range(first, first + size))
    return heard


def _accused(cause: Hit, hits: Iterable[Hit]) -> list[Origin]:
    """The tasks that heartbeat lines name, in order, each once."""
    seen: dict[int, Origin] = {}
    for hit in (cause, *hits):
        rank = hit.groups.get("rank", "")
        if hit.signature.id == cause.signature.id and rank.isdigit():
            seen.setdefault(int(rank), Origin(rank=int(rank)))
    return list(seen.values())[:16]


def _accused_process(case: LogAnalysis, cause: Hit) -> Origin:
    named, own = named_by(cause), case.printed_by(cause)
    launcher = "code" in cause.groups
    # Who reports the code of a process that ended is not that process, but runs on its node.
    if cause.signature.accuses == "nobody" or _ELSEWHERE.search(cause.text):
        return NOBODY
    if cause.signature.accuses == "self":
        if _agree(named, own):
            return named.filled(own)
        return named.filled(Origin(host=own.host, ip=own.ip)) if launcher else own.filled(named)
    file = case.files[cause.file].file
    if file.kind == "kernel" or cause.text.startswith("kernel: "):
        machine = file.origin.filled(own)
        return named.filled(Origin(host=machine.host, ip=machine.ip))
    return named.filled(Origin(host=own.host, ip=own.ip)) if launcher else named


def _from_another_line(case: LogAnalysis, cause: Hit, hits: Sequence[Hit]) -> Origin:
    """The process in the next line that reports the same thing and names somebody."""
    for hit in hits:
        same = hit is not cause and hit.signature.kind == cause.signature.kind
        if not same or hit.exit is not None or hit.signature.role == "echo":
            continue
        origin = _accused_process(case, hit)
        if not _empty(origin) and _near(hit, cause):
            return origin
    return NOBODY


def _near(one: Hit, other: Hit) -> bool:
    """Whether the two lines are close enough to be about one event."""
    if one.time is None or other.time is None:
        return True
    return abs(one.time - other.time) <= _SAME_EVENT


def _joined(known: Origin, again: Origin) -> Origin:
    """What another line says about the same thing, unless it is about another place."""
    return known.filled(again) if _empty(known) or same_place(known, again) else known


def _agree(one: Origin, other: Origin) -> bool:
    return one.pid is None or other.pid is None or one.pid == other.pid


def _ranked(hit: Hit, origin: Origin, hits: Sequence[Hit]) -> Origin:
    """``origin`` of srun's line about a task: no rank if the tasks are torchrun's launchers.

    The rank is then the one whose end the launcher saw first.
    """
    if not is_of_srun(hit):
        return origin
    roots = [h for h in hits if h.exit is not None and h.exit.root]
    if roots:
        return min(roots, key=lambda h: h.time if h.time is not None else 0.0).origin
    if any(h.signature.id in TORCHRUN for h in hits):
        return Origin(host=origin.host, ip=origin.ip)
    return origin


def _by_exit(kind: str, hits: Sequence[Hit], cause: Hit) -> Origin:
    """The first failed rank as the launcher saw it, for a cause whose line names no process."""
    if kind in _COMMON_FATE or _told_by_several(cause, hits):
        return NOBODY
    hits = [hit for hit in hits if not explained(hit)]
    rows = [hit for hit in hits if hit.exit is not None and hit.exit.root]
    rows = [hit for hit in rows if may_be(hit.origin, cause.origin)]
    aborts = cause.signature.id in _ABORTS and not _by_watchdog(hits)
    others = ("SIGTERM", "SIGINT") if aborts else ("SIGTERM", "SIGINT", "SIGABRT")
    rows = [hit for hit in rows if ended_by_signal(hit) not in others]
    if rows:
        return rows[0].origin
    exits = [hit for hit in hits if hit.signature.id in ("exit-by-signal", "exit-code")]
    exits = [hit for hit in exits if may_be(hit.origin, cause.origin)]
    first = next((hit for hit in exits if _names_one(hit) or is_of_srun(hit)), None)
    if first is None or not _names_one(first):
        return NOBODY  # srun names a range of tasks: any of them may have been the first
    return _ranked(first, named_by(first).filled(first.origin), hits)


def _told_by_several(cause: Hit, hits: Sequence[Hit]) -> bool:
    """Whether nameless processes printed the line, and several ranks failed alike: the one whose
    end the launcher noticed first is as good as any other."""
    same = (hit.signature.id == cause.signature.id and hit.text == cause.text for hit in hits)
    rows = [hit.exit for hit in hits if hit.exit is not None]
    first = {row.code for row in rows if row.root}
    return sum(same) > 1 and len({row.rank for row in rows if row.code in first}) > 1


def _names_one(hit: Hit) -> bool:
    return "pid" in hit.groups or "rank" in hit.groups


def _empty(origin: Origin) -> bool:
    return not (origin.names_process or origin.ip or origin.host or origin.gpu)


def _culprit(origin: Origin, processes: ProcessIndex, reason: str) -> LogCulprit:
    whole = processes.complete(origin)
    return LogCulprit(
        rank=_rank(whole, processes),
        node=whole.host or whole.ip,
        pid=whole.pid,
        ip=whole.ip,
        actor=whole.actor,
        gpu=whole.gpu,
        reason=mask(reason),
    )


def _rank(origin: Origin, processes: ProcessIndex) -> int | None:
    """The rank of ``origin``. On one node the local rank is the rank; on several it would accuse
    another one."""
    local = origin.local_rank
    if local is None:
        local = processes.device_rank(origin)
    if origin.rank is not None or not processes.one_node:
        return origin.rank
    return local


def _reason(cause: Hit) -> str:
    signal = ended_by_signal(cause)
    if signal:
        return f"ended by {signal}"
    if cause.exception is not None:
        message = cause.exception.message.split("\n")[0][:160]
        return f"{cause.exception.kind}: {message}" if message else cause.exception.kind
    said = cause.signature.cause or cause.text[:160]
    card = _CARD.search(cause.text) if cause.signature.kind == "link-down" else None
    if card is None:
        return said
    port = card["port"] or card["told"]
    return f"{card['name']} port {port}: {said}" if port else f"{card['name']}: {said}"
