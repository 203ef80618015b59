"""Processes that RAS considers dead, or that do not answer it.

A process that cannot be reached is missing at once, and declared dead after some 60 seconds. If
there are dead ones, those that are only missing went later and may be echoes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from ray_sentinel.evidence.nccl_ras.context import RasContext, minority
from ray_sentinel.evidence.nccl_ras.poll import Member, Poll, RasProcess, State
from ray_sentinel.model.ras import RasCulprit, RasKind

DEAD = "is dead to RAS: its process has ended, or could not be reached for a minute"
_MEMBERS: tuple[tuple[State, RasKind], ...] = (
    ("DEAD", "rank-dead"),
    ("UNRESPONSIVE", "rank-unresponsive"),
)
UNLISTED = "is missing from the RAS answer, while the others' counts stand still"
_MOST_TOLD = 8
MUTE = "does not answer RAS: stopped, hung with all its threads, cut off, or just gone"


def judge_gone(context: RasContext) -> None:
    """Name the processes that are gone, unless they are most of the job."""
    last = [poll for index, poll in enumerate(context.polls) if _is_last(context.polls, index)]
    dead = _unique(process for poll in last for process in poll.dead)
    known = {(process.host, process.pid) for process in dead}
    mute = [
        process
        for process in _unique(process for poll in last for process in poll.missing)
        if (process.host, process.pid) not in known
    ]
    total = _total(last)
    count = max(len(dead), sum(poll.dead_count for poll in last))
    if count:
        _name(context, dead, count, total, "rank-dead")
    count = max(len(mute), sum(poll.missing_count for poll in last) - (not mute) * len(dead))
    if count > 0:
        _name(context, mute, count, total, "rank-unresponsive")
    _name_members(context)
    if timeouts := sum(poll.timeouts for poll in last):
        context.say(
            f"{timeouts} communication time-outs while RAS gathered this: a process did not answer"
        )


def _name(
    context: RasContext, processes: list[RasProcess], count: int, total: int, kind: RasKind
) -> None:
    told = DEAD if kind == "rank-dead" else MUTE
    if not processes:
        context.say(f"{count} processes: each {told}; the output does not name them (verbose does)")
        return context.conclude("cannot-tell", 0.3)
    for process in processes:
        ranks = context.names.of_process(process)
        which = f" (rank {', '.join(map(str, ranks))})" if ranks else ""
        context.say(f"process {process.pid} on {process.host}{which} {told}")
    if count < total < 2 * count:  # where it is all that we know of, others may well live
        context.say(
            f"{count} of {total} processes at once: the one that answered may be cut off itself"
        )
        return context.conclude("cannot-tell", 0.3)
    if not context.open:
        return context.say("what only does not answer now may be an echo of what is dead")
    hosts = Counter(process.host for process in processes)
    if whole := [host for host, lost in hosts.items() if lost > 1]:
        context.say(f"several of them are on {', '.join(whole)}: look at that node")
    context.conclude(kind, 0.95 if kind == "rank-dead" else 0.85)
    for process in processes:
        _accuse(context, process, kind, told)
    return None


def _name_members(context: RasContext) -> None:
    """Missing ranks whose process the answer does not tell."""
    if not context.open:
        return
    for state, kind in _MEMBERS:
        for look in context.looks:
            found = [m for m in look.last.members if m.state == state and m.place is None]
            if (
                not found
                or not minority(look, len(found))
                or context.kind not in ("no-mismatch", kind)
            ):
                continue
            told = DEAD if state == "DEAD" else MUTE
            context.conclude(kind, 0.9 if state == "DEAD" else 0.8)
            for member in found:
                context.say(f"{context.who(look, member)} of {look.last.name} {told}")
                context.accuse(look, member, kind, told)


def judge_unlisted(context: RasContext) -> None:
    """Name ranks that the answer leaves out altogether. That is normal while a communicator is
    created; in one that stands still in two polls, the others wait for whoever is missing."""
    for look in context.looks:
        if not look.last.unlisted:
            continue
        absent = [look.before(rank) or Member(rank=rank) for rank in look.last.unlisted]
        who = ", ".join(context.who(look, member) for member in absent[:_MOST_TOLD])
        more = f" and {len(absent) - _MOST_TOLD} more" if len(absent) > _MOST_TOLD else ""
        context.say(f"{look.last.name}: the answer says nothing of {who}{more}")
        moved = [look.moved(member) for member in look.last.members]
        if True in moved or (not context.open and context.kind != "rank-unresponsive"):
            continue
        # All were listed before: whoever was not yet a member may still be on its way.
        known = all(look.before(rank) is not None for rank in look.last.unlisted)
        stays = look.first is not None and look.first.unlisted == look.last.unlisted
        if None in moved or not (known or stays) or not minority(look, len(absent)):
            context.conclude("cannot-tell", 0.3)
            continue
        context.conclude("rank-unresponsive", 0.6)
        for member in absent:
            context.accuse(look, member, "rank-unresponsive", UNLISTED)


def _accuse(context: RasContext, process: RasProcess, kind: RasKind, told: str) -> None:
    ranks: list[int | None] = [*context.names.of_process(process)] or [None]
    gpus = ",".join(map(str, process.gpus))
    for rank in ranks:
        context.culprits.append(
            RasCulprit(
                rank=rank, host=process.host, pid=process.pid, gpu=gpus, kind=kind, reason=told
            )
        )


def _is_last(polls: Sequence[Poll], index: int) -> bool:
    """No later poll is of the same job: one that knows a process of it, or names none."""
    mine = _places(polls[index])
    for later in polls[index + 1 :]:
        theirs = _places(later)
        if not mine or not theirs or mine & theirs:
            return False
    return True


def _total(polls: Sequence[Poll]) -> int:
    """Processes in the job, as far as the answers tell; a rank counts as one where they do not."""
    told = sum(poll.processes or 0 for poll in polls)
    seen = {place for poll in polls for place in _places(poll)}
    sizes = [c.size for poll in polls for c in poll.communicators]
    return max(told, len(seen), *sizes, *(row.size for poll in polls for row in poll.rows), 0)


def _places(poll: Poll) -> set[tuple[str, int]]:
    found = {(process.host, process.pid) for process in (*poll.dead, *poll.missing)}
    return found | {
        (member.host, member.pid)
        for communicator in poll.communicators
        for member in communicator.members
        if member.host and member.pid is not None
    }


def _unique(processes: Iterable[RasProcess]) -> list[RasProcess]:
    return list({(process.host, process.pid): process for process in processes}.values())
