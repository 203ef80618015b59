"""The dumps of a job at a moment, as the versions of PyTorch and other recorders write them."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass
from typing import Any

from tests.support.recorder_fleet.clock import TRANSFERS, Clockwork, Done
from tests.support.recorder_fleet.shape import Todo


@dataclass(frozen=True)
class Hand:
    """How one recorder writes."""

    version: str = "2.9"
    text: bool = False
    """JSON instead of a pickle."""
    active_only: bool = False
    status: bool = True
    bare_list: bool = False
    """Entries alone, without a dict around them: the first versions."""
    one_seq: bool = False
    """``seq_id`` instead of two counters."""
    says_p2p: bool = True
    bare_group: bool = False
    """No ``process_group`` and no ``pg_config``."""
    global_titles: bool = False
    all_groups: bool = False
    """The configuration of groups that were never used, too."""
    library: str = "nccl"
    extra: bool = False
    """Fields that nobody knows yet."""
    timing: bool = False
    ring: int = 1 << 30


HANDS = {
    "list": Hand("1.0", bare_list=True, one_seq=True, bare_group=True, status=False),
    "1.5": Hand("1.5", one_seq=True, status=False),
    "2.0": Hand("2.0", says_p2p=False, status=False),
    "2.1": Hand("2.1", status=False, global_titles=True),
    "2.2": Hand("2.2", status=True),
    "2.4": Hand("2.4", all_groups=True),
    "2.5": Hand("2.5", timing=True),
    "2.7": Hand("2.7", active_only=True),
    "2.8": Hand("2.8", text=True),
    "2.9": Hand("2.9", all_groups=True, active_only=True),
    "2.9 text": Hand("2.9", text=True, active_only=True),
    "2.10": Hand("2.10", text=True, all_groups=True),
    "2.11": Hand("2.11", extra=True),
    "hccl": Hand("2.4", library="hccl"),
    "xccl": Hand("2.9", library="xccl", text=True),
    "short": Hand("2.9", ring=30),
}


def dumps(
    job: Clockwork, hand: Hand, at: float | None = None, skew: float = 0.0
) -> dict[int, bytes]:
    """Every rank's dump, ``skew`` seconds apart where one comes after the other."""
    start = job.last + 1.0 if at is None else at
    return {
        rank: encode(one(job, rank, hand, start + skew * rank), hand)
        for rank in range(job.shape.world)
    }


def encode(tree: Any, hand: Hand) -> bytes:
    """As bytes of a file."""
    return json.dumps(tree).encode() if hand.text else pickle.dumps(tree, protocol=2)


def one(job: Clockwork, rank: int, hand: Hand, now: float) -> Any:
    """One rank's tree."""
    mine = [key for key, (_, ranks) in job.shape.groups.items() if rank in ranks]
    made = [done for done in job.made[rank] if done.issued <= now]
    used = [key for key in mine if any(done.todo.group == key for done in made)]
    rows = [row for done in made for row in _rows(job, rank, done, mine, hand, now)][-hand.ring :]
    if hand.active_only:
        rows = [row for row in rows if row["state"] != "completed"]
    if hand.bare_list:
        return rows
    tree: dict[str, Any] = {"version": hand.version, "entries": rows}
    if not hand.bare_group:
        keys = mine if hand.all_groups else used
        tree["pg_config"] = {_name(job, k): _config(job, k) for k in sorted(keys)}
    tree["comm_lib_version" if hand.version in ("2.10", "2.11") else "nccl_version"] = "2.27.5"
    if hand.status:
        tree["pg_status"] = {
            str(mine.index(key)): _status([d for d in made if d.todo.group == key], now, hand)
            for key in used
        }
    if hand.extra:
        tree |= {"host_info": {"hostname": f"node{rank // 8}"}, "nccl_comm_state": {}}
    return tree


def _name(job: Clockwork, key: str) -> str:
    return str(list(job.shape.groups).index(key))


