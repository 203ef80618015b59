"""A small HTTP server for answers that are ready: many scrapers, slow ones and hostile ones.

One thread with an event loop of its own serves all connections, so none can hold up another, and
each is bounded: in the bytes of its request, in the time it takes to send it or to take the answer,
and in their number. Only GET and HEAD are answered, and no request may have a body.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from http import HTTPStatus

import msgspec

log = logging.getLogger(__name__)

MAX_REQUEST = 16 << 10
"""Bytes of a request's head."""
MAX_CONNECTIONS = 256
"""At one time; for the next, room is made."""
REQUEST_SECONDS = 10.0
"""For a request to arrive once it has begun, and for its answer to be taken."""
IDLE_SECONDS = 180.0
"""Prometheus keeps its connection from one scrape to the next."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked; header names are in lower case."""

    method: str
    path: str
    headers: dict[str, str]


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """What is answered."""

    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


Handler = Callable[[Request], Response]


class BadRequestError(Exception):
    """The client sent what cannot be answered; the connection is closed."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(status, text)
        self.status, self.text = status, text


class Server:
    """Serves ``routes`` (path → handler) on a socket that listens already. A path that ends with a
    slash takes all below it that have no route of their own. Handlers run on the server's thread:
    they must return at once."""

    def __init__(self, listening: socket.socket, routes: Mapping[str, Handler]) -> None:
        self._socket, self._routes = listening, routes
        self._connections: set[asyncio.Task[None]] = set()
        self._idle: dict[asyncio.Task[None], None] = {}
        """Connections that wait for a request, longest first."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._done: asyncio.Event | None = None
        self._started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="http-server", daemon=True)

    def start(self) -> None:
        """Begin to serve. Raises what the system raises where it cannot."""
        self._thread.start()
        self._started.result(timeout=10)

    def close(self) -> None:
        """Stop serving; connections are cut."""
        if self._loop is not None and self._done is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._done.set)
            self._thread.join(timeout=5)
        self._socket.close()

    def _run(self) -> None:
        with contextlib.closing(asyncio.new_event_loop()) as loop:
            self._loop = loop
            loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        self._done = asyncio.Event()
        try:
            server = await asyncio.start_server(
                self._connected, sock=self._socket, limit=MAX_REQUEST, backlog=128
            )
        except OSError as error:
            self._started.set_exception(error)
            return
        self._started.set_result(None)
        await self._done.wait()
        # No more are accepted, and those that just were get to their first step: a server that is
        # closed in between would forget them, open.
        asyncio.get_running_loop().remove_reader(self._socket)
        await asyncio.sleep(0.05)
        server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # asyncio runs each connection in a task
        if len(self._connections) >= MAX_CONNECTIONS:
            self._make_room()
        self._connections.add(task)
        # A client that does not read is noticed at once: nothing may stay in the buffer.
        writer.transport.set_write_buffer_limits(high=0)
        try:
            await self._talk(reader, writer, task)
        except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError, TimeoutError):
            pass  # the client has gone, or is too slow: its connection is cut, nothing else
        except asyncio.CancelledError:
            pass  # cut by us, to make room or to end; nobody waits for this task
        finally:
            self._connections.discard(task)
            self._idle.pop(task, None)
            writer.transport.abort()

    def _make_room(self) -> None:
        """Cut the connection that has idled longest, or any: a new one may be the scraper's."""
        oldest = next(iter(self._idle or self._connections))
        self._idle.pop(oldest, None)
        self._connections.discard(oldest)
        oldest.cancel()

    async def _talk(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        task: asyncio.Task[None],
    ) -> None:
        keep, patience = True, REQUEST_SECONDS
        while keep:
            try:
                self._idle[task] = None
                first = await asyncio.wait_for(reader.read(1), patience)
                self._idle.pop(task, None)
                if not first:
                    return
                request, keep = parse(first + await _rest(reader))
                response, bodyless = self._answer(request), request.method == "HEAD"
            except BadRequestError as error:
                body = (error.text + "\n").encode("utf-8", "backslashreplace")
                response, keep, bodyless = Response(body=body, status=error.status), False, False
            await _send(writer, response, keep=keep, bodyless=bodyless)
            patience = IDLE_SECONDS

    def _answer(self, request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            return Response(
                body=b"only GET and HEAD\n", status=405, headers=(("Allow", "GET, HEAD"),)
            )
        handler = self._handler(request.path)
        if handler is None:
            known = "".join(f"{path}\n" for path in sorted(self._routes))
            return Response(body=f"not here; there are\n{known}".encode(), status=404)
        try:
            return handler(request)
        except Exception:  # a handler is anybody's code: its answer fails, the server goes on
            log.exception("%s failed", request.path)
            return Response(body=b"it failed; the log of this process says why\n", status=500)

    def _handler(self, path: str) -> Handler | None:
        found = self._routes.get(path)
        if found is None and path != "/":
            above = path[: path.rindex("/") + 1] if "/" in path else ""
            found = self._routes.get(above) if above != "/" else None
        return found


async def _rest(reader: asyncio.StreamReader) -> bytes:
    """The bytes of a request's head after the first.

    Raises BadRequestError for one that is too long, IncompleteReadError and TimeoutError.
    """
    try:
        return await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), REQUEST_SECONDS)
    except asyncio.LimitOverrunError:
        raise BadRequestError(431, f"a request may have {MAX_REQUEST} bytes") from None


def parse(head: bytes) -> tuple[Request, bool]:
    """A request from its head, and whether the connection is kept open (RFC 9112).

    Raises BadRequestError for what is no request, or has a body.
    """
    lines = head.decode("latin-1").lstrip("\r\n").rstrip("\r\n").split("\r\n")
    parts = lines[0].split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise BadRequestError(400, "this is no HTTP/1 request")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise BadRequestError(400, "a header cannot be read")
        headers[name.lower()] = value.strip()
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        raise BadRequestError(413, "a request here has no body")
    wish = headers.get("connection", "").lower()
    keep = wish == "keep-alive" if parts[2] == "HTTP/1.0" else wish != "close"
    path = parts[1].split("?", 1)[0]
    if path.startswith("http://"):
        path = "/" + path[7:].partition("/")[2]
    return Request(method=parts[0], path=path, headers=headers), keep


async def _send(
    writer: asyncio.StreamWriter, response: Response, *, keep: bool, bodyless: bool = False
) -> None:
    lines = [
        f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}",
        f"Content-Type: {response.content_type}",
        f"Content-Length: {len(response.body)}",
        *(f"{name}: {value}" for name, value in response.headers),
        "Connection: " + ("keep-alive" if keep else "close"),
        "\r\n",
    ]
    # In one piece: two small ones would wait for each other's acknowledgement (Nagle), 40 ms.
    head = "\r\n".join(lines).encode("latin-1")
    writer.write(head if bodyless else head + response.body)
    await asyncio.wait_for(writer.drain(), REQUEST_SECONDS)
