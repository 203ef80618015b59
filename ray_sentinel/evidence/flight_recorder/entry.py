"""One recorded operation, in this package's own terms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ray_sentinel import regex as re

_PEERS = re.compile(r"^(?P<op>send|recv)\s+(?P<me>\d+)\s*(?:->|<-)\s*(?P<peer>\d+)")

# "coalesced", later "ALLGATHER_coalesced": ends a batch. "allreduce_coalesced" is one call.
_BATCH_END = re.compile(r"^([A-Z][A-Z0-9_]*_)?coalesced$")

# Different calls that the library runs as one operation on the wire.
_SAME_ON_THE_WIRE = {
    "_all_gather_base": "all_gather",
    "all_gather_single": "all_gather",
    "all_gather_into_tensor": "all_gather",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_single": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter",
    "all_reduce_barrier": "barrier",
    "all_to_all_single": "all_to_all",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
    "all_to_all_v_single": "all_to_all",
    "_broadcast_oop": "broadcast",
    "_reduce_oop": "reduce",
    "allreduce": "all_reduce",
    "allgather": "all_gather",
}

BEYOND = 2**63
"""No field of a dump holds a number this large: where one does, the dump is damaged."""
NEEDS_EVERYONE = frozenset(
    {
        "all_reduce",
        "all_gather",
        "reduce_scatter",
        "barrier",
        "allreduce_coalesced",
        "all_gather_into_tensor_coalesced",
        "reduce_scatter_tensor_coalesced",
        "all_gather_v",
        "reduce_scatter_v",
    }
)
"""Operations that no member can complete before every member has joined."""

_SIZES_MAY_DIFFER = frozenset(
    {"all_to_all", "gather", "scatter", "all_gather_v", "reduce_scatter_v", "coalesced"}
)

Signature = tuple[Any, ...]


class Entry(msgspec.Struct, kw_only=True):
    """One operation as its rank recorded it; a batch is one operation with parts."""

    record: int
    """The operation's place in the rank's own order of issue."""
    pg: int
    """The rank's own creation number of the group."""
    group: tuple[str, str]
    """The group's name and description."""
    p2p: bool
    collective_seq: int
    p2p_seq: int
    op_id: int
    op: str
    """The operation without library and peers: "all_reduce", "send", "recv", "coalesced", ..."""
    peer: int | None = None
    library: str = ""
    """What precedes the colon in the title: "nccl", "gloo", ..."""
    me: int | None = None
    """For a send or receive, the rank's own number in the title; what the two numbers there count
    is not known yet."""
    numels: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    """Number of elements of each input and of each output."""
    dtypes: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    done: bool = False
    created_ns: int | None = None
    """When the call was made, by the rank's own clock, in Unix nanoseconds."""
    retired: bool = False
    """The operation is off the work list, but nobody saw it complete. Where the library cannot tell
    completion (gloo), it is done; otherwise it timed out."""
    started: bool = False
    """The rank's device has begun the operation; only known where the recorder's timing is on."""
    parts: tuple[Entry, ...] = ()
    open_batch: bool = False
    """The operation belongs to a batch whose closing entry is not in the dump."""

    @property
    def seq(self) -> int:
        """Its sequence number in the counter that it belongs to."""
        return self.p2p_seq if self.p2p else self.collective_seq

    @property
    def transfers(self) -> tuple[Entry, ...]:
        """The sends and receives of a batch, or the operation itself where it is none."""
        return self.parts or (self,)

    @property
    def needs_everyone(self) -> bool:
        """Whether it completes only after all members of the group have called it."""
        if self.op == "coalesced":
            return bool(self.parts) and all(part.needs_everyone for part in self.parts)
        return self.op in NEEDS_EVERYONE

    @property
    def implied_size(self) -> int | None:
        """The group size that its element counts imply: an all-gather's output is that many times
        its input."""
        counts = {"all_gather": self.numels, "reduce_scatter": self.numels[::-1]}.get(self.op)
        if counts is None:
            return None
        one, all_ = map(sum, counts)
        return all_ // one if one > 0 and all_ % one == 0 else None

    @property
    def title(self) -> str:
        """For people: "all_reduce of 264 Float"."""
        if self.parts:
            return "batch of " + ", ".join(part.title for part in self.parts[:4])
        counts = self.numels[0] or self.numels[1]
        what = "+".join(map(str, counts[:3]))
        dtype = (self.dtypes[0] or self.dtypes[1] or ("",))[0]
        return f"{self.op} of {what} {dtype}".strip() if what else self.op

    def signature(self) -> Signature:
        """What must be equal on all members: operation, element counts, data types.

        Shapes of equal element count are equal on the wire. Sizes of all-to-all, gather and
        scatter differ between members by design.
        """
        if self.p2p:
            # A batch of one and a single transfer move the same data.
            return tuple(
                (part.op, sum(part.numels[0]), frozenset(part.dtypes[0])) for part in self.transfers
            )
        if self.parts:
            return (self.op, *(part.signature() for part in self.parts))
        if self.op in _SIZES_MAY_DIFFER:
            return (self.op, frozenset(self.dtypes[0] or self.dtypes[1]))
        return (self.op, sum(self.numels[0]), sum(self.numels[1]), *map(frozenset, self.dtypes))


