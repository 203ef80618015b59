"""One rank as its view on the page asks for it: its series, and the end of its output.

What a rank wrote is read on its node when somebody asks for it, which may take seconds: the answer
is a stream of one piece, so that the server does not wait for it. It is masked and bounded there,
as what is written for an incident is (``capture.rank_output``).
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Callable

import msgspec

from ray_sentinel.http.server import Request, Response
from ray_sentinel.model.incident import RankOutput
from ray_sentinel.model.last_hour import RankAsked, RankSeries
from ray_sentinel.web.packing import JSON, json_response
from ray_sentinel.web.questions import UnknownQuestion, fields

log = logging.getLogger(__name__)

MOST_READERS = 2
"""Most outputs that are read at one time: each keeps a thread, and a node's files, busy."""
MOST_DIGITS = 9
SHOWN_BYTES = 64 << 10
"""Most bytes that are shown of the output's end."""

_BUSY: dict[str, object] = {"error": "the output of others is being read; ask again"}
_GONE: dict[str, object] = {"error": "there is no such rank any more"}


def asked(query: str) -> RankAsked:
    """The rank of ``job=J&attempt=A&rank=R&place=HOST+PID``, of which the last may be left out.
    Raises ``UnknownQuestion``."""
    given = fields(query)
    numbers = [given.get(name, "") for name in ("attempt", "rank")]
    if not given.get("job") or not all(
        text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS for text in numbers
    ):
        raise UnknownQuestion("?job=JOB&attempt=NUMBER&rank=NUMBER say which rank is meant")
    attempt, rank = map(int, numbers)
    return RankAsked(job=given["job"], attempt=attempt, rank=rank, place=given.get("place", ""))


def series(ask: Callable[[RankAsked], RankSeries | None], request: Request) -> Response:
    """Its ``RankSeries``; null where there is no such rank."""
    try:
        return json_response(ask(asked(request.query)))
    except UnknownQuestion as error:
        return json_response({"error": str(error)}, 400)


class OutputReader:
    """Answers what ranks wrote last. Used on the server's event loop only."""

    def __init__(self, read: Callable[[RankAsked], RankOutput | None]) -> None:
        """``read`` may block for seconds."""
        self._read = read
        self._readers = 0
        self._counting = threading.Lock()

    def answer(self, request: Request) -> Response:
        """``{"text", "missing", "sources", "shared"}``, or an error, once it is there."""
        try:
            rank = asked(request.query)
        except UnknownQuestion as error:
            return json_response({"error": str(error)}, 400)
        if self._readers >= MOST_READERS:
            return json_response(_BUSY, 503)
        return Response(body=b"", content_type=JSON, stream=lambda: self._stream(rank))

    async def _stream(self, rank: RankAsked) -> AsyncGenerator[bytes, None]:
        if self._readers >= MOST_READERS:
            yield msgspec.json.encode(_BUSY)  # others were faster
            return
        with self._counting:
            self._readers += 1
        yield msgspec.json.encode(await asyncio.to_thread(self._read_once, rank))

    def _read_once(self, rank: RankAsked) -> dict[str, object]:
        """Its thread goes on reading even if the client's connection is cut: it counts until it
        ends."""
        try:
            return self._found(rank)
        finally:
            with self._counting:
                self._readers -= 1

    def _found(self, rank: RankAsked) -> dict[str, object]:
        try:
            output = self._read(rank)
        except Exception:  # another part's failure: it is reported, and the page goes on
            log.exception("the output of rank %d cannot be read", rank.rank)
            return {"error": "it cannot be read; the coordinator's log says why"}
        if output is None:
            return _GONE
        return {
            "text": output.data[-SHOWN_BYTES:].decode("utf-8", "replace"),
            "missing": output.log.missing,
            "sources": output.log.sources,
            "shared": output.log.shared,
            "ended": output.log.ended,
        }
