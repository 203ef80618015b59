"""The address of an inference engine: the HTTP port of the process that its ranks descend from.

Only a port named on the command line, or the engine's usual one, is queried, and only if a process
above the rank listens on it: a stray connection may break another protocol's rendezvous.
"""

from __future__ import annotations

from collections.abc import Sequence

import psutil

from ray_sentinel import regex as re
from ray_sentinel.progress.proc.process_memory import memory_file

USUAL = {"sglang": 30000, "vllm": 8000}
"""Default ports of ``sglang.launch_server`` and ``vllm serve``."""
MOST_ABOVE = 6
"""How many processes above a rank are examined."""
_PORT = re.compile(r"(?:^|\0)--port[=\0](\d{1,5})(?:\0|$)")


def metrics_url(pid: int, engine: str) -> str:
    """The URL of ``/metrics`` for a rank's process; "" if nothing above it listens there.

    >>> metrics_url(1, "sglang")
    ''
    """
    try:
        process = psutil.Process(pid)
        for above in [process, *process.parents()[:MOST_ABOVE]]:
            if url := _serves(above, engine):
                return url
    except psutil.Error:
        pass  # it has ended, or belongs to somebody else: then it is not asked
    return ""


def _serves(process: psutil.Process, engine: str) -> str:
    # Those above a rank may hang with their memory locked: they are not waited for.
    line = memory_file(process.pid, "cmdline") or b""
    port = port_of(line.decode("utf-8", "replace").split("\0")) or USUAL.get(engine, 0)
    for connection in process.net_connections(kind="tcp"):
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port:
            return f"http://{_reachable(connection.laddr.ip)}:{port}/metrics"
    return ""


def port_of(arguments: Sequence[str]) -> int:
    """``--port`` on a command line; 0 if it has none.

    >>> port_of(["vllm", "serve", "m", "--port", "9000"]), port_of(["--port=30001"]), port_of(["x"])
    (9000, 30001, 0)
    """
    match = _PORT.search("\0".join(arguments))
    return int(match[1]) if match else 0


def _reachable(address: str) -> str:
    if address in ("0.0.0.0", "::"):
        return "127.0.0.1"
    return f"[{address}]" if ":" in address else address
