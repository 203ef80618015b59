"""A small HTTP client for Prometheus, with a deadline and errors that say what to do."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from ray_sentinel.backoff import Backoff
from ray_sentinel.errors import InputError, UnreachableError, unreached
from ray_sentinel.http.client import address, near

TRIES = 3
"""Attempts for one request."""
RETRY = Backoff(first=0.4, most=0.8)
MOST_BYTES = 512 << 20
"""Most bytes of one answer: 4,000 series over a job's whole time take half of it."""
_PIECE = 1 << 20

T = TypeVar("T")


class PrometheusHttp:
    """Sends requests to the Prometheus at ``url``. ``deadline`` is for one request, in seconds.

    Raises UnreachableError if it does not answer, InputError if what answers is not a Prometheus.
    """

    def __init__(self, url: str, deadline: float) -> None:
        self.url = url.rstrip("/")
        self.deadline = deadline
        self.seconds_waiting = 0.0
        """Time spent until answers arrived: Prometheus's own."""
        self._open = _opener(self.url)

    def data(self, path: str, kind: type[T], query: Mapping[str, str] | None = None) -> T:
        """The ``data`` of an answer, which must be of that kind."""
        body = self.get(path, query or {})
        try:
            return msgspec.json.decode(body, type=_Answer[kind]).data  # type: ignore[valid-type]
        except (ValueError, RecursionError) as error:
            raise self.not_prometheus(f"{path}: {error}") from None

    def not_prometheus(self, why: str) -> InputError:
        """What is raised for an answer that no Prometheus gives."""
        return InputError(
            f"{self.url} answers, but not as a Prometheus does ({why}); is the address right?"
        )

    def text(self, path: str) -> str:
        """A page as text, such as ``/metrics``; empty if it is not served."""
        try:
            return self.get(path, {}).decode("utf-8", "replace")
        except (UnreachableError, InputError):
            return ""

    def get(self, path: str, query: Mapping[str, str]) -> bytes:
        """The body of an answer."""
        url = f"{self.url}{path}"
        if query:
            url += "?" + urllib.parse.urlencode(query)
        request = urllib.request.Request(url, headers={"Accept": "application/json"})
        problem = ""
        for attempt in range(TRIES):
            if attempt:
                time.sleep(RETRY.delay(attempt))
            started = time.monotonic()
            try:
                with self._open(request, timeout=self.deadline) as answer:
                    return self._whole(answer, path, started + self.deadline)
            except urllib.error.HTTPError as error:
                problem = self._refused(error)
            except TimeoutError:
                raise UnreachableError(self._slow(path)) from None
            except urllib.error.URLError as error:
                if isinstance(error.reason, TimeoutError):
                    raise UnreachableError(self._slow(path)) from None
                problem = unreached(error.reason)
            except (http.client.HTTPException, ConnectionError, OSError) as error:
                problem = unreached(error)
            finally:
                self.seconds_waiting += time.monotonic() - started
        raise UnreachableError(
            f"{self.url} does not answer: {problem}. Is the address right, and is the Prometheus "
            "of this job running? A finished job's folder can be given instead."
        )

    def _whole(self, answer: http.client.HTTPResponse, path: str, end: float) -> bytes:
        """The body, which must not be endless. Raises TimeoutError if it is not there by ``end``,
        of the monotonic clock."""
        parts, size = [], 0
        while part := answer.read1(_PIECE):
            parts.append(part)
            size += len(part)
            if size > MOST_BYTES:
                raise InputError(
                    f"{self.url}{path} answers with more than {MOST_BYTES >> 20} MiB; "
                    "try a shorter --window"
                )
            if time.monotonic() > end:
                raise TimeoutError
        if answer.length:
            raise http.client.IncompleteRead(b"", answer.length)
        return b"".join(parts)

    def _slow(self, path: str) -> str:
        return (
            f"{self.url}{path} gave no answer within {self.deadline:.0f} s; "
            "try a shorter --window or a longer --deadline"
        )

    def _refused(self, error: urllib.error.HTTPError) -> str:
        """A reason to try again, for what may pass; raises for what will not."""
        text = error.read(2000).decode("utf-8", "replace")
        try:
            reason = json.loads(text).get("error", "")
        except (ValueError, AttributeError, RecursionError):
            reason = ""
        if error.code in {404, 405} or (error.code == 400 and not reason):
            raise self.not_prometheus(f"HTTP {error.code}") from None
        if error.code in {401, 403}:
            raise UnreachableError(f"{self.url} refuses us (HTTP {error.code})") from None
        if error.code in {400, 422}:
            raise UnreachableError(f"{self.url}: query failed: {reason or text[:200]}") from None
        return f"HTTP {error.code} {reason or text[:200]}".strip()


class _Answer(msgspec.Struct, Generic[T]):
    data: T


def _opener(url: str) -> Callable[..., Any]:
    """How to open ``url``: a proxy of the environment is not asked for this very machine."""
    if address(url) is None:
        raise InputError(f"{url} is not the address of a Prometheus: http://HOST:PORT is meant")
    handlers = [urllib.request.ProxyHandler({})] if near(url) else []
    return urllib.request.build_opener(*handlers).open
