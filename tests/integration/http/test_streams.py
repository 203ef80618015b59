"""Answers of the server that are streams, under real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import ssl
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path

import pytest

from ray_sentinel.http import server
from ray_sentinel.http.address import listen
from ray_sentinel.http.server import Request, Response, Server
from tests.support.certificates import Authority, server_context
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

PIECE = b"x" * 100_000


class Source:
    """A stream of pieces, one each time that it is told to go on."""

    def __init__(self) -> None:
        self.open = 0
        self.rounds = threading.Semaphore(0)
        self.endless = False

    def __call__(self, _request: Request) -> Response:
        return Response(body=b"", content_type="text/event-stream", stream=self.pieces)

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        self.open += 1
        number = 0
        try:
            while True:
                while not self.endless and not self.rounds.acquire(blocking=False):
                    await asyncio.sleep(0.01)
                number += 1
                yield PIECE if self.endless else b"piece %d\n" % number
        finally:
            self.open -= 1


@pytest.fixture
def source() -> Source:
    return Source()


@contextlib.contextmanager
def serving(source: Source, tls: Callable[[], ssl.SSLContext] | None = None) -> Iterator[int]:
    listening = listen("127.0.0.1", 0)
    routes: dict[str, server.Handler] = {
        "/": lambda _request: Response(body=b"ok\n"),
        "/stream": source,
    }
    running = Server(listening, routes, tls=tls)
    running.start()
    try:
        yield int(listening.getsockname()[1])
    finally:
        running.close()


def connected(port: int) -> socket.socket:
    """A client that has asked for the stream, and reads as it likes."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(10)
    client.connect(("127.0.0.1", port))
    client.sendall(b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return client


def get(port: int, path: str, method: str = "GET") -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path)
    return connection.getresponse()


def test_pieces_come_one_by_one_while_others_are_answered(source: Source) -> None:
    with serving(source) as port:
        answer = get(port, "/stream")
        assert answer.status == 200
        assert answer.headers["Content-Type"] == "text/event-stream"
        assert answer.headers["Content-Length"] is None
        assert answer.headers["Connection"] == "close"
        for number in (1, 2):
            source.rounds.release()
            assert answer.readline() == b"piece %d\n" % number
            assert get(port, "/").read() == b"ok\n"


def test_a_stream_goes_through_tls(source: Source, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    context = server_context(authority.issue("node", "127.0.0.1"))
    with serving(source, lambda: context) as port:
        trusted = authority.trusted()
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=trusted)
        connection.request("GET", "/stream")
        answer = connection.getresponse()
        source.rounds.release()
        assert answer.readline() == b"piece 1\n"


def test_who_asks_for_the_head_alone_gets_no_stream(source: Source) -> None:
    with serving(source) as port:
        answer = get(port, "/stream", "HEAD")
        assert (answer.status, answer.read()) == (200, b"")
        assert source.open == 0


def test_the_stream_of_a_client_that_has_gone_is_closed(source: Source) -> None:
    with serving(source) as port:
        client = connected(port)
        eventually(lambda: source.open == 1, "it has begun")
        client.close()

        def is_closed() -> bool:
            source.rounds.release()
            return source.open == 0

        eventually(is_closed, "it is closed")


def test_a_client_that_does_not_read_is_cut_and_holds_up_nobody(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "REQUEST_SECONDS", 1.0)
    source.endless = True
    with serving(source) as port, connected(port):
        eventually(lambda: source.open == 1, "it has begun")
        assert get(port, "/").read() == b"ok\n"
        eventually(lambda: source.open == 0, "it is cut", 10.0)


def test_streams_end_with_the_server(source: Source) -> None:
    source.endless = True
    with serving(source) as port:
        reading, deaf = connected(port), connected(port)
        eventually(lambda: source.open == 2, "they have begun")
        reading.recv(100)
    assert source.open == 0
    with contextlib.suppress(ConnectionError):
        while reading.recv(65536):
            pass
    reading.close()
    deaf.close()
