"""The RDMA ports of all nodes, as the page draws them."""

from __future__ import annotations

import msgspec


class PortRow(msgspec.Struct, frozen=True, kw_only=True):
    """The ports of one node, one entry each in all three fields."""

    host: str
    ports: tuple[str, ...]
    """Device and port of each, such as ``mlx5_0/1``."""
    active: tuple[bool, ...]
    ages: tuple[int, ...]
    """Seconds since each was last reported."""


class PortMap(msgspec.Struct, frozen=True, kw_only=True):
    """The ports of all nodes that have reported any within the last half hour, by node name."""

    rows: tuple[PortRow, ...] = ()
