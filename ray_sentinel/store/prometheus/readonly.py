"""A Prometheus of our own over somebody else's data folder, without changing it.

It runs in a scratch folder whose blocks are folders of links to the real files, so that nothing it
does (its lock, its WAL, retention, compaction) reaches the data. The WAL is copied: opening it
writes. It listens on loopback only, scrapes nothing, and dies with its parent.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ray_sentinel.errors import InputError, UnreachableError
from ray_sentinel.process import end, spawn
from ray_sentinel.store.prometheus.binary import find_prometheus, version_of
from ray_sentinel.store.prometheus.mirror import mirror_steadily
from ray_sentinel.store.prometheus.ports import FIRST_PORT, answers, free_port
from ray_sentinel.store.prometheus.tsdb import ULID, Database, inspect

# A folder for what is needed only while we live, which is gone afterwards even if we are killed.
#
# A child waits for its standard input to close, which the kernel does for whoever dies, and then
# removes the folder.

_JANITOR = """
import os, shutil, sys, time
sys.stdin.buffer.read()
# Whoever else worked in it is dying at this moment, and may still write.
for _ in range(100):
    shutil.rmtree(sys.argv[1], ignore_errors=True)
    if not os.path.exists(sys.argv[1]):
        break
    time.sleep(0.1)
"""


@contextmanager
def scratch_folder(prefix: str) -> Iterator[Path]:
    """An empty temporary folder, removed on leaving or when this process dies."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    janitor = spawn(
        [sys.executable, "-I", "-S", "-c", _JANITOR, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        death_signal=False,
    )
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if folder.exists() and janitor.stdin is not None:
            janitor.stdin.close()  # something still writes there: the janitor has patience
        else:
            end(janitor)


TRIES = 8
"""Starts that are tried, each without the corrupt blocks that the one before named."""
START_DEADLINE = 60.0
"""Seconds that Prometheus may take until it answers; replaying a large WAL takes most of them."""
SCRATCH = "ray-sentinel-prometheus-"


@contextmanager
def read_only_prometheus(
    folder: Path, *, binary: str = "", port: int = 0
) -> Iterator[tuple[str, Database, list[str]]]:
    """The URL of a Prometheus over the data in ``folder``, what is there, and notes.

    ``port`` 0 is the first free one from 9190 up. Raises MissingPartError without the program,
    InputError if there is nothing to open, UnreachableError if it does not start.
    """
    program = find_prometheus(binary)
    version_of(program)
    found = inspect(folder)
    if not found.blocks and not found.wal:
        raise InputError(
            f"{folder} has nothing that can be opened"
            + (f": {'; '.join(found.broken)}" if found.broken else "")
        )
    with scratch_folder(SCRATCH) as scratch:
        database, missing = mirror_steadily(folder, scratch / "data")
        notes = [*(f"left out, {text}" for text in database.broken), *missing]
        with _server(program, scratch, port, notes) as url:
            yield url, database, notes


@contextmanager
def _server(program: str, scratch: Path, port: int, notes: list[str]) -> Iterator[str]:
    (scratch / "prometheus.yml").write_text("global: {}\n")
    problem = ""
    for _ in range(TRIES):
        chosen = free_port(port or FIRST_PORT)
        log = scratch / "log"
        with log.open("wb") as output:
            child = spawn(_arguments(program, scratch, chosen), stdout=output, stderr=output)
        try:
            url = f"http://127.0.0.1:{chosen}"
            problem = _wait_ready(url, child, log)
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
        # Equal, they keep it from merging blocks, which would write all the data once more.
        "--storage.tsdb.min-block-duration=2h",
        "--storage.tsdb.max-block-duration=2h",
        f"--web.listen-address=127.0.0.1:{port}",
        "--query.timeout=5m",
        "--log.level=warn",
    ]


def _wait_ready(url: str, child: subprocess.Popen[bytes], log: Path) -> str:
    """Empty once it answers; else its last message."""
    give_up = time.monotonic() + START_DEADLINE
    while time.monotonic() < give_up:
        if child.poll() is not None:
            return _last_words(log) or f"it ended with status {child.returncode}"
        if answers(url):
            return ""
        time.sleep(0.05)
    return f"it was not ready after {START_DEADLINE:.0f} s; {_last_words(log)}"


def _last_words(log: Path) -> str:
    lines = log.read_text("utf-8", "replace").strip().splitlines()
    return lines[-1][-400:] if lines else ""
