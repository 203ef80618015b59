"""Processes, their communicators and their counts, as RAS collects them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

FUNCTIONS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")


@dataclass
class Peer:
    """One process with one GPU, by its world rank."""

    world: int
    host: str
    pid: int
    gpu: int
    dead: bool = False
    mute: bool = False


@dataclass
class Seat:
    """One rank's part in a communicator."""

    peer: Peer
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FUNCTIONS, 0))
    init: int = 0
    error: int = 0
    finalize: bool = False
    abort: bool = False
    member: bool = True
    """False: its process answers, and knows nothing of the communicator."""

    @property
    def status(self) -> str:
        if not self.member:
            return "NOCOMM"
        if self.abort:
            return "ABORT"
        if self.finalize:
            return "FINALIZE"
        return "RUNNING" if self.init == 0 else "INIT"


@dataclass
class Comm:
    """A communicator; ``seats`` in the order of its own ranks."""

    hash: int
    host_hash: int
    pid_hash: int
    seats: list[Seat]

    def launch(self, function: str, times: int = 1, but: tuple[int, ...] = ()) -> None:
        """All ranks launch a collective, except the world ranks in ``but``."""
        for seat in self.seats:
            if seat.peer.world not in but:
                seat.counts[function] += times

    def seat(self, world: int) -> Seat:
        return next(seat for seat in self.seats if seat.peer.world == world)

    def present(self) -> list[tuple[int, Seat]]:
        """(own rank, seat) of those whose data came."""
        return [(i, s) for i, s in enumerate(self.seats) if s.member and not _gone(s.peer)]

    def missing(self) -> list[tuple[int, Seat]]:
        return [(i, s) for i, s in enumerate(self.seats) if not s.member or _gone(s.peer)]


def _gone(peer: Peer) -> bool:
    return peer.dead or peer.mute


class Job:
    """A job of ``nodes`` × ``per_node`` ranks with the communicators of a parallel layout."""

    def __init__(self, seed: int, nodes: int, per_node: int, layout: str = "dp") -> None:
        self.random = random.Random(seed)
        octet = self.random.randrange(2, 100)
        self.peers = [
            Peer(
                world=node * per_node + local,
                host=f"10.0.{octet}.{10 + node}",
                pid=self.random.randrange(1000, 4_000_000),
                gpu=local,
            )
            for node in range(nodes)
            for local in range(per_node)
        ]
        self.per_node = per_node
        self.time = self.random.randrange(3600)
        self.comms = [self._comm(range(len(self.peers)))]
        if layout == "tp":  # one tensor-parallel group a node, data-parallel ones across
            for node in range(nodes):
                self.comms.append(self._comm(range(node * per_node, (node + 1) * per_node)))
            for local in range(per_node):
                self.comms.append(self._comm(range(local, len(self.peers), per_node)))

    def _comm(self, worlds: range) -> Comm:
        bits = self.random.getrandbits
        return Comm(bits(64), bits(64), bits(64), [Seat(self.peers[world]) for world in worlds])

    @property
    def world(self) -> Comm:
        return self.comms[0]

    def containing(self, world: int) -> list[Comm]:
        return [c for c in self.comms if any(s.peer.world == world for s in c.seats)]

    def run(self, steps: int) -> None:
        """Steps that go well: every communicator has its collectives launched."""
        for comm in self.comms:
            comm.launch("AllReduce", 3 * steps)
            comm.launch("AllGather", 2 * steps)

    def wait(self, seconds: int) -> None:
        self.time += seconds

    @property
    def timestamp(self) -> str:
        hours, rest = divmod(self.time, 3600)
        return f"2026-03-0{1 + hours // 24} {hours % 24:02}:{rest // 60:02}:{rest % 60:02}"

    @property
    def ranks(self) -> dict[tuple[str, int], int]:
        return {(peer.host, peer.pid): peer.world for peer in self.peers}
