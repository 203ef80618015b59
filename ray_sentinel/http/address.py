"""Where to listen: on the node's own address, on the wanted port or the next that is free."""

from __future__ import annotations

import errno
import ipaddress
import socket

from ray_sentinel.errors import ConfigError, UnreachableError

TRIES = 100
"""Number of ports that are tried, one after the other."""


def check_private(address: str, *, public: bool) -> str:
    """The IP of ``address``, which may be a name.

    Raises ConfigError for an address that anybody may reach (a public one, or all addresses at
    once) unless ``public``, and UnreachableError for an unknown name.
    """
    try:
        infos = socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise UnreachableError(f"{address}: no such address on this node: {error}") from None
    found = str(infos[0][4][0])
    ip = ipaddress.ip_address(found.split("%")[0])
    if not public and (ip.is_global or ip.is_unspecified):
        what = "is a public address" if ip.is_global else "means every address of this node"
        raise ConfigError(
            f"{address} {what}, and what we serve is not for everybody: give Ray a private address "
            "(ray start --node-ip-address), or set [agent] public = true"
        )
    return found


def listen(ip: str, port: int) -> socket.socket:
    """A listening socket on the first free port from ``port`` up; 0 is any port.

    Raises UnreachableError if there is none.
    """
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    ports = range(port, min(port + TRIES, 65536)) if port else range(1)
    for candidate in ports:
        found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            # Not to share the port, but to have it again while old connections linger.
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind((ip, candidate))
            found.listen(128)
        except OSError as error:
            found.close()
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise UnreachableError(f"cannot listen on {ip}: {error.strerror}") from None
        else:
            return found
    raise UnreachableError(f"no port from {port} to {port + TRIES - 1} is free on {ip}")
