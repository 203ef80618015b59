"""Whether a node's raylet still answers: tells a lost node from a lost agent."""

from __future__ import annotations

import errno
import socket

PROBE_SECONDS = 1.0
"""For a raylet to answer: one that lives does in milliseconds."""

_REFUSED = frozenset({errno.ECONNREFUSED, errno.ECONNRESET})


def raylet_answers(
    address: str, port: int, seconds: float = PROBE_SECONDS
) -> tuple[bool | None, str]:
    """(True, ...) where a connection was taken, (False, why) where there is nobody, else None.

    None where nothing can be said: no port is known, or this machine itself has no way out.
    """
    if not address or not port:
        return None, "its port is not known"
    try:
        socket.create_connection((address, port), timeout=seconds).close()
    except TimeoutError:
        return False, f"{address}:{port} did not accept within {seconds:.0f} s"
    except OSError as error:
        text = f"{address}:{port}: {error.strerror or error}"
        if error.errno in _REFUSED or error.errno in (errno.EHOSTUNREACH, errno.EHOSTDOWN):
            return False, text
        return None, text
    return True, f"{address}:{port} accepts connections"
