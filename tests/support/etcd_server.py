"""A real etcd of one member, on free ports of loopback."""

from __future__ import annotations

import base64
import json
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.support.parts import require
from tests.support.waiting import eventually


class Etcd:
    """One that runs; ``url`` is where clients ask."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.endpoint = url.removeprefix("http://")

    def put(self, key: str, value: str = "x") -> None:
        """Into the store of the v3 API. Raises HTTPError where it is refused."""
        words = {
            name: base64.b64encode(text.encode()).decode()
            for name, text in (("key", key), ("value", value))
        }
        self._ask("/v3/kv/put", json.dumps(words).encode(), "POST")

    def put_old(self, key: str) -> None:
        """Into the store of the v2 API, which is another one."""
        self._ask(f"/v2/keys{key}", urllib.parse.urlencode({"value": "x"}).encode(), "PUT")

    def fill(self) -> None:
        """Use its quota up. Raises HTTPError as soon as it takes nothing more."""
        for n in range(1000):
            self.put(f"/fill/{n}", "x" * 20_000)

    def healthy(self) -> bool:
        """What it says itself."""
        with suppress(OSError):
            return b'"true"' in self._ask("/health", None, "GET")
        return False

    def _ask(self, path: str, data: bytes | None, method: str) -> bytes:
        request = urllib.request.Request(self.url + path, data=data, method=method)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return bytes(answer.read())


@contextmanager
def etcd(folder: Path, *options: str) -> Iterator[Etcd]:
    """Start one with its data in ``folder``; it is gone afterwards."""
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as two,
    ):
        client, peer = (f"http://127.0.0.1:{s.getsockname()[1]}" for s in (one, two))
    with open(folder / "etcd.log", "wb") as log:
        server = subprocess.Popen(
            [
                *(require("etcd"), "--data-dir", str(folder / "data")),
                *("--listen-client-urls", client, "--advertise-client-urls", client),
                *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
                *("--initial-cluster", f"default={peer}", *options),
            ],
            stdout=log,
            stderr=log,
        )
    found = Etcd(client)
    try:
        eventually(found.healthy, "etcd is up", 60.0)
        yield found
    finally:
        server.kill()
        server.wait()
