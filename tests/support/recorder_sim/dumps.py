"""The simulated jobs' dumps, in the formats that PyTorch writes and wrote."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass
from typing import Any

from tests.support.recorder_sim.machine import Machine, Op
from tests.support.recorder_sim.program import Call


@dataclass(frozen=True)
class Format:
    """How a version and its settings write."""

    version: str = "2.9"
    as_json: bool = False
    only_active: bool = False
    """TORCH_INCLUDE_ONLY_ACTIVE."""
    names: str = "counted"
    """"counted" in one order for all, "own" counters per rank, "hashed", or "colliding"."""
    global_titles: bool = False
    ring: int = 2000
    status: bool = True
    library: str = "nccl"


NCCL = Format()
FORMATS = {
    "2.9": NCCL,
    "2.9 active": Format(only_active=True),
    "2.10 json": Format("2.10", as_json=True),
    "2.10 json active": Format("2.10", as_json=True, only_active=True),
    "2.4 own names": Format("2.4", names="own"),
    "2.7 hashed": Format("2.7", names="hashed"),
    "2.5 colliding": Format("2.5", names="colliding", global_titles=True),
    "2.1 no status": Format("2.1", status=False),
    "2.9 active hashed": Format(only_active=True, names="hashed", global_titles=True),
    "2.8 wrapped": Format("2.8", ring=24),
    "gloo": Format("2.10", as_json=True, library="gloo"),
}


def write(machine: Machine, style: Format) -> dict[int, bytes]:
    """Every rank's dump."""
    return {rank: encode(tree(machine, rank, style), style) for rank in range(machine.job.world)}


def encode(dump: dict[str, Any], style: Format) -> bytes:
    if style.as_json:
        return json.dumps(dump).encode()
    return pickle.dumps(dump, protocol=2)


def tree(machine: Machine, rank: int, style: Format) -> dict[str, Any]:
    """One rank's dump as plain data."""
    names = _Names(machine, rank, style)
    gloo = style.library == "gloo"
    rows = [
        row
        for op in machine.ops[rank]
        if not (gloo and (op.call.op in ("send", "recv", "batch") or not op.enqueued))
        for row in _rows(machine, op, names, style)
    ]
    rows = rows[-style.ring :]
    if style.only_active:
        rows = [row for row in rows if row["state"] != "completed"]
    result: dict[str, Any] = {
        "version": style.version,
        "pg_config": names.configs(),
        "comm_lib_version" if style.version == "2.10" else "nccl_version": "2.27.3",
    }
    if gloo:
        result["pg_config"] = {"": {"name": "", "desc": "", "ranks": "[]"}}
    if style.status:
        result["pg_status"] = _status(machine, rank, names, style)
    if rows or not style.as_json:
        result["entries"] = rows
    return result


class _Names:
    """One rank's numbers and names of its groups, of those that it has used."""

    def __init__(self, machine: Machine, rank: int, style: Format) -> None:
        self.job, self.rank, self.style = machine.job, rank, style
        used = {op.call.group for op in machine.ops[rank]}
        self.mine = [key for key, (_, ranks) in self.job.groups.items() if rank in ranks]
        self.used = [key for key in self.mine if key in used]

    def pg_id(self, key: str) -> int:
        return self.mine.index(key)

    def name(self, key: str) -> str:
        desc, ranks = self.job.groups[key]
        if self.style.names == "own":
            return str(self.mine.index(key))
        if self.style.names == "hashed" and key != "world":
            return f"{hash_text(desc + str(ranks)):040x}"
        if self.style.names == "colliding" and key != "world":
            return {"undefined": "u" + str(len(ranks))}.get(desc, desc.lower())
        return str(list(self.job.groups).index(key))

    def configs(self) -> dict[str, dict[str, str]]:
        items = {}
        for key in self.used:
            desc, ranks = self.job.groups[key]
            name = self.name(key)
            items[name] = {"name": name, "desc": desc, "ranks": str(list(ranks))}
        return dict(sorted(items.items()))


