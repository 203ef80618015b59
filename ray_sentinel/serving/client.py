"""Asking HTTP servers of this cluster: the coordinator's page, agents, etcd, a Prometheus.

The environment's proxy is not asked unless that is wanted: it does not know the addresses of a
cluster, and loopback least of all.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, urlsplit

from ray_sentinel.errors import UnreachableError

MOST_BYTES = 64 << 20
"""Of an answer, unless the caller says otherwise: a server that goes mad fills no memory."""


class RefusedError(UnreachableError):
    """The server answers with an error status; what it says of it is kept."""

    def __init__(self, message: str, status: int, body: bytes) -> None:
        super().__init__(message)
        self.status, self.body = status, body


def address(url: str) -> SplitResult | None:
    """The parts of ``http://HOST:PORT/...`` or ``https://...``; None where it is no such URL."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a bracket that is not closed, a port that is none
        return None
    return parts if good else None


def near(url: str) -> bool:
    """Whether a URL names this very machine by its loopback address."""
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
    proxy: bool = False,
) -> bytes:
    """The body of an answer; ``data`` makes it a POST.

    Raises UnreachableError where there is no answer within ``seconds`` (of the connection, and of
    each read), one that is no HTTP, or more than ``most_bytes``; RefusedError for an error status.
    """
    if address(url) is None:
        raise UnreachableError(f"{url!r} is no address of a server: http://HOST:PORT is meant")
    try:
        request = urllib.request.Request(url, data, dict(headers or {}))
        handlers = () if proxy and not near(url) else (urllib.request.ProxyHandler({}),)
        with urllib.request.build_opener(*handlers).open(request, timeout=seconds) as answer:
            body = bytes(answer.read(most_bytes + 1))
            # A read of a given size does not tell a cut answer from a whole one.
            if len(body) <= most_bytes and answer.length:
                raise http.client.IncompleteRead(body, answer.length)
    except urllib.error.HTTPError as error:
        why = f"{url}: {error.code} {error.reason}"
        raise RefusedError(why, error.code, _rest(error, most_bytes)) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        why = getattr(error, "reason", None) or str(error) or type(error).__name__
        raise UnreachableError(f"{url} does not answer: {why}") from None
    if len(body) > most_bytes:
        raise UnreachableError(f"{url} answers with more than {most_bytes} bytes")
    return body


def _rest(error: urllib.error.HTTPError, most_bytes: int) -> bytes:
    try:
        return error.read(most_bytes)
    except (OSError, http.client.HTTPException):
        return b""  # the status was said; only its reason is lost


def get_json(
    url: str,
    *,
    seconds: float,
    most_bytes: int = MOST_BYTES,
    data: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> Any:
    """The same, decoded. Raises UnreachableError also for what is no JSON."""
    body = get(url, seconds=seconds, most_bytes=most_bytes, data=data, headers=headers)
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise UnreachableError(f"{url} answers, but not with JSON") from None
