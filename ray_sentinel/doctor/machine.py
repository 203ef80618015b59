"""Facts about a machine that several checks need."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path

import msgspec
import psutil

from ray_sentinel.clock import Clock, SystemClock
from ray_sentinel.doctor.check import Here
from ray_sentinel.doctor.plan import RunPlan
from ray_sentinel.kernel_files import parse_environ
from ray_sentinel.progress.proc.process_memory import memory_file
from ray_sentinel.progress.rank.own_process import raylet_above

_ARPHRD = {1: "ethernet", 32: "infiniband", 772: "loopback", 65534: "tunnel"}
"""The kinds of interfaces by their type number (``include/uapi/linux/if_arp.h``)."""


class Interface(msgspec.Struct, frozen=True, kw_only=True):
    """One network interface."""

    name: str
    up: bool
    kind: str
    """The kind of interface: "ethernet", "virtual ethernet", "infiniband", "loopback", and so
    on."""
    addresses: tuple[str, ...] = ()
    """The interface's addresses without zone, IPv4 first."""


def interfaces(sys: Path = Path("/sys")) -> tuple[Interface, ...]:
    """All interfaces of this machine, or container, in the kernel's order."""
    states = psutil.net_if_stats()
    return tuple(
        Interface(
            name=name,
            up=name in states and states[name].isup,
            kind=_kind(sys / "class/net" / name),
            addresses=tuple(
                entry.address.partition("%")[0]
                for family in (socket.AF_INET, socket.AF_INET6)
                for entry in entries
                if entry.family == family
            ),
        )
        for name, entries in sorted(psutil.net_if_addrs().items(), key=lambda one: _index(one[0]))
    )


def _index(name: str) -> int:
    try:
        return socket.if_nametoindex(name)
    except OSError:
        return 1 << 31  # it has just gone


def _kind(folder: Path) -> str:
    try:
        kind = _ARPHRD.get(int((folder / "type").read_text()), "other")
    except (OSError, ValueError):
        return "unknown"
    virtual = kind == "ethernet" and not (folder / "device").exists()
    return "virtual ethernet" if virtual else kind


def here(plan: RunPlan, host: str = "", address: str = "", clock: Clock | None = None) -> Here:
    """This node: ranks inherit the raylet's environment where there is one, else the caller's."""
    return Here(
        host=host or socket.gethostname(),
        address=address,
        environ={**_inherited(), **plan.environ},
        clock=clock or SystemClock(),
    )


def _inherited() -> Mapping[str, str]:
    raylet = raylet_above(os.getpid())
    if not raylet:
        return dict(os.environ)
    environ = memory_file(raylet, "environ")
    return dict(os.environ) if environ is None else parse_environ(environ, "replace")
