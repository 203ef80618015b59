"""Which ports a launcher will listen on, and whether somebody listens there still."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import psutil

from ray_sentinel.text import port_number

_OPTIONS = ("--master-port", "--master_port", "--rdzv-endpoint", "--rdzv_endpoint")
_VARIABLES = ("MASTER_PORT", "PET_MASTER_PORT")


def ports_of(argv: Sequence[str], environ: Mapping[str, str]) -> tuple[int, ...]:
    """Of torchrun's options, else of the environment; a rendezvous elsewhere is none of ours.

    >>> ports_of(["torchrun", "--master-port=29501", "t.py"], {"MASTER_PORT": "1"})
    (29501,)
    """
    found = []
    words = list(argv)
    for at, word in enumerate(words):
        name, given, value = word.partition("=")
        if name not in _OPTIONS:
            continue
        value = value if given else "".join(words[at + 1 : at + 2])
        host, _, port = value.rpartition(":")
        if not host or host in ("localhost", "127.0.0.1", "0.0.0.0", "[::1]"):
            found.append(port)
    found = found or [environ[name] for name in _VARIABLES if environ.get(name)]
    return tuple(number for one in found if (number := port_number(one)))


def listened_on(ports: Sequence[int]) -> str:
    """One sentence about the first port that is held; empty where all are free."""
    for entry in psutil.net_connections("tcp") if ports else ():
        if entry.status == psutil.CONN_LISTEN and entry.laddr and entry.laddr[1] in ports:
            who = f"pid {entry.pid}" if entry.pid else "a process that is not visible here"
            return f"port {entry.laddr[1]} is still held by {who}"
    return ""
