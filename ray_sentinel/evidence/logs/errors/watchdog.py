"""NCCL watchdog lines: per rank and process group, what was enqueued and completed last.

Formats over PyTorch's versions (``torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp``)::

    [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, ...)
    [PG 0 (default_pg) Rank 3] Timeout at NCCL work: 12, last enqueued NCCL work: 12, ...
    [PG 1 Rank 0] ... at work: 7753, last enqueued NCCL work: 7755, last completed ...
    [PG ID 0 PG GUID 0(default_pg) Rank 1] Timeout at NCCL work: 808, last enqueued ...
    [...] at work sequence id: 12 PG status: last enqueued work: 12, last completed ...

Who times out waits. A rank that never enqueued what the others wait for, or that completed less
than all the others, is the one they wait for. So is a rank whose watchdog alone is silent while
those of all others time out: it did not enter the collective, or it is dead. That holds only where
its output was read: a log that is missing is no evidence. If all say the same, nobody can be named.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.evidence.alignment import Called, differing
from ray_sentinel.evidence.minority import half, most_odd

_GROUP = re.compile(
    r"\[PG (?:ID )?(?P<pg>\d+)(?: PG GUID (?P<guid>[^\]]*?)| \([^\]]*?\))? ?"
    r"Rank (?P<rank>\d{1,9})\]"
)
_RANK = re.compile(r"\[[Rr]ank ?(?P<rank>\d{1,9})\]")
_WORK = re.compile(
    r"WorkNCCL\(SeqNum=(?P<seq>\d{1,20}), OpType=(?P<op>\w+)"
    r"(?:, NumelIn=(?P<numin>\d+), NumelOut=(?P<numout>\d+))?"
)
_AT = re.compile(
    r"(?:at work(?: sequence id)?|Timeout at NCCL work): (?P<seq>\d{1,20})\b", re.IGNORECASE
)
_LAST = re.compile(
    r"last enqueued (?:NCCL )?work: (?P<enqueued>-?\d{1,20}), "
    r"last completed (?:NCCL )?work: (?P<completed>-?\d{1,20})\b",
    re.IGNORECASE,
)

_MANY = 7
"""Least number of ranks heard, with a single one missing, that cannot be chance."""


class RankWork(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank's watchdog reported about one process group. Facts that are absent are None."""

    rank: int
    group: str = ""
    seq: int | None = None
    """The number of the collective that the rank waited for."""
    operation: str = ""
    size: str = ""
    enqueued: int | None = None
    completed: int | None = None


def read_work(text: str, rank: int | None) -> RankWork | None:
    """The facts in a watchdog line; ``rank`` is that of the printing process if the line has
    none."""
    group, named = "", _RANK.search(text)
    if match := _GROUP.search(text):
        # In a subgroup the number after "Rank" is the rank in the group, not in the world.
        guid = match["guid"] or ""
        group = f"{match['pg']}:{guid}" if guid else match["pg"]
        local = int(match["rank"])
        if rank is None:
            rank = int(named["rank"]) if named else local
    elif named and rank is None:
        rank = int(named["rank"])
    if rank is None:
        return None
    work, at, last = _WORK.search(text), _AT.search(text), _LAST.search(text)
    if work is None and last is None:
        return None
    seq = int(work["seq"]) if work else int(at["seq"]) if at else None
    return RankWork(
        rank=rank,
        group=group,
        seq=seq,
        operation=work["op"] if work else "",
        size=f"{work['numin']}/{work['numout']}" if work and work["numin"] else "",
        enqueued=int(last["enqueued"]) if last else None,
        completed=int(last["completed"]) if last else None,
    )


def laggards(
    works: Iterable[RankWork],
    world_size: int | None = None,
    heard: Collection[int] | None = None,
) -> dict[int, str]:
    """The ranks that the others wait for, with the reason, as far as the lines show; empty if they
    do not.

    Each process group is judged by itself. More than half of a group's ranks are never named.
    ``heard`` are the ranks whose output was read; None is all.
    """
    by_group: dict[str, dict[int, RankWork]] = defaultdict(dict)
    loose: dict[int, RankWork] = {}
    for work in works:
        if work.group:
            by_group[work.group][work.rank] = _joined(by_group[work.group].get(work.rank), work)
        else:
            loose[work.rank] = _joined(loose.get(work.rank), work)
    if not by_group:
        by_group[""] = loose
    elif len(by_group) == 1:
        only = next(iter(by_group.values()))
        for rank, work in loose.items():
            only[rank] = _joined(only.get(rank), work)
    found: dict[int, str] = {}
    for group, ranks in sorted(by_group.items()):
        world = (world_size or _guessed_world(ranks, heard)) if _is_default(group) else None
        for rank, reason in _judge(ranks, world, heard).items():
            found.setdefault(rank, reason)
    return found