def _config(job: Clockwork, key: str) -> dict[str, str]:
    desc, ranks = job.shape.groups[key]
    return {"name": _name(job, key), "desc": desc, "ranks": str(list(ranks))}


def _status(made: list[Done], now: float, hand: Hand) -> dict[str, Any]:
    launched = [done for done in made if done.launched]
    ended = [done for done in made if done.seen <= now]
    number = {
        "last_enqueued_collective": _seq(launched),
        "last_started_collective": _seq([d for d in made if d.start <= now]) if hand.timing else -1,
        "last_completed_collective": _seq(ended),
    }
    return {key: str(value) for key, value in number.items()} if hand.text else dict(number)


def _seq(made: list[Done]) -> int:
    if not made:
        return -1
    last = made[-1]
    return last.p2p if last.todo.op in TRANSFERS else last.collective


def _rows(
    job: Clockwork, rank: int, done: Done, mine: list[str], hand: Hand, now: float
) -> list[dict[str, Any]]:
    parts = done.todo.parts
    if hand.one_seq:
        # Transfers of a batch were not recorded one by one.
        parts = ()
    rows = [_row(job, rank, done, part, mine, hand, now) for part in parts]
    for back, row in enumerate(reversed(rows), 1):
        row["record_id"] -= back
        row["op_id"] -= back - 1
        if row["state"] == "completed":
            row |= {"state": "scheduled", "retired": False, "time_discovered_completed_ns": None}
    if not parts or done.launched:
        rows.append(_row(job, rank, done, done.todo, mine, hand, now))
    return rows


def _row(
    job: Clockwork, rank: int, done: Done, todo: Todo, mine: list[str], hand: Hand, now: float
) -> dict[str, Any]:
    desc, ranks = job.shape.groups[todo.group]
    over = done.seen <= now
    started = hand.timing and done.start <= now
    sizes = [] if todo.op in ("batch", "barrier") else [[todo.numel]]
    wide = len(ranks) if "gather" in todo.op else 1
    created = int(1.7e18 + done.issued * 1e9) + rank * 40_000_000_000
    row: dict[str, Any] = {
        "record_id": done.record,
        "pg_id": mine.index(todo.group),
        "collective_seq_id": done.collective,
        "p2p_seq_id": done.p2p,
        "op_id": done.op_id,
        "profiling_name": f"{hand.library}:{_title(rank, todo, ranks, hand)}",
        "time_created_ns": created,
        "input_sizes": sizes,
        "input_dtypes": [todo.dtype] if sizes else [],
        "output_sizes": [[todo.numel * wide]] if sizes else [],
        "output_dtypes": [todo.dtype] if sizes else [],
        "state": "completed" if over else "started" if started else "scheduled",
        "time_discovered_started_ns": created + 9 if started else None,
        "time_discovered_completed_ns": created + 99 if over else None,
        "retired": over,
        "timeout_ms": 600_000,
        "is_p2p": todo.op in TRANSFERS,
        "frames": [{"name": "forward", "filename": "model.py", "line": 12}],
    }
    if hand.one_seq:
        row["seq_id"] = done.collective + done.p2p
        for key in ("collective_seq_id", "p2p_seq_id", "timeout_ms"):
            del row[key]
    if hand.one_seq or not hand.says_p2p:
        del row["is_p2p"]
    if not hand.bare_group:
        row["process_group"] = (_name(job, todo.group), desc)
    if hand.extra:
        row |= {"thread_name": "pt_autograd_0", "thread_id": "1", "trace_id": 7}
    return row


def _title(rank: int, todo: Todo, ranks: tuple[int, ...], hand: Hand) -> str:
    if todo.op == "batch":
        return "coalesced"
    if todo.op not in ("send", "recv"):
        return "all_reduce_barrier" if todo.op == "barrier" else todo.op
    me, peer = rank, todo.peer
    if not hand.global_titles:
        me, peer = ranks.index(rank), ranks.index(todo.peer)
    return f"{todo.op} {me}{'->' if todo.op == 'send' else '<-'}{peer}"
