"""What the page shows, sent to all open tabs as it changes: server-sent events.

The first event of a stream, ``whole``, has all of it; after that, once a second, ``change`` has
what changed since the event before (``changes``), even if nothing did, so that silence means that
nobody looks any more. A client that was too slow for one of them is sent the whole again.

A client may have chosen one more part (``?gpus=power``). It comes as ``levels`` and
``level-change``, just before the events of the page that belong to the same look.

One thread looks and compares, once for all streams and only while there are any, and rests for as
long as it worked: the owner of what it looks at has it undisturbed for at least half of the time.
Each event is packed once too. A packed stream is one gzip member whose blocks refer to nothing
outside their own event, so that the same bytes fit behind any others.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import zlib
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from functools import cached_property
from itertools import count
from typing import Any

import msgspec

from ray_sentinel.http.negotiation import accepts_gzip
from ray_sentinel.http.server import Request, Response
from ray_sentinel.web.changes import changes
from ray_sentinel.web.packing import PACKED_HEADERS, PACKING_LEVEL

log = logging.getLogger(__name__)

EVENT_STREAM = "text/event-stream"
LOOK_SECONDS = 1.0
MOST_STREAMS = 16
"""Most streams at one time; further clients are refused one, and ask for the whole page again and
again."""
SILENT_SECONDS = 10.0
"""Seconds without news after which a stream is ended: its client may have gone."""
FRESH_SECONDS = 2.0
"""Greatest age in seconds of a picture with which a new stream may begin."""
PAGE = ""
"""The name of the part that every client gets."""
PAGE_EVENTS, MORE_EVENTS = ("whole", "change"), ("levels", "level-change")
"""The names of the events of that part, and of one that a client has chosen."""
_GZIP_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
"""Header of a gzip stream without a name or a time (RFC 1952, 2.3)."""


class StreamEvent:
    """One event, as it is sent; packed where somebody wants it so."""

    def __init__(self, name: str, told: Any) -> None:
        self.plain = f"event: {name}\ndata: ".encode() + msgspec.json.encode(told) + b"\n\n"

    @cached_property
    def packed(self) -> bytes:
        """A part of any gzip member."""
        packer = zlib.compressobj(PACKING_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
        return packer.compress(self.plain) + packer.flush(zlib.Z_SYNC_FLUSH)


class Part:
    """One part of what was seen at one moment, and how it differs from the same part in the picture
    before."""

    def __init__(self, name: str, told: Any, before: Picture | None) -> None:
        earlier = before.part(name) if before is not None else None
        self.told = told
        self._before = before.number if before is not None and earlier is not None else None
        whole, change = PAGE_EVENTS if name == PAGE else MORE_EVENTS
        # Even if no client is new: what cannot be encoded fails here, where failures are handled.
        self._whole = StreamEvent(whole, told)
        self._change = StreamEvent(
            change, changes(earlier.told if earlier is not None else told, told)
        )

    def event(self, known: int | None) -> StreamEvent:
        """The event for a client that was last sent this part in the picture of that number."""
        return self._change if known is not None and known == self._before else self._whole


class Picture:
    """What was seen at one moment, in its parts."""

    def __init__(
        self, number: int, told: Mapping[str, Any], at: float, before: Picture | None = None
    ) -> None:
        self.number, self.at = number, at
        self._parts = {name: Part(name, one, before) for name, one in told.items()}

    def part(self, name: str) -> Part | None:
        """None if nobody wanted it when it was looked for."""
        return self._parts.get(name)


class Live:
    """The streams of one server. Its streams belong to the server's event loop."""

    def __init__(
        self,
        look: Callable[[frozenset[str]], Mapping[str, Any]],
        choice: Callable[[str], str | None] = lambda _query: None,
        *,
        seconds: float = LOOK_SECONDS,
    ) -> None:
        """``look`` is asked for parts by their names: ``PAGE``, which is what the page shows now,
        and what clients have chosen besides, each in dicts, lists and records; it may block.
        ``choice`` is what a query chooses, and raises ValueError if there is no such thing."""
        self._look, self._choice, self._seconds = look, choice, seconds
        self._streams = 0
        self._chosen: Counter[str] = Counter()
        self._names = frozenset((PAGE,))
        """What is looked for; replaced, never changed, as the thread reads it."""
        self._picture: Picture | None = None
        self._news = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wanted, self._closing = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="page-live", daemon=True)

    def answer(self, request: Request) -> Response:
        """A stream, as long as there are not too many."""
        if self._streams >= MOST_STREAMS:
            return Response(body=b"too many streams; ask for /api/v1/page\n", status=503)
        try:
            chosen = self._choice(request.query)
        except ValueError as error:
            return Response(body=f"{error}\n".encode(), status=400)
        packed = accepts_gzip(request.headers.get("accept-encoding", ""))
        return Response(
            body=b"",
            content_type=EVENT_STREAM,
            headers=PACKED_HEADERS if packed else (),
            stream=lambda: self._stream(chosen, packed=packed),
        )

    def close(self) -> None:
        """Stop looking. The streams end with their server."""
        self._closing.set()
        self._wanted.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    async def _stream(self, chosen: str | None, *, packed: bool) -> AsyncGenerator[bytes, None]:
        if self._streams >= MOST_STREAMS:
            return  # others were faster
        self._streams += 1
        self._count(chosen, 1)
        try:
            self._begin()
            if packed:
                yield _GZIP_HEAD
            known: dict[str, int] = {}
            picture = self._fresh() or await self._next()
            while picture is not None:
                yield b"".join(_events(picture, chosen, known, packed=packed))
                picture = self._picture if self._picture is not picture else await self._next()
        finally:
            self._count(chosen, -1)
            self._streams -= 1
            if not self._streams:
                self._wanted.clear()

    def _count(self, chosen: str | None, by: int) -> None:
        if chosen is not None:
            self._chosen[chosen] += by
            self._names = frozenset((PAGE, *+self._chosen))

    def _begin(self) -> None:
        if self._closing.is_set():
            return
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._thread.start()
        self._wanted.set()

    def _fresh(self) -> Picture | None:
        picture = self._picture
        return picture if picture and time.monotonic() - picture.at < FRESH_SECONDS else None

    async def _next(self) -> Picture | None:
        """What the next look finds; None if it fails or takes too long."""
        try:
            await asyncio.wait_for(self._news.wait(), SILENT_SECONDS)
        except (asyncio.TimeoutError, TimeoutError):
            return None
        return self._picture

    def _run(self) -> None:
        numbers, failing = count(), False
        picture: Picture | None = None
        while self._wanted.wait() and not self._closing.is_set():
            begun = time.monotonic()
            try:
                picture = Picture(next(numbers), self._look(self._names), begun, picture)
                failing = False
            except Exception:  # the page asks then, and is told what is wrong
                if not failing:
                    log.exception("there is nothing to show")
                picture, failing = None, True
            self._publish(picture)
            took = time.monotonic() - begun
            self._closing.wait(max(self._seconds - took, took))

    def _publish(self, picture: Picture | None) -> None:
        assert self._loop is not None  # the thread is begun with it
        try:
            self._loop.call_soon_threadsafe(self._set_picture, picture)
        except RuntimeError:
            pass  # the server has ended meanwhile

    def _set_picture(self, picture: Picture | None) -> None:
        self._picture = picture
        self._news.set()
        self._news = asyncio.Event()


def _events(
    picture: Picture, chosen: str | None, known: dict[str, int], *, packed: bool
) -> Iterator[bytes]:
    """What a client is sent of a picture. ``known`` are the pictures in which it was last sent each
    part."""
    for name in (PAGE,) if chosen is None else (chosen, PAGE):
        if (part := picture.part(name)) is not None:
            event = part.event(known.get(name))
            known[name] = picture.number
            yield event.packed if packed else event.plain
