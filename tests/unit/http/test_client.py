"""Asking HTTP servers: every way in which an answer can fail is one error that names the URL."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from ray_sentinel.errors import UnreachableError
from ray_sentinel.http.access import PageCredential
from ray_sentinel.http.client import MOST_BYTES, RefusedError, get, near
from ray_sentinel.http.page_client import PageClient


class Pages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status = int(self.path.partition("?")[0].strip("/") or 200)
        self.answer(status, self.path.partition("?")[2].encode() or b'{"a": [1]}')

    def do_POST(self) -> None:
        self.answer(200, self.rfile.read(int(self.headers["Content-Length"])))

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def root() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Pages)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join(10)


@pytest.fixture
def raw() -> Iterator[tuple[str, socket.socket]]:
    """A server that says what the test says."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/", server


def test_the_body_and_a_post(root: str) -> None:
    assert get(f"{root}/", seconds=5) == b'{"a": [1]}'
    assert get(f"{root}/", seconds=5, data=b"question") == b"question"


def test_an_error_status_keeps_what_the_server_says(root: str) -> None:
    with pytest.raises(RefusedError, match=r"/503.*503 Service Unavailable") as refused:
        get(f"{root}/503?unhealthy", seconds=5)
    assert (refused.value.status, refused.value.body) == (503, b"unhealthy")


class GivenAnswer(PageClient):
    """A page that answers with these bytes."""

    def __init__(self, body: bytes) -> None:
        super().__init__("http://page", PageCredential.of_secret(b"secret", "page"))
        self.body = body

    def get(self, path: str, *, seconds: float, most_bytes: int = MOST_BYTES) -> bytes:
        return self.body


@pytest.mark.parametrize("body", [b"[1", b"\xff", b"[" * 60_000])
def test_what_is_no_json(body: bytes) -> None:
    assert GivenAnswer(b'{"a": [1]}').get_json("/", seconds=5) == {"a": [1]}
    with pytest.raises(UnreachableError, match="not with JSON"):
        GivenAnswer(body).get_json("/", seconds=5)


def test_more_than_is_wanted(root: str) -> None:
    assert get(f"{root}/200?12345", seconds=5, most_bytes=5) == b"12345"
    with pytest.raises(UnreachableError, match="more than 5 bytes"):
        get(f"{root}/200?123456", seconds=5, most_bytes=5)


@pytest.mark.parametrize("url", ["", "there", "file:///etc/passwd", "http://", "http://[::1"])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(UnreachableError, match="is no address of a server"):
        get(url, seconds=5)


def test_nobody_there(raw: tuple[str, socket.socket]) -> None:
    url, server = raw
    server.close()
    with pytest.raises(
        UnreachableError, match=r"does not answer: nothing listens there \(connection refused"
    ):
        get(url, seconds=5)


def test_nobody_who_answers(raw: tuple[str, socket.socket]) -> None:
    with pytest.raises(UnreachableError, match="timed out"):
        get(raw[0], seconds=0.1)


@pytest.mark.parametrize("said", [b"", b"hello\n", b"HTTP/1.1 200 OK\nContent-Length: 9\n\nx"])
def test_no_http(raw: tuple[str, socket.socket], said: bytes) -> None:
    url, server = raw

    def answer() -> None:
        peer, _ = server.accept()
        with peer:
            peer.recv(1000)
            peer.sendall(said)

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    with pytest.raises(UnreachableError, match="does not answer"):
        get(url, seconds=5)
    thread.join(10)


def test_loopback_is_near(monkeypatch: pytest.MonkeyPatch, root: str) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert get(f"{root}/", seconds=5) == b'{"a": [1]}'
    assert near("http://localhost:1/x")
    assert near("http://[::1]:1")
    assert not near("http://node-1:9400")
