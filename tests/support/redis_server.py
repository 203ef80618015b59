"""A real Redis on a free port: what keeps the state of Ray's control store over its restarts."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.parts import require
from tests.support.waiting import eventually


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """Yields its HOST:PORT. Skips where Redis is missing."""
    program = require("redis-server")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    server = subprocess.Popen(
        [program, "--port", str(port), *options], cwd=folder, stdout=subprocess.DEVNULL
    )

    def answers() -> bool:
        assert server.poll() is None, "redis-server has ended"
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", port)) == 0

    try:
        eventually(answers, "Redis answers", 20.0)
        yield f"127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()
