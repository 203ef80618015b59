"""Free ports of this machine, and whether a Prometheus answers on one."""

from __future__ import annotations

import errno
import socket

from ray_sentinel.errors import UnreachableError
from ray_sentinel.http.client import get

FIRST_PORT = 9190
PORTS = 200
"""Number of ports that are tried, from the first on."""


def free_port(first: int = FIRST_PORT) -> int:
    """The first port from ``first`` up on which nobody listens, on any address of this machine.

    Raises UnreachableError if there is none.
    """
    for port in range(first, min(first + PORTS, 65536)):
        if _is_free(port):
            return port
    raise UnreachableError(f"no free port between {first} and {first + PORTS}")


def answers(url: str, *, deadline: float = 2.0) -> bool:
    """Whether a Prometheus is ready there. A proxy in the environment is not used."""
    try:
        get(f"{url}/-/ready", seconds=deadline)
    except UnreachableError:
        return False
    return True


def _is_free(port: int) -> bool:
    # Binding the wildcard address fails where anybody holds the port on any address: a tunnel on
    # 127.0.0.1 must not be shadowed.
    return _can_bind(socket.AF_INET, "0.0.0.0", port) and _can_bind(socket.AF_INET6, "::", port)


def _can_bind(family: socket.AddressFamily, address: str, port: int) -> bool:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind((address, port))
    except OSError as error:
        # A machine without IPv6 says so in other ways: nobody listens there.
        return error.errno not in {errno.EADDRINUSE, errno.EACCES}
    return True