def hash_text(text: str) -> int:
    value = 14695981039346656037
    for byte in text.encode():
        value = (value ^ byte) * 1099511628211 % (1 << 64)
    return value


def _rows(machine: Machine, op: Op, names: _Names, style: Format) -> list[dict[str, Any]]:
    rows = []
    for index, part in enumerate(op.call.parts):
        row = _row(machine, op, part, names, style, end=False)
        row["record_id"] = op.record - len(op.call.parts) + index
        row["op_id"] = op.op_id - len(op.call.parts) + 1 + index
        rows.append(row)
    if not (op.call.op == "batch" and not op.enqueued):
        rows.append(_row(machine, op, op.call, names, style, end=True))
    return rows


def _row(
    machine: Machine, op: Op, call: Call, names: _Names, style: Format, *, end: bool
) -> dict[str, Any]:
    done = op.done and op.noticed and end
    gloo = style.library == "gloo"
    time = 1_758_580_156_000_000_000 + op.record * 1_000_000 + op.rank * 60_000_000_000
    sizes = [[call.size]] if call.op not in ("batch", "barrier") else []
    out = [[call.size * _growth(machine, call) // _shrink(machine, call)]] if sizes else []
    dtypes = [call.dtype] if sizes else []
    none: int | None = 0 if style.as_json else None
    return {
        "frames": [],
        "record_id": op.record,
        "pg_id": names.pg_id(op.call.group),
        "process_group": (names.name(op.call.group), machine.job.groups[op.call.group][0]),
        "collective_seq_id": op.collective_seq,
        "p2p_seq_id": op.p2p_seq,
        "op_id": op.op_id,
        "profiling_name": _title(machine, op, call, style),
        "time_created_ns": time,
        "input_sizes": sizes,
        "input_dtypes": dtypes,
        "output_sizes": out,
        "output_dtypes": dtypes,
        "state": "completed" if done and not gloo else "scheduled",
        "time_discovered_started_ns": none,
        "time_discovered_completed_ns": time + 5 if done and not gloo else none,
        "retired": done,
        "timeout_ms": 600_000,
        "is_p2p": op.call.op in ("send", "recv", "batch"),
    }


def _growth(machine: Machine, call: Call) -> int:
    return len(machine.job.groups[call.group][1]) if "gather" in call.op else 1


def _shrink(machine: Machine, call: Call) -> int:
    return len(machine.job.groups[call.group][1]) if "reduce_scatter" in call.op else 1


def _title(machine: Machine, op: Op, call: Call, style: Format) -> str:
    if call.op == "batch":
        return f"{style.library}:coalesced"
    if call.peer is None:
        name = "all_reduce_barrier" if call.op == "barrier" and style.library == "nccl" else call.op
        return f"{style.library}:{name}"
    me, peer = op.rank, call.peer
    if not style.global_titles:
        ranks = machine.job.groups[call.group][1]
        me, peer = ranks.index(me), ranks.index(peer)
    arrow = "->" if call.op == "send" else "<-"
    return f"{style.library}:{call.op} {me}{arrow}{peer}"


def _status(machine: Machine, rank: int, names: _Names, style: Format) -> dict[str, Any]:
    result = {}
    for key in names.used:
        ops = [op for op in machine.ops[rank] if op.call.group == key]
        if style.library == "gloo":
            ops = [op for op in ops if op.call.op not in ("send", "recv", "batch")]
        enqueued = [op for op in ops if op.enqueued]
        completed = [op for op in ops if op.done and op.noticed]
        values: dict[str, Any] = {
            "last_enqueued_collective": _number(enqueued, style),
            "last_started_collective": -1,
            "last_completed_collective": _number(completed, style),
        }
        if style.as_json:
            values = {name: str(value) for name, value in values.items()}
        result[str(names.pg_id(key))] = values
    return result


def _number(ops: list[Op], style: Format) -> int:
    if not ops:
        return -1
    last = ops[-1]
    if style.library == "gloo":
        return last.op_id
    return last.p2p_seq if last.call.op in ("send", "recv", "batch") else last.collective_seq