def _is_default(group: str) -> bool:
    """The process group of all ranks has the number 0; old versions print none."""
    return group.partition(":")[0] in ("", "0")


def _guessed_world(ranks: dict[int, RankWork], heard: Collection[int] | None) -> int | None:
    """n + 1 ranks, if all of 0..n but one have reported, and either they are many or that one has
    written something else."""
    most = max((*ranks, *(heard or ())), default=-1) + 1
    if most - len(ranks) != 1:
        return None
    known = len(ranks) >= _MANY or (heard is not None and set(range(most)) <= {*ranks, *heard})
    return most if known else None


def _judge(
    ranks: dict[int, RankWork], world_size: int | None, heard: Collection[int] | None
) -> dict[int, str]:
    if not ranks:
        return {}
    for judge in (_not_enqueued, _less_completed, _odd_one_out):
        named = judge(ranks)
        if 0 < len(named) <= half(max(len(ranks), 2)):
            return named
    return _silent(ranks, world_size, heard)


def _not_enqueued(ranks: dict[int, RankWork]) -> dict[int, str]:
    waited = [w.seq for w in ranks.values() if w.seq is not None]
    if not waited:
        return {}
    common, count = Counter(waited).most_common(1)[0]
    if count * 2 < len(ranks) and count < 2:
        return {}
    return {
        rank: f"last enqueued collective {work.enqueued}; {count} others wait in {common}"
        for rank, work in sorted(ranks.items())
        if work.enqueued is not None and work.enqueued < common
    }


def _less_completed(ranks: dict[int, RankWork]) -> dict[int, str]:
    done = {r: w.completed for r, w in ranks.items() if w.completed is not None}
    if len(done) < 2:
        return {}
    most, count = Counter(done.values()).most_common(1)[0]
    if count < 2 and len(done) > 2:
        return {}
    if len(done) == 2:
        most = max(done.values())
    return {
        rank: f"completed {own} collectives, the others {most}"
        for rank, own in sorted(done.items())
        if own < most
    }


def _odd_one_out(ranks: dict[int, RankWork]) -> dict[int, str]:
    """The one rank that waits in another operation than all the others, at the same number."""
    calls = [Called(r, w.seq, (w.operation, w.size)) for r, w in ranks.items() if w.operation]
    odd = differing(calls)
    if len(calls) < 3 or len(odd) != 1 or len(odd[0].usual) != len(calls) - 1:
        return {}
    rank, others = odd[0].process, len(odd[0].usual)
    own, due = ranks[rank].operation, ranks[odd[0].usual[0]].operation
    if own == due:
        # Sizes may differ by design.
        return {}
    return {rank: f"in {own} where {others} others are in {due}, both number {odd[0].operation}"}


def _silent(
    ranks: dict[int, RankWork], world_size: int | None, heard: Collection[int] | None
) -> dict[int, str]:
    """If all but a few ranks report, the silent ones did not reach the collective, or are dead.

    Nobody is named where the output of one of them was not read.
    """
    if not world_size or len(ranks) < 2:
        return {}
    if max(ranks) >= world_size or world_size - len(ranks) > most_odd(world_size):
        return {}
    silent = sorted(set(range(world_size)) - set(ranks))
    if heard is not None and not set(silent) <= set(heard):
        return {}
    reason = f"its watchdog alone said nothing while those of {len(ranks)} others timed out"
    if len(silent) > 1:
        reason = f"its watchdog said nothing while those of {len(ranks)} others timed out"
    return dict.fromkeys(silent, reason)


def _joined(old: RankWork | None, new: RankWork) -> RankWork:
    """Facts of several lines of one rank; the first timed-out collective stays."""
    if old is None:
        return new
    return RankWork(
        rank=new.rank,
        group=new.group or old.group,
        seq=old.seq if old.seq is not None else new.seq,
        operation=old.operation or new.operation,
        size=old.size or new.size,
        enqueued=old.enqueued if old.enqueued is not None else new.enqueued,
        completed=old.completed if old.completed is not None else new.completed,
    )
