"""The RDMA ports of all nodes, as the page draws them."""

from __future__ import annotations

import msgspec

PortError = tuple[str, int]
"""What went wrong, in words, and how often within ``PortMap.error_seconds``."""


class PortRow(msgspec.Struct, frozen=True, kw_only=True):
    """The ports of one node, one entry each in all fields."""

    host: str
    ports: tuple[str, ...]
    """Device and port of each, such as ``mlx5_0/1``."""
    active: tuple[bool, ...]
    ages: tuple[int, ...]
    """Seconds since each was last reported."""
    received: tuple[int | None, ...] = ()
    """Bytes per second, lately; None where its driver does not count them, or nothing is told."""
    sent: tuple[int | None, ...] = ()
    errors: tuple[tuple[PortError, ...], ...] = ()
    """Those that occurred."""


class PortMap(msgspec.Struct, frozen=True, kw_only=True):
    """The ports of all nodes that have reported any within the last half hour, by node name."""

    rows: tuple[PortRow, ...] = ()
    error_seconds: float = 0.0
    """Over which errors are counted."""
