"""An event simulation: hosts issue calls, devices run them, until nothing can move any more."""

from __future__ import annotations

import random
from bisect import insort
from dataclasses import dataclass, field
from operator import attrgetter

from tests.support.recorder_sim.program import Call, Job

ROOTED = ("broadcast", "reduce", "gather", "scatter")


@dataclass
class Op:
    """One call as it was issued."""

    rank: int
    call: Call
    record: int
    collective_seq: int
    p2p_seq: int
    op_id: int
    enqueued: bool = False
    started: bool = False
    done: bool = False
    noticed: bool = False
    """The watchdog has seen it complete."""
    place: int = 0
    """Of those that the rank has enqueued."""
    blockers: int = 0
    """How many of them the device must finish first."""
    unblocks: list[Op] = field(default_factory=list)
    """Those that cannot start before this one is done."""
    open_parts: dict[int, tuple[str, str, int, int, int]] = field(default_factory=dict)


@dataclass
class Fault:
    """Something wrong with one rank, at a place of its program."""

    rank: int
    kind: str
    at: int
    """Index of the call."""
    hit: bool = False


class Machine:
    """Runs a job with faults to a standstill, or for a number of events."""

    def __init__(self, job: Job, faults: list[Fault], seed: int, *, eager: bool = False) -> None:
        self.job = job
        self.faults = {fault.rank: fault for fault in faults}
        self.random = random.Random(seed)
        self.eager = eager
        self.position = [0] * job.world
        self.ops: list[list[Op]] = [[] for _ in range(job.world)]
        self.launching: list[Op | None] = [None] * job.world
        self.blocked: list[Op | None] = [None] * job.world
        self.gates: list[list[Op]] = [[] for _ in range(job.world)]
        self._last: dict[tuple[int, str], Op] = {}
        self._seqs: dict[tuple[int, str], list[int]] = {}
        self._slots: dict[tuple[str, int], dict[int, Op]] = {}
        self._pairs: dict[tuple[str, int, int, int], dict[str, tuple[Op, int]]] = {}
        self._counts: dict[tuple[str, int, int, str], int] = {}
        self.stopped_devices: dict[int, Op] = {}
        self.pending: list[list[Op]] = [[] for _ in range(job.world)]
        self._ready: list[list[Op]] = [[] for _ in range(job.world)]
        """Of those, what the device may start or has started, by place."""
        self._enqueued = [0] * job.world

    def run(self, events: int | None = None) -> None:
        """To a standstill, or for so many events."""
        while events is None or events > 0:
            movable = [rank for rank in range(self.job.world) if self._can_issue(rank)]
            if not movable:
                if not self._devices():
                    return
                continue
            rank = self.random.choice(movable)
            for _ in range(self.random.randint(1, 3)):
                if self._can_issue(rank):
                    self._issue(rank)
            if self.random.random() < 0.5:
                self._devices()
            if events is not None:
                events -= 1
        self._devices()

    @property
    def culprits(self) -> set[int]:
        return {fault.rank for fault in self.faults.values() if fault.hit}

    @property
    def standing(self) -> bool:
        """Whether some rank has not come to the end of its program."""
        return any(
            self.position[r] < len(self.job.programs[r]) or self.pending[r]
            for r in range(self.job.world)
        )

    def _can_issue(self, rank: int) -> bool:
        if self.launching[rank] or self.position[rank] >= len(self.job.programs[rank]):
            return False
        blocked = self.blocked[rank]
        if blocked is not None and not blocked.noticed:
            return False
        fault = self.faults.get(rank)
        if fault and fault.kind == "stop" and self.position[rank] >= fault.at:
            fault.hit = True
            return False
        return True

    def _issue(self, rank: int) -> None:
        call = self.job.programs[rank][self.position[rank]]
        fault = self.faults.get(rank)
        here = fault is not None and fault.at == self.position[rank]
        self.position[rank] += 1
        op = self._record(rank, call)
        if fault and here:
            if fault.kind == "inside":
                fault.hit = True
                self.launching[rank] = op
                return
            if fault.kind in ("frozen", "unnoticed"):
                self.stopped_devices[rank] = op
            elif fault.kind == "call":
                fault.hit = True
        self._enqueue(op)
        self.blocked[rank] = op if call.sync else None

    def _record(self, rank: int, call: Call) -> Op:
        seqs = self._seqs.setdefault((rank, call.group), [0, 0, 0])
        p2p = call.op in ("send", "recv", "batch")
        seqs[1 if p2p else 0] += 1
        seqs[2] += max(1, len(call.parts))
        record = self.ops[rank][-1].record + 1 if self.ops[rank] else 0
        op = Op(rank, call, record + len(call.parts), seqs[0], seqs[1], seqs[2])
        self.ops[rank].append(op)
        return op

    def _enqueue(self, op: Op) -> None:
        rank, call = op.rank, op.call
        op.enqueued = True
        stream = call.group if call.peer is None else f"{call.group}:{call.peer}"
        previous = self._last.get((rank, stream))
        for other in [*self.gates[rank], previous]:
            if other is not None and not other.done:
                op.blockers += 1
                other.unblocks.append(op)
        op.place = self._enqueued[rank]
        self._enqueued[rank] += 1
        if not op.blockers:
            self._ready[rank].append(op)
        self._last[rank, stream] = op
        if not call.detached:
            self.gates[rank] = [op]
        self.pending[rank].append(op)
        if call.op in ("send", "recv", "batch"):
            for index, part in enumerate(call.parts or (call,)):
                self._post(op, index, part)
        else:
            self._slots.setdefault((call.group, op.collective_seq), {})[rank] = op

    def _post(self, op: Op, index: int, part: Call) -> None:
        assert part.peer is not None
        ends = (op.rank, part.peer) if part.op == "send" else (part.peer, op.rank)
        side = (part.group, *ends, part.op)
        count = self._counts.get(side, 0)
        self._counts[side] = count + 1
        key = (part.group, *ends, count)
        self._pairs.setdefault(key, {})[part.op] = (op, index)
        op.open_parts[index] = (part.op, *key)

    def _devices(self) -> bool:
        """Start and complete what can be; whether anything moved."""
        moved, progress = False, True
        while progress:
            progress = False
            for rank in self.random.sample(range(self.job.world), self.job.world):
                progress |= self._device(rank)
            moved |= progress
        return moved

    def _device(self, rank: int) -> bool:
        """One step of each that can do one. What becomes ready meanwhile has a later place."""
        ready, at, moved = self._ready[rank], 0, False
        while at < len(ready):
            op = ready[at]
            moved |= self._step(op)
            if op.done:
                del ready[at]
            else:
                at += 1
        return moved

    def _step(self, op: Op) -> bool:
        if not op.started:
            if self._device_stopped(op):
                return False
            op.started = True
            return True
        if not self._complete(op):
            return False
        op.done = True
        for other in op.unblocks:
            other.blockers -= 1
            if not other.blockers:
                insort(self._ready[op.rank], other, key=attrgetter("place"))
        self.pending[op.rank].remove(op)
        stuck = self.stopped_devices.get(op.rank)
        op.noticed = stuck is None or op.record < stuck.record
        if not op.noticed:
            self.faults[op.rank].hit = True
            self.pending[op.rank].append(op)
        return True

    def _device_stopped(self, op: Op) -> bool:
        stuck = self.stopped_devices.get(op.rank)
        if stuck is None:
            return False
        fault = self.faults[op.rank]
        stops = op.record > stuck.record or (fault.kind == "frozen" and op is stuck)
        if stops and fault.kind == "frozen":
            fault.hit = True
        return stops

    def _complete(self, op: Op) -> bool:
        if op.open_parts:
            for index, (side, *key) in [*op.open_parts.items()]:
                ends = self._pairs[tuple(key)]  # type: ignore[index]
                other = ends.get("recv" if side == "send" else "send")
                eager = self.eager and side == "send"
                if eager or (other and other[0].started and self._sizes_match(op, index, other)):
                    del op.open_parts[index]
            return not op.open_parts
        if op.call.op in ("send", "recv", "batch"):
            return True
        members = self.job.groups[op.call.group][1]
        slot = self._slots[op.call.group, op.collective_seq]
        if op.call.op == "broadcast" and self.eager and op.rank == members[0]:
            return True
        if len(slot) < len(members) or not all(o.started for o in slot.values()):
            return False
        return len({_wire(o.call) for o in slot.values()}) == 1

    def _sizes_match(self, op: Op, index: int, other: tuple[Op, int]) -> bool:
        mine = (op.call.parts or (op.call,))[index]
        theirs = (other[0].call.parts or (other[0].call,))[other[1]]
        return (mine.size, mine.dtype) == (theirs.size, theirs.dtype)


def _wire(call: Call) -> tuple[str, int, str]:
    return call.op, 0 if call.op == "all_to_all" else call.size, call.dtype
