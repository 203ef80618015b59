"""What Ray's control store reports about the whole cluster."""

from __future__ import annotations

import msgspec


class RayNodeState(msgspec.Struct, frozen=True, kw_only=True):
    """A node of the cluster and its resources, by name; Ray counts memory in bytes."""

    address: str
    status: str
    """Ray's word for its state: ``RUNNING``, ``IDLE``, ``DRAINING``, ``DEAD``."""
    total: dict[str, float] = {}
    available: dict[str, float] = {}


class DeadActor(msgspec.Struct, frozen=True, kw_only=True):
    """An actor that has ended. ``cause`` is why, in Ray's words, or empty."""

    id: str
    name: str = ""
    kind: str = ""
    """The name of its class."""
    cause: str = ""
    ended: float = 0.0
    """Unix time of its end in seconds; 0 where Ray does not say."""
    address: str = ""
    pid: int = 0


class RayCluster(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster when the control store was queried."""

    time: float
    """When it was queried, in ``CLOCK_MONOTONIC`` seconds of the machine that asked, where it is
    also used."""
    problem: str = ""
    """Why the store could not be asked; the rest is empty then."""
    nodes: tuple[RayNodeState, ...] = ()
    asked: dict[str, float] = {}
    """Amounts by resource for which tasks, actors and placement groups wait."""
    actors: dict[str, int] = {}
    """How many actors there are, by state."""
    dead: dict[str, int] = {}
    """How many dead actors the store remembers, by cause."""
    last_dead: tuple[DeadActor, ...] = ()
    """The actors that died last, in the order of their ends."""