def number(value: Any) -> int | None:
    """A signed 64-bit int from an int or (as JSON writes status) its text; otherwise None."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        try:
            value = int(value)
        except ValueError:
            return None
    return value if isinstance(value, int) and abs(value) < BEYOND else None


def parse(raw: Mapping[str, Any], place: int) -> Entry | None:
    """The entry, or None if it names no operation. ``place`` replaces a missing record_id.

    Fields changed over the versions: before 2.0 one ``seq_id`` served for both counters, and
    ``process_group`` was a bare name or absent; ``is_p2p`` came later still.
    """
    title = raw.get("profiling_name")
    if not isinstance(title, str):
        return None
    library, _, name = title.rpartition(":")
    match = _PEERS.match(name)
    op = match["op"] if match else name.split(" ", 1)[0]
    pg = number(raw.get("pg_id"))
    is_p2p = raw.get("is_p2p")
    p2p = is_p2p if isinstance(is_p2p, bool) else op in ("send", "recv")
    sequence, p2p_seq = number(raw.get("collective_seq_id")), number(raw.get("p2p_seq_id"))
    if sequence is None:
        both = number(raw.get("seq_id")) or 0
        sequence, p2p_seq = (0, both) if p2p else (both, 0)
    completed = bool(
        raw.get("state") == "completed" or number(raw.get("time_discovered_completed_ns"))
    )
    return Entry(
        record=_or(number(raw.get("record_id")), place),
        pg=_or(pg, -1),
        group=_group(raw.get("process_group"), pg),
        p2p=p2p,
        collective_seq=sequence,
        p2p_seq=_or(p2p_seq, 0),
        op_id=_or(number(raw.get("op_id")), sequence),
        started=raw.get("state") == "started"
        or bool(number(raw.get("time_discovered_started_ns"))),
        op="coalesced" if _BATCH_END.match(op) else _SAME_ON_THE_WIRE.get(op, op),
        library=library,
        me=number(match["me"]) if match else None,
        peer=number(match["peer"]) if match else None,
        numels=(_numels(raw.get("input_sizes")), _numels(raw.get("output_sizes"))),
        dtypes=(_texts(raw.get("input_dtypes")), _texts(raw.get("output_dtypes"))),
        done=completed or (raw.get("retired") is True and library == "gloo"),
        retired=raw.get("retired") is True,
        created_ns=number(raw.get("time_created_ns")),
    )


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


def _group(value: Any, pg: int | None) -> tuple[str, str]:
    if isinstance(value, list | tuple) and value:
        return str(value[0]), str(value[1]) if len(value) > 1 else ""
    if isinstance(value, str):
        return value, ""
    return str(pg), ""


def _numels(sizes: Any) -> tuple[int, ...]:
    if not isinstance(sizes, list | tuple):
        return ()
    result = []
    for size in sizes:
        count = 1
        for dim in size if isinstance(size, list | tuple) else (size,):
            count *= _or(number(dim), 1)
        result.append(max(-BEYOND, min(count, BEYOND)))
    return tuple(result)


def _texts(values: Any) -> tuple[str, ...]:
    return tuple(map(str, values)) if isinstance(values, list | tuple) else ()
