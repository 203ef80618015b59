"""A client for HTTP servers of this cluster: the coordinator's page, agents, etcd, a Prometheus.

The environment's proxy is not used unless requested: it does not know the addresses of a cluster,
and loopback least of all.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from email.message import Message
from functools import partial
from typing import Any
from urllib.parse import SplitResult, urlsplit

import msgspec

from ray_sentinel.errors import UnreachableError, unreached

MOST_BYTES = 64 << 20
"""Most bytes of an answer, unless the caller says otherwise; a longer one is refused, so that no
server can fill the memory."""


class RefusedError(UnreachableError):
    """The server answers with an error status; its explanation is kept."""

    def __init__(self, message: str, status: int, body: bytes) -> None:
        super().__init__(message)
        self.status, self.body = status, body


class Exchanged(msgspec.Struct, frozen=True):
    """An answer as it came, whatever its status."""

    status: int
    body: bytes
    headers: Message


def address(url: str) -> SplitResult | None:
    """The parts of ``http://HOST:PORT/...`` or ``https://...``; None for any other URL."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a bracket that is not closed, an invalid port
        return None
    return parts if good else None


def near(url: str) -> bool:
    """Whether a URL names this machine by its loopback address."""
    parts = address(url)
    host = (parts.hostname if parts is not None else "") or ""
    return host in ("localhost", "::1") or host.startswith("127.")


def get(
    url: str,
    *,
    seconds: float,
    most_bytes: int = MOST_BYTES,
    data: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    tls: ssl.SSLContext | None = None,
) -> bytes:
    """The body of an answer; ``data`` makes it a POST, ``tls`` is for an ``https`` address.

    Raises UnreachableError if there is no answer within ``seconds`` (of the connection, and of
    each read), one that is no HTTP, or more than ``most_bytes``; RefusedError for an error status.
    """
    if address(url) is None:
        raise UnreachableError(f"{url!r} is no address of a server: http://HOST:PORT is meant")
    try:
        request = urllib.request.Request(url, data, dict(headers or {}))
        handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
        if tls is not None:
            handlers.append(urllib.request.HTTPSHandler(context=tls))
        if "Authorization" in (headers or {}):
            handlers.append(NoRedirect())  # a redirection would pass it on
        with urllib.request.build_opener(*handlers).open(request, timeout=seconds) as answer:
            body = bytes(answer.read(most_bytes + 1))
            # A read of a given size does not distinguish a cut answer from a whole one.
            if len(body) <= most_bytes and answer.length:
                raise http.client.IncompleteRead(body, answer.length)
    except urllib.error.HTTPError as error:
        why = f"{url}: {error.code} {error.reason}"
        raise RefusedError(why, error.code, _rest(error, most_bytes)) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        why = unreached(getattr(error, "reason", None) or error)
        raise UnreachableError(f"{url} does not answer: {why}") from None
    if len(body) > most_bytes:
        raise UnreachableError(f"{url} answers with more than {most_bytes} bytes")
    return body


def exchange(
    url: str,
    *,
    seconds: float,
    most_bytes: int = MOST_BYTES,
    headers: Mapping[str, str] | None = None,
    proxy: bool = False,
) -> Exchanged:
    """One GET to a server that is not trusted yet: the raw answer, for the caller to check.

    No redirection is followed, and ``seconds`` is for the whole exchange, even if the answer
    trickles in. Raises UnreachableError if there is no answer by then, it is not HTTP, or it has
    more than ``most_bytes``.
    """
    if address(url) is None:
        raise UnreachableError(f"{url!r} is no address of a server: http://HOST:PORT is meant")
    deadline = time.monotonic() + seconds
    handlers: list[urllib.request.BaseHandler] = [_Plain(deadline), _Tls(deadline), NoRedirect()]
    if not proxy or near(url):
        handlers.append(urllib.request.ProxyHandler({}))
    try:
        request = urllib.request.Request(url, None, dict(headers or {}))
        try:
            answer: Any = urllib.request.build_opener(*handlers).open(request, timeout=seconds)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            body = bytes(answer.read(most_bytes + 1))
            if len(body) > most_bytes:
                raise UnreachableError(f"{url} answers with more than {most_bytes} bytes")
            wanted = answer.headers.get("Content-Length", "")
            if wanted.isdigit() and len(body) < int(wanted):
                raise http.client.IncompleteRead(body, int(wanted) - len(body))
            return Exchanged(answer.status, body, answer.headers)
    except (OSError, http.client.HTTPException, ValueError) as error:
        why = unreached(getattr(error, "reason", None) or error)
        raise UnreachableError(f"{url} does not answer: {why}") from None


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirection: what was meant for one server is sent to no other."""

    def redirect_request(self, *_: Any) -> None:
        return None


class _Timed(io.RawIOBase):
    """A connection's bytes until a time, however slowly they come."""

    def __init__(self, raw: io.RawIOBase, connection: socket.socket, deadline: float) -> None:
        self._raw, self._connection, self._deadline = raw, connection, deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._connection.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _TimedAnswer(http.client.HTTPResponse):
    def __init__(self, sock: Any, *more: Any, deadline: float, **named: Any) -> None:
        super().__init__(sock, *more, **named)
        self.fp.close()
        raw = sock.makefile("rb", buffering=0)
        self.fp = io.BufferedReader(_Timed(raw, sock, deadline))


class _Plain(urllib.request.HTTPHandler):
    def __init__(self, deadline: float) -> None:
        super().__init__()
        self._deadline = deadline

    def http_open(self, request: urllib.request.Request) -> Any:
        return self.do_open(
            partial(_connection, http.client.HTTPConnection, self._deadline), request
        )


class _Tls(urllib.request.HTTPSHandler):
    def __init__(self, deadline: float) -> None:
        super().__init__()
        self._deadline = deadline

    def https_open(self, request: urllib.request.Request) -> Any:
        return self.do_open(
            partial(_connection, http.client.HTTPSConnection, self._deadline), request
        )


def _connection(
    kind: type[http.client.HTTPConnection], deadline: float, host: str, **more: Any
) -> http.client.HTTPConnection:
    made = kind(host, **more)
    made.response_class = partial(_TimedAnswer, deadline=deadline)  # type: ignore[assignment]
    return made


def _rest(error: urllib.error.HTTPError, most_bytes: int) -> bytes:
    try:
        return error.read(most_bytes)
    except (OSError, http.client.HTTPException):
        return b""  # the status has come; only its reason is lost
