"""A Prometheus of our own over somebody else's data folder, without touching it.

It runs in a scratch folder whose blocks are folders of links to the real files, so that nothing it
does (its lock, its WAL, retention, compaction) reaches the data. The WAL is copied: opening it
writes. It listens on loopback only, scrapes nothing, and dies with us.
"""

from __future__ import annotations

import errno
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ray_sentinel.errors import InputError, UnreachableError
from ray_sentinel.process import end, spawn
from ray_sentinel.store.binary import find_program
from ray_sentinel.store.tsdb import ULID, Database, inspect

FIRST_PORT = 9190
PORTS = 200
TRIES = 8
"""Starts, each without the corrupt blocks that the one before named."""
START_DEADLINE = 60.0
"""Seconds for Prometheus to answer; replaying a large WAL takes most of them."""


@contextmanager
def read_only_prometheus(
    folder: Path, *, binary: str = "", port: int = 0, deadline: float = START_DEADLINE
) -> Iterator[tuple[str, Database, list[str]]]:
    """The URL of a Prometheus over the data in ``folder``, what is there, and what to know.

    ``port`` 0 is the first free one from 9190 up. Raises MissingPartError without the program,
    InputError where there is nothing to open, UnreachableError if it does not start.
    """
    program = find_program("prometheus", binary)
    database = inspect(folder)
    if not database.blocks and not database.wal:
        raise InputError(
            f"{folder} has nothing that can be opened"
            + (f": {'; '.join(database.broken)}" if database.broken else "")
        )
    with tempfile.TemporaryDirectory(prefix="ray-sentinel-prometheus-") as name:
        scratch = Path(name)
        notes = [f"left out, {text}" for text in database.broken]
        notes += mirror(database, scratch / "data")
        with _server(program, scratch, port, deadline, notes) as url:
            yield url, database, notes


def mirror(database: Database, target: Path) -> list[str]:
    """Lay out ``target`` as a data folder with the same content; returns what is missing in it.

    Blocks of a finished job are links. A live job's Prometheus may delete blocks at any moment, so
    there they are hard links, or copies on another file system.
    """
    target.mkdir(parents=True)
    problems = (_try_mirror(Path(b.path), target, live=database.live) for b in database.blocks)
    notes = [problem for problem in problems if problem]
    tail = _copy_head(Path(database.path), target) if database.wal else ""
    if tail:
        shutil.rmtree(target / "wal", ignore_errors=True)
        shutil.rmtree(target / "chunks_head", ignore_errors=True)
        notes.append(f"the newest samples (up to the last two hours) are missing: {tail}")
    elif database.live:
        notes.append("a copy of a live job's data: what was scraped after now is missing")
    return notes


def _try_mirror(source: Path, target: Path, *, live: bool) -> str:
    try:
        _mirror_block(source, target / source.name, live=live)
    except OSError as error:
        shutil.rmtree(target / source.name, ignore_errors=True)
        return f"left out, {source.name}: {error.strerror}"
    return ""


def _mirror_block(source: Path, target: Path, *, live: bool) -> None:
    (target / "chunks").mkdir(parents=True)
    for name in ("meta.json", "tombstones"):
        if (source / name).exists():
            shutil.copyfile(source / name, target / name)
    files = [source / "index", *sorted((source / "chunks").iterdir())]
    for file in files:
        link = target / file.relative_to(source)
        if not live:
            link.symlink_to(file.resolve())
            continue
        try:
            os.link(file, link)
        except OSError as error:
            if error.errno not in {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP}:
                raise
            shutil.copyfile(file, link)


def _copy_head(source: Path, target: Path) -> str:
    """Copy the WAL and the memory-mapped head; returns why it could not be done."""
    for name in ("wal", "chunks_head"):
        if not (source / name).is_dir():
            continue
        try:
            shutil.copytree(source / name, target / name)
        except (OSError, shutil.Error) as error:
            return f"the write-ahead log cannot be copied ({error})"
    return ""


def free_port(first: int = FIRST_PORT) -> int:
    """The first port from ``first`` up on which nobody listens, on any address of this machine."""
    for port in range(first, first + PORTS):
        if _is_free(port):
            return port
    raise UnreachableError(f"no free port between {first} and {first + PORTS}")


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


@contextmanager
def _server(
    program: str, scratch: Path, port: int, deadline: float, notes: list[str]
) -> Iterator[str]:
    (scratch / "prometheus.yml").write_text("global: {}\n")
    problem = ""
    for _ in range(TRIES):
        chosen = free_port(port or FIRST_PORT)
        log = scratch / "log"
        with log.open("wb") as output:
            child = spawn(_arguments(program, scratch, chosen), stdout=output, stderr=output)
        try:
            url = f"http://127.0.0.1:{chosen}"
            problem = _wait_ready(url, child, log, deadline)
            if not problem:
                yield url
                return
        finally:
            end(child, grace=2.0)
        if not (_without_named_blocks(scratch / "data", problem, notes) or _port_taken(problem)):
            break
    raise UnreachableError(f"Prometheus did not start over the data: {problem}")


def _port_taken(problem: str) -> bool:
    return "address already in use" in problem


def _without_named_blocks(data: Path, problem: str, notes: list[str]) -> bool:
    """Drop the blocks that Prometheus's complaint names from the mirror; whether there were any."""
    named = [path for path in data.iterdir() if ULID.match(path.name) and path.name in problem]
    for path in named:
        shutil.rmtree(path)
        notes.append(f"left out, {path.name}: the block is corrupt")
    return bool(named)


def _arguments(program: str, scratch: Path, port: int) -> list[str]:
    return [
        program,
        f"--config.file={scratch / 'prometheus.yml'}",
        f"--storage.tsdb.path={scratch / 'data'}",
        # The default of 15 days would hide an older job.
        "--storage.tsdb.retention.time=100y",
        f"--web.listen-address=127.0.0.1:{port}",
        "--query.timeout=5m",
        "--log.level=warn",
    ]


def _wait_ready(url: str, child: subprocess.Popen[bytes], log: Path, deadline: float) -> str:
    """Empty once it answers; else what it said last."""
    give_up = time.monotonic() + deadline
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while time.monotonic() < give_up:
        if child.poll() is not None:
            return _last_words(log) or f"it ended with status {child.returncode}"
        try:
            with opener.open(f"{url}/-/ready", timeout=2):
                return ""
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.05)
    return f"it was not ready after {deadline:.0f} s; {_last_words(log)}"


def _last_words(log: Path) -> str:
    lines = log.read_text("utf-8", "replace").strip().splitlines()
    return lines[-1][-400:] if lines else ""
