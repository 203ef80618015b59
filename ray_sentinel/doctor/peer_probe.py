"""Nodes probe each other: can they connect on the chosen interface, and do their clocks agree?

Each node listens for a moment, and sends the time, as one double, to whoever connects. How far the
clocks are apart follows from the moments before and after, as in NTP (RFC 5905, section 8), give or
take half of the round trip.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Sequence

from ray_sentinel.clock import Clock
from ray_sentinel.doctor.check import ProbeResult

VISIT_SECONDS = 3.0
"""Seconds to wait for one connection; a node that drops packets takes all of them."""
TRIES = 3
"""Probes of each node; the one with the shortest round trip counts."""
NEIGHBOURS = 8
"""Peers that a node probes besides the first node: all pairs of 1,000 nodes would be a million."""

_TIME = struct.Struct("!d")


class PeerProbe:
    """Listens on one address until closed."""

    def __init__(self, address: str, clock: Clock) -> None:
        """Start to listen. Raises OSError if nobody can listen on this address."""
        self._clock = clock
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._socket = socket.create_server((address, 0), family=family, backlog=128)
        self.address = address
        self.port: int = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, name="ray-sentinel-meeting", daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                visitor, _ = self._socket.accept()
            except OSError:
                return  # closed
            with visitor:
                try:
                    visitor.sendall(_TIME.pack(self._clock.now()))
                except OSError:
                    continue  # it has gone again

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()


def visit(visitor: str, host: str, address: str, port: int, clock: Clock) -> ProbeResult:
    """Probe an address and return the result."""
    place = f"{address}:{port}"
    best: tuple[float, float] | None = None
    for _ in range(TRIES):
        try:
            with socket.create_connection((address, port), timeout=VISIT_SECONDS) as connection:
                begun, moment = clock.monotonic(), clock.now()
                data = connection.recv(_TIME.size, socket.MSG_WAITALL)
                took = clock.monotonic() - begun
        except TimeoutError:
            problem = f"no answer within {VISIT_SECONDS:.0f} s: packets are dropped on the way"
            return ProbeResult(visitor=visitor, host=host, place=place, problem=problem)
        except OSError as error:
            problem = error.strerror or str(error)
            return ProbeResult(visitor=visitor, host=host, place=place, problem=problem)
        if len(data) == _TIME.size and (best is None or took < best[0]):
            best = took, _TIME.unpack(data)[0] - (moment + took / 2)
    if best is None:
        problem = "it accepts, and sends nothing"
        return ProbeResult(visitor=visitor, host=host, place=place, problem=problem)
    return ProbeResult(visitor=visitor, host=host, place=place, seconds=best[0], ahead=best[1])


def whom_to_visit(hosts: Sequence[str], visitor: str) -> tuple[str, ...]:
    """The first node, and the next ones around the ring: every node is probed by several."""
    others = [host for host in hosts if host != visitor]
    if len(others) <= NEIGHBOURS + 1:
        return tuple(others)
    at = list(hosts).index(visitor)
    ring = [hosts[(at + step) % len(hosts)] for step in range(1, NEIGHBOURS + 1)]
    first = () if visitor == hosts[0] else (hosts[0],)
    return tuple(dict.fromkeys((*first, *ring)))
