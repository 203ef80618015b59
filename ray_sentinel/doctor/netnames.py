"""The interfaces that ``NCCL_SOCKET_IFNAME`` and similar variables select."""

from __future__ import annotations

from collections.abc import Sequence

from ray_sentinel.doctor.machine import Interface

_UNASKED = ("ib", "^docker,lo,virbr", "docker", "lo", "virbr")
"""NCCL's defaults for the interfaces to use, tried in this order (``ncclFindInterfaces``)."""


def chosen(wanted: str, have: Sequence[Interface]) -> tuple[Interface, ...]:
    """The interfaces that NCCL would use, in its order; ``have`` is in the kernel's order.

    A comma-separated list of prefixes; ``=`` in front makes them whole names, ``^`` excludes them
    and ``^=`` excludes whole names (NCCL user guide, NCCL_SOCKET_IFNAME).
    """
    exclude, exact, names = parse_interfaces(wanted)
    if not names:
        able = [item for item in have if item.addresses]
        found = (chosen(one, able) for one in _UNASKED)
        return next(filter(None, found), ())
    if exclude:
        return tuple(
            item
            for item in have
            if item.up and not any(_matches(item.name, name, exact) for name in names)
        )
    return tuple(
        item for name in names for item in have if _matches(item.name, name, exact) and item.up
    )


def parse_interfaces(wanted: str) -> tuple[bool, bool, tuple[str, ...]]:
    """(exclude, whole names, names) of a setting.

    >>> parse_interfaces("^=docker0,lo")
    (True, True, ('docker0', 'lo'))
    """
    exclude = wanted.startswith("^")
    rest = wanted.removeprefix("^")
    exact = rest.startswith("=")
    names = tuple(name.partition(":")[0].strip() for name in rest.removeprefix("=").split(","))
    return exclude, exact, tuple(filter(None, names))


def _matches(name: str, wanted: str, exact: bool) -> bool:
    return name == wanted if exact else name.startswith(wanted)
