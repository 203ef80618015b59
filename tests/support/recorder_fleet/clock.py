"""Runs a job by the clock: when every call is issued, started and finished, or that it never is."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from tests.support.recorder_fleet.shape import Shape, Todo

NEVER = float("inf")
TRANSFERS = ("send", "recv", "batch")


@dataclass
class Done:
    """One call that was made."""

    todo: Todo
    collective: int
    p2p: int
    op_id: int
    record: int
    issued: float
    launched: bool = True
    """False where the host is inside the call."""
    start: float = NEVER
    end: float = NEVER
    seen: float = NEVER
    """When the watchdog saw its end."""
    ready: list[Done] = field(default_factory=list)
    """What must have ended on the device before it starts."""


@dataclass(frozen=True)
class Fault:
    """What is wrong with one rank from its call number ``at`` on."""

    rank: int
    kind: str
    """host, launch, device, unseen, slow."""
    at: int


class Clockwork:
    """A job that has run as far as it can."""

    def __init__(self, shape: Shape, faults: list[Fault], seed: int, depth: int = 1 << 30) -> None:
        self.shape, self.depth = shape, depth
        self.rng = random.Random(seed)
        self.faults: dict[int, Fault] = {fault.rank: fault for fault in faults}
        self.made: list[list[Done]] = [[] for _ in range(shape.world)]
        self.hit: set[int] = set()
        self._calls: dict[tuple[int, str], tuple[int, int, int]] = {}
        self._latest: dict[tuple[int, str], Done] = {}
        self._meet: dict[tuple[str, int], dict[int, Done]] = {}
        self._pairs: dict[tuple[str, int, int, int], dict[str, Done]] = {}
        self._numbers: dict[tuple[str, int, int, str], int] = {}
        self._halves: dict[int, list[tuple[str, tuple[str, int, int, int]]]] = {}
        self._waiting: list[tuple[int, Done]] = []
        self._run()

    def _run(self) -> None:
        moved = True
        while moved:
            moved = False
            for rank in range(self.shape.world):
                while self._issue(rank):
                    moved = True
            still = []
            for rank, done in self._waiting:
                if self._advance(rank, done):
                    moved = True
                if done.end == NEVER:
                    still.append((rank, done))
            self._waiting = still

    def _issue(self, rank: int) -> bool:
        made, at = self.made[rank], len(self.made[rank])
        now = self._free_at(rank)
        if at >= len(self.shape.todo[rank]) or now is None:
            return False
        fault = self.faults.get(rank)
        kind = fault.kind if fault and at >= fault.at else ""
        if kind == "host":
            self.hit.add(rank)
            return False
        now += 30.0 if kind == "slow" else 0.0
        made.append(self._record(rank, self.shape.todo[rank][at], now))
        if fault and at == fault.at and kind in ("call", "launch"):
            self.hit.add(rank)
            made[-1].launched = kind != "launch"
        if made[-1].launched:
            self._launch(rank, made[-1])
        return True

    def _free_at(self, rank: int) -> float | None:
        """When the host can make its next call; None while something holds it."""
        made = self.made[rank]
        if not made:
            return self.rng.uniform(0, 0.3)
        now = made[-1].issued + self.rng.uniform(1e-5, 1e-3)
        held = [made[-1].seen] if made[-1].todo.blocks else []
        if len(made) >= self.depth:
            held.append(made[-self.depth].end)
        if not made[-1].launched or NEVER in held:
            return None
        return max([now, *held])

    def _record(self, rank: int, todo: Todo, now: float) -> Done:
        key = (rank, todo.group)
        collective, p2p, op_id = self._calls.get(key, (0, 0, 0))
        if todo.op in TRANSFERS:
            p2p += 1
        else:
            collective += 1
        op_id += max(1, len(todo.parts))
        self._calls[key] = collective, p2p, op_id
        record = self.made[rank][-1].record + 1 if self.made[rank] else 0
        return Done(todo, collective, p2p, op_id, record + len(todo.parts), now)

    def _launch(self, rank: int, done: Done) -> None:
        todo = done.todo
        streams = (todo.stream, *todo.after)
        done.ready = [b for s in streams if (b := self._latest.get((rank, s))) is not None]
        self._latest[rank, todo.stream] = done
        receives = any(part.op == "recv" for part in todo.parts or (todo,))
        if (receives and todo.stream.startswith("p2p")) or todo.stream.endswith("/batch"):
            # What is computed next needs what is received.
            self._latest[rank, "main"] = done
        if todo.op in TRANSFERS:
            for part in todo.parts or (todo,):
                self._post(rank, done, part)
        else:
            self._meet.setdefault((todo.group, done.collective), {})[rank] = done
        self._waiting.append((rank, done))

    def _post(self, rank: int, done: Done, part: Todo) -> None:
        ends = (rank, part.peer) if part.op == "send" else (part.peer, rank)
        counter = (part.group, *ends, part.op)
        number = self._numbers[counter] = self._numbers.get(counter, 0) + 1
        key = (part.group, *ends, number)
        self._pairs.setdefault(key, {})[part.op] = done
        self._halves.setdefault(id(done), []).append((part.op, key))

    def _advance(self, rank: int, done: Done) -> bool:
        if done.start == NEVER:
            if any(before.end == NEVER for before in done.ready) or self._dead(rank, done):
                return False
            done.start = max([done.issued, *(before.end for before in done.ready)])
            return True
        if done.end != NEVER:
            return False
        others = self._partners(rank, done)
        if others is None or any(other.start == NEVER for other in others):
            return False
        done.end = max([done.start, *(other.start for other in others)]) + 1e-3
        fault = self.faults.get(rank)
        unseen = (
            fault
            and fault.kind == "unseen"
            and len(self.made[rank])
            and (self.made[rank].index(done) >= fault.at)
        )
        if unseen:
            self.hit.add(rank)
            return True
        done.seen = done.end + self.rng.uniform(0.0, 0.1)
        return True

    def _dead(self, rank: int, done: Done) -> bool:
        fault = self.faults.get(rank)
        if fault is None or fault.kind not in ("device", "unseen"):
            return False
        place = self.made[rank].index(done)
        dead = (
            place >= fault.at
            if fault.kind == "device"
            else any(before.end != NEVER and before.seen == NEVER for before in done.ready)
        )
        if dead and fault.kind == "device":
            self.hit.add(rank)
        return dead

    def _partners(self, rank: int, done: Done) -> list[Done] | None:
        todo = done.todo
        if todo.op in TRANSFERS:
            others = []
            for op, key in self._halves[id(done)]:
                other = self._pairs[key].get("recv" if op == "send" else "send")
                if other is None:
                    return None
                mine = self._part(todo, op, key)
                if mine != self._part(other.todo, "recv" if op == "send" else "send", key):
                    return None
                others.append(other)
            return others
        met = self._meet[todo.group, done.collective]
        if len(met) < len(self.shape.groups[todo.group][1]):
            return None
        if len({_wire(other.todo) for other in met.values()}) > 1:
            return None
        return list(met.values())

    @staticmethod
    def _part(todo: Todo, op: str, key: tuple[str, int, int, int]) -> tuple[int, str]:
        peer = key[2] if op == "send" else key[1]
        return next(
            (p.numel, p.dtype) for p in todo.parts or (todo,) if p.op == op and p.peer == peer
        )

    @property
    def hangs(self) -> bool:
        """Whether some rank has not come to its end."""
        return any(
            len(made) < len(self.shape.todo[rank]) or any(done.seen == NEVER for done in made)
            for rank, made in enumerate(self.made)
        )

    @property
    def last(self) -> float:
        """When the last thing happened."""
        return max(
            (t for made in self.made for d in made for t in (d.issued, d.seen) if t != NEVER),
            default=0.0,
        )


def _wire(todo: Todo) -> tuple[str, int, str]:
    return todo.op, 0 if todo.op == "all_to_all" else todo.numel, todo.dtype


def edited(todo: Todo, what: str) -> Todo:
    """The same call, made wrongly."""
    if what == "op":
        return replace(todo, op="all_reduce" if todo.op != "all_reduce" else "reduce")
    if what == "size":
        return replace(todo, numel=todo.numel * 2 + 5)
    return replace(todo, dtype="Half" if todo.dtype != "Half" else "Double")
