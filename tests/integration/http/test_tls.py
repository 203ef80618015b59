"""TLS and the guard of the server, under real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import resource
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from ray_sentinel.http import server
from ray_sentinel.http.address import listen
from ray_sentinel.http.server import Request, Response, Server
from tests.support.certificates import Authority, server_context
from tests.support.parts import require
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

BODY = b"x" * 3_000_000


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@contextlib.contextmanager
def serving(
    tls: Callable[[], ssl.SSLContext] | None = None,
    guard: server.Guard | None = None,
) -> Iterator[int]:
    listening = listen("127.0.0.1", 0)
    routes = {
        "/": lambda _request: Response(body=b"ok\n"),
        "/long": lambda _request: Response(body=BODY),
    }
    running = Server(
        listening,
        routes,
        tls=tls,
        guard=guard,
        headers=lambda: (("X-Frame-Options", "deny"),),
    )
    port = int(listening.getsockname()[1])
    running.start()
    try:
        yield port
    finally:
        running.close()


@pytest.fixture
def port(authority: Authority) -> Iterator[int]:
    context = server_context(authority.issue("node", "127.0.0.1"))
    with serving(lambda: context) as port:
        yield port


def get(
    port: int, context: ssl.SSLContext, path: str = "/", **headers: str
) -> http.client.HTTPResponse:
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=context)
    connection.request("GET", path, headers=headers)
    return connection.getresponse()


def test_answers_of_any_size_come_through_tls(authority: Authority, port: int) -> None:
    trusted = authority.trusted()
    assert get(port, trusted, "/long").read() == BODY
    kept = http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=trusted)
    for _ in range(20):
        kept.request("GET", "/")
        answer = kept.getresponse()
        assert (answer.read(), answer.headers["X-Frame-Options"]) == (b"ok\n", "deny")
    kept.close()
    with pytest.raises(ssl.SSLCertVerificationError):
        get(port, ssl.create_default_context())


def test_curl_gets_all_of_it(authority: Authority, port: int) -> None:
    command = [require("curl"), "-sS", "--http1.0", "--cacert", authority.cert]
    done = subprocess.run(
        [*command, f"https://127.0.0.1:{port}/long"], capture_output=True, timeout=30, check=True
    )
    assert done.stdout == BODY


def test_an_answer_ends_with_the_close_of_tls(authority: Authority, port: int) -> None:
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
        authority.trusted().wrap_socket(
            plain, server_hostname="127.0.0.1", suppress_ragged_eofs=False
        ) as connection,
    ):
        connection.sendall(b"GET /long HTTP/1.0\r\n\r\n")
        answer = b""
        while chunk := connection.recv(65536):  # one that is cut raises
            answer += chunk
    assert answer.endswith(b"\r\n\r\n" + BODY)


def test_plain_http_is_told_to_use_https(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/", headers={"Authorization": "Basic eDp5"})
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (400, b"this port speaks HTTPS only: use https://\n")


@pytest.mark.parametrize("data", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01", b"\x00", b"GET / HT"])
def test_handshakes_that_stall_hold_up_nobody_and_are_cut(
    authority: Authority, port: int, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    stalled = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(100)]
    for connection in stalled:
        connection.sendall(data)
    assert get(port, authority.trusted()).read() == b"ok\n"
    for connection in stalled:
        connection.close()
    monkeypatch.setattr(server, "HANDSHAKE_SECONDS", 0.2)
    monkeypatch.setattr(server, "REQUEST_SECONDS", 0.2)
    with socket.create_connection(("127.0.0.1", port), timeout=20) as late:
        late.sendall(data)
        assert late.recv(100) == b""


def test_more_handshakes_than_connections_are_allowed_keep_nobody_out(
    authority: Authority, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 20)
    stalled = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(60)]
    assert get(port, authority.trusted()).read() == b"ok\n"
    assert stalled[0].recv(1) == b""
    for connection in stalled:
        connection.close()


def test_a_client_that_reads_nothing_is_cut(
    authority: Authority, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "REQUEST_SECONDS", 0.2)
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    plain.settimeout(20)
    plain.connect(("127.0.0.1", port))
    with authority.trusted().wrap_socket(plain, server_hostname="127.0.0.1") as deaf:
        deaf.sendall(b"GET /long HTTP/1.1\r\n\r\n")
        # Written to after the server has cut it, a socket says so.
        eventually(lambda: _broken(deaf), "the connection is cut", 10)
    assert get(port, authority.trusted()).read() == b"ok\n"


def _broken(connection: ssl.SSLSocket) -> bool:
    try:
        connection.sendall(b"\r\n")
    except OSError:
        return True
    return False


def test_the_certificate_is_asked_for_with_each_connection(authority: Authority) -> None:
    pairs = iter([authority.issue("old", "127.0.0.1"), authority.issue("new", "127.0.0.1")])
    with serving(lambda: server_context(next(pairs))) as port:
        for name in ("old", "new"):
            with (
                socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
                authority.trusted().wrap_socket(plain, server_hostname="127.0.0.1") as connection,
            ):
                certificate = connection.getpeercert()
            assert certificate is not None
            assert certificate["subject"] == ((("commonName", name),),)


async def _quick(request: Request, answer: server.Answer) -> Response:
    if request.headers.get("authorization") == "Bearer right":
        return await answer(request)
    return Response(body=b"who are you?\n", status=401)


async def _slow(request: Request, answer: server.Answer) -> Response:
    await asyncio.sleep(0.01)
    return await _quick(request, answer)


async def _failing(_request: Request, _answer: server.Answer) -> Response:
    raise RuntimeError("the file of tokens has gone")


@pytest.mark.parametrize("guard", [_quick, _slow])
def test_only_those_who_are_let_in_learn_anything(guard: server.Guard) -> None:
    with serving(guard=guard) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        for method, path in (("GET", "/"), ("GET", "/nowhere"), ("DELETE", "/"), ("HEAD", "/")):
            connection.request(method, path, headers={"Authorization": "Bearer wrong"})
            answer = connection.getresponse()
            assert (answer.status, answer.headers["X-Frame-Options"]) == (401, "deny")
            assert answer.read() == (b"" if method == "HEAD" else b"who are you?\n")
        connection.request("GET", "/", headers={"Authorization": "Bearer right"})
        assert connection.getresponse().read() == b"ok\n"


def test_nobody_gets_in_where_authentication_fails() -> None:
    with serving(guard=_failing) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", "/", headers={"Authorization": "Bearer right"})
        answer = connection.getresponse()
        assert answer.status == 500
        assert b"ok" not in answer.read()


def test_it_closes_at_once_after_an_answer() -> None:
    for _ in range(20):
        with serving() as port:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request("GET", "/")
            assert connection.getresponse().read() == b"ok\n"
            began = time.monotonic()
        assert time.monotonic() - began < 2.0
        connection.close()


def test_it_accepts_again_after_too_many_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with serving() as port, socket.socket() as connection:
        connection.settimeout(10)
        free = os.dup(connection.fileno())
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
        try:
            connection.connect(("127.0.0.1", port))
            connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
            time.sleep(0.1)  # it is to find that it may open no more
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")
