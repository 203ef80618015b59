"""Which cluster this process belongs to, as the command lines of raylets show.

A raylet is started with ``--gcs-address=HOST:PORT``, and with ``--head`` on the head node.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from ray_sentinel_plugins._files import Files, counter

MAX_ANCESTORS = 64
"""Most ancestors that are followed upwards: pids that change meanwhile could make a circle."""
MAX_COMMAND = 1 << 16
"""Most bytes that are read of a command line: a raylet's has some kilobytes."""


class Raylet(msgspec.Struct, frozen=True):
    """A raylet: the address of its control store, whether its node is the head, and where it writes
    its output (``raylet.out``), if that is known."""

    address: str
    is_head: bool
    output: str = ""


def own_raylet(files: Files, proc: Path, pid: int) -> Raylet | None:
    """The raylet above a process, or None if there is none or /proc hides it."""
    for _ in range(MAX_ANCESTORS):
        if pid <= 1:
            return None
        if found := _raylet(files, proc, pid):
            return found
        pid = _parent(files, proc, pid)
    return None


def any_raylet(files: Files, proc: Path) -> Raylet | None:
    """A raylet of this machine, a head's before others."""
    found = None
    for name in files.names(proc):
        if name.isascii() and name.isdigit() and (raylet := _raylet(files, proc, int(name))):
            if raylet.is_head:
                return raylet
            found = found or raylet
    return found


def _raylet(files: Files, proc: Path, pid: int) -> Raylet | None:
    command = files.raw(proc / str(pid) / "cmdline", limit=MAX_COMMAND)
    return parse_raylet(command) if command else None


def parse_raylet(command: bytes) -> Raylet | None:
    """The facts in a command line, if it is a raylet's.

    >>> parse_raylet(b"/ray/raylet/raylet\\0--gcs-address=10.0.0.1:6379\\0--head\\0")
    Raylet(address='10.0.0.1:6379', is_head=True, output='')
    """
    words = [word.decode("utf-8", "replace") for word in command.split(b"\0")]
    if words[0].rpartition("/")[2] != "raylet":
        return None
    options = dict(word.lstrip("-").partition("=")[::2] for word in words[1:])
    address = options.get("gcs-address") or options.get("gcs_address")
    if not address:
        return None
    return Raylet(address, "head" in options, options.get("stdout_filepath", ""))


def _parent(files: Files, proc: Path, pid: int) -> int:
    stat = files.raw(proc / str(pid) / "stat", limit=4096) or b""
    fields = stat[stat.rfind(b") ") + 2 :].split()
    return (counter(fields[1].decode("ascii", "replace")) or 0) if len(fields) > 1 else 0
