"""Who may read from a server: passwords and tokens checked against a ``WebConfig`` that is kept up
to date.

A check of a password takes a tenth of a second of a core, by design. So one that was right is
remembered (by a keyed hash; a scrape costs microseconds then), checks are made one at a time on a
thread of their own, and after one that was wrong that thread rests for ten times as long: whoever
tries passwords takes a tenth of a core at most, and no scraper that was let in once waits for it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import logging
import os
import ssl
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ray_sentinel.errors import ConfigError
from ray_sentinel.http.server import Answer, Headers, Request, Response
from ray_sentinel.http.web_config import HASH, WebConfig, read_web_config

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""Seconds between two looks whether the files have changed."""
MOST_WAITING = 16
"""Most passwords that wait to be checked; further clients are told to try again later."""
MOST_KNOWN = 256
"""Most correct passwords that are remembered; the oldest are forgotten."""
REST_FACTOR = 10.0
"""Length of the pause after a wrong password, as a multiple of the time that its check took."""
MOST_PASSWORD = 72
"""Most bytes of a password that bcrypt looks at."""
_NOBODY = "$2b${cost}$" + "abcdefghijklmnopqrstuu" + "5s8NC4.BF6wDeePmVRhxJ4YJ6TdIS5C"
"""Hash that belongs to no password: checking an unknown user takes as long as checking a known
one."""

Stamp = tuple[tuple[int, int, int] | None, ...]


class WebAccess:
    """The TLS context, headers and guard of one ``http.server.Server``.

    Raises ConfigError if the file cannot be used at the start; later, ``problem`` says what is
    wrong with it, and what was good before stays.
    """

    def __init__(self, path: Path, *, sleep: Callable[[float], None] | None = None) -> None:
        self.path = path
        self.problem = ""
        self._stamp = stamp_of((path,))
        self._config = read_web_config(path)
        self._stamp = stamp_of(self._config.files)
        self._key = os.urandom(32)
        self._known: OrderedDict[bytes, None] = OrderedDict()
        self._waiting = 0
        self._owed = 0.0
        self._closing = threading.Event()
        self._rest = sleep or self._closing.wait
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="ray-sentinel-password")
        self._thread = threading.Thread(target=self._watch, name="web-config", daemon=True)
        self._thread.start()

    @property
    def encrypted(self) -> bool:
        """Whether it serves HTTPS."""
        return self._config.tls is not None

    def tls(self) -> ssl.SSLContext:
        """The TLS context for a new connection. Raises OSError if there is none."""
        if self._config.tls is None:
            raise OSError("no certificate")
        return self._config.tls

    def headers(self) -> Headers:
        """The headers of each answer."""
        return self._config.headers

    def close(self) -> None:
        """Stop watching the files, and check no more passwords."""
        self._closing.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._thread.join(timeout=5)

    async def guard(self, request: Request, answer: Answer) -> Response:
        """Answer a request that is allowed; see ``http.server.Guard``."""
        return await self.authenticate(request) or await answer(request)

    async def authenticate(self, request: Request) -> Response | None:
        """The response that refuses a request; None if it is allowed."""
        config = self._config
        if not config.authenticates:
            return None
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        given = given.strip()
        if scheme.lower() == "bearer" and config.token:
            right = hmac.compare_digest(given.encode(), config.token.encode())
            return None if right else _refusal(config)
        if scheme.lower() == "basic" and config.users and (pair := _pair(given)) is not None:
            return await self._basic(config, *pair)
        return _refusal(config)

    async def _basic(self, config: WebConfig, user: str, password: bytes) -> Response | None:
        hashed = config.users.get(user, "")
        known = self._digest(user, password, hashed or _NOBODY)
        if hashed and known in self._known:
            self._known.move_to_end(known)
            return None
        if self._waiting >= MOST_WAITING:
            return Response(
                body=b"too many passwords wait to be checked\n",
                status=429,
                headers=(("Retry-After", "5"),),
            )
        loop = asyncio.get_running_loop()
        against = hashed or _NOBODY.format(cost=_usual_cost(config))
        self._waiting += 1
        try:
            right = await loop.run_in_executor(self._pool, self._check, password, against)
        finally:
            self._waiting -= 1
        if not right or not hashed:
            return _refusal(config)
        self._known[known] = None
        while len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)
        return None

    def _check(self, password: bytes, hashed: str) -> bool:
        import bcrypt

        if self._owed:  # before the next check, however many are queued
            self._rest(self._owed)
        begun = time.monotonic()
        try:
            right = bcrypt.checkpw(password[:MOST_PASSWORD], hashed.encode())
        except ValueError:  # a NUL in the password
            right = False
        self._owed = 0.0 if right else REST_FACTOR * (time.monotonic() - begun)
        return right

    def _digest(self, user: str, password: bytes, hashed: str) -> bytes:
        parts = (user.encode("utf-8", "replace"), hashed.encode(), password)
        text = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        return hmac.new(self._key, text, hashlib.sha256).digest()

    def _watch(self) -> None:
        while not self._closing.wait(LOOK_SECONDS):
            self.reload()

    def reload(self) -> None:
        """Read the files again if one has changed."""
        stamp = stamp_of(self._config.files)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            config = read_web_config(self.path)
            if (config.tls is None) != (self._config.tls is None):
                raise ConfigError(f"{self.path}: whether TLS is spoken is decided at the start")
        except ConfigError as error:
            self.problem = f"{error}; what was read before stays in use"
            log.error("%s", self.problem)
            return
        self._config, self.problem = config, ""
        self._stamp = stamp_of(config.files)
        log.info("%s or a file that it names has changed: it is in use", self.path)


def stamp_of(files: tuple[Path, ...]) -> Stamp:
    """A value that changes when one of the files does: renewed certificates come as other files, or
    through another link."""
    found: list[tuple[int, int, int] | None] = []
    for file in files:
        try:
            status = file.stat()
            found.append((status.st_mtime_ns, status.st_ino, status.st_size))
        except OSError:
            found.append(None)
    return tuple(found)


def _pair(given: str) -> tuple[str, bytes] | None:
    try:
        user, colon, password = base64.b64decode(given, validate=True).partition(b":")
    except (binascii.Error, ValueError):
        return None
    return (user.decode("utf-8", "replace"), password) if colon else None


def _usual_cost(config: WebConfig) -> str:
    costs = [found[1] for hashed in config.users.values() if (found := HASH.fullmatch(hashed))]
    return max(set(costs), key=costs.count, default="10")


def _refusal(config: WebConfig) -> Response:
    wanted = [
        *(["Basic"] if config.users else []),
        *(["Bearer"] if config.token else []),
    ]
    return Response(
        body=b"Unauthorized\n",
        status=401,
        headers=tuple(("WWW-Authenticate", f'{scheme} realm="ray_sentinel"') for scheme in wanted),
    )
