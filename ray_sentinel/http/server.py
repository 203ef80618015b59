"""A small HTTP server for answers that are ready: many scrapers, slow ones and hostile ones.

One thread with an event loop of its own serves all connections, so none can hold up another, and
each is bounded: in the bytes of its request, in the time it takes to send it or to take the answer,
and in their number. Only GET and HEAD are answered, and no request may have a body.

An answer may be a stream: its pieces are sent when there is something new, the client must take
each within the time that an answer has, and the connection ends with the stream.

With ``tls`` all of it goes through TLS: a handshake is bounded like a request, and a client that
speaks plain HTTP is told so. ``guard`` is asked before anything is revealed, including which paths
exist.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from concurrent.futures import Future
from http import HTTPStatus

import msgspec
from msgspec import structs

log = logging.getLogger(__name__)

MAX_REQUEST = 16 << 10
"""Most bytes of a request's head; a longer one is refused with status 431."""
MAX_CONNECTIONS = 256
"""Most connections at one time; for a further one, the one is cut that has waited longest for a
whole request."""
REQUEST_SECONDS = 10.0
"""Seconds that a request may take to arrive once it has begun, and that a client may take to accept
the answer."""
HANDSHAKE_SECONDS = 10.0
"""Seconds that a TLS handshake may take, counted from the connection."""
IDLE_SECONDS = 180.0
"""Seconds that a connection may be idle: Prometheus keeps its own from one scrape to the next."""
_TLS_HANDSHAKE = b"\x16"
"""First byte of a TLS connection (RFC 8446, 5.1)."""
_STREAM_BUFFER = 256 << 10
"""Bytes that the kernel keeps for a client that does not read its stream; otherwise it would keep
megabytes."""
_FULL_SECONDS = 1.0
"""Seconds until connections are accepted again if this process may open no more files."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked; header names are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    query: str = ""
    """What follows the ``?``, as it was sent."""


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """What is answered."""

    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    stream: Callable[[], AsyncGenerator[bytes, None]] | None = None
    """Makes the pieces that are sent instead of the body, on the server's event loop; it is closed
    when the client has gone or the server ends."""


Handler = Callable[[Request], Response]
Answer = Callable[[Request], Awaitable[Response]]
Guard = Callable[[Request, Answer], Awaitable[Response]]
"""Called with each readable request and a function that would answer it; what the guard returns is
sent."""
Headers = tuple[tuple[str, str], ...]


class BadRequestError(Exception):
    """The request cannot be answered; the connection is closed."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(status, text)
        self.status, self.text = status, text


class Server:
    """Serves ``routes`` (path → handler) on a socket that listens already. A path that ends with a
    slash takes all below it that have no route of their own. Handlers run on the server's thread:
    they must return at once.

    ``tls`` is asked for each connection, so that a renewed certificate is used at once; it raises
    OSError if there is none, and that connection is cut. ``headers`` are added to each answer.
    """

    def __init__(
        self,
        listening: socket.socket,
        routes: Mapping[str, Handler],
        *,
        tls: Callable[[], ssl.SSLContext] | None = None,
        guard: Guard | None = None,
        headers: Callable[[], Headers] | None = None,
    ) -> None:
        self._socket, self._routes = listening, routes
        self._tls, self._guard, self._headers = tls, guard, headers
        self._connections: set[asyncio.Task[None]] = set()
        self._idle: dict[asyncio.Task[None], None] = {}
        """Connections that wait for a whole request, longest first."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._done: asyncio.Event | None = None
        self._started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="http-server", daemon=True)

    def start(self) -> None:
        """Begin to serve. Raises the system's error if that fails."""
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
        loop = asyncio.get_running_loop()
        try:
            self._socket.setblocking(False)
            loop.add_reader(self._socket, self._accept)
        except OSError as error:
            self._started.set_exception(error)
            return
        self._started.set_result(None)
        await self._done.wait()
        loop.remove_reader(self._socket)
        while self._connections:
            for task in self._connections:
                task.cancel()
            # Before Python 3.12 a wait_for that just ended keeps the cancellation to itself.
            await asyncio.wait(self._connections, timeout=0.05)
        await asyncio.sleep(0)  # transports close their sockets in the loop's next round

    def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            connection, _ = self._socket.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                # It would be reported again at once, and take all of a core.
                loop.remove_reader(self._socket)
                loop.call_later(_FULL_SECONDS, self._accept_again)
            return  # else the client has gone already
        connection.setblocking(False)
        if len(self._connections) >= MAX_CONNECTIONS:
            self._make_room()
        task = loop.create_task(self._connected(connection))
        self._connections.add(task)
        self._idle[task] = None
        # Also of one that is cancelled before its first step.
        task.add_done_callback(lambda _task: connection.close())
        task.add_done_callback(self._forget)

    def _accept_again(self) -> None:
        if self._done is not None and not self._done.is_set():
            asyncio.get_running_loop().add_reader(self._socket, self._accept)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._connections.discard(task)
        self._idle.pop(task, None)

    async def _connected(self, connection: socket.socket) -> None:
        task = asyncio.current_task()
        assert task is not None  # asyncio runs each connection in a task
        writer: asyncio.StreamWriter | None = None
        try:
            tls = self._tls() if self._tls is not None else None
            unencrypted = tls is not None and await _first_byte(connection) != _TLS_HANDSHAKE
            reader, writer = await _open(connection, None if unencrypted else tls)
            # A client that does not read is noticed at once: nothing may stay in the buffer. With
            # TLS, asyncio takes no 0: it pauses a writer whose empty buffer is not below the limit.
            writer.transport.set_write_buffer_limits(high=0 if tls is None or unencrypted else 1)
            await self._talk(reader, writer, task, unencrypted=unencrypted)
            if tls is not None and not unencrypted:
                self._idle[task] = None
                await _close_tls(writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError, TimeoutError):
            pass  # the client has gone, or is too slow: its connection is cut, nothing else
        except asyncio.CancelledError:
            pass  # cut by us, to make room or to end; nobody waits for this task
        finally:
            if writer is not None:
                writer.transport.abort()

    def _make_room(self) -> None:
        """Cut the connection that has waited longest for a whole request, or any: a new one may be
        the scraper's."""
        oldest = next(iter(self._idle or self._connections))
        self._forget(oldest)
        oldest.cancel()

    async def _talk(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        task: asyncio.Task[None],
        *,
        unencrypted: bool,
    ) -> None:
        keep, patience = True, REQUEST_SECONDS
        while keep:
            try:
                self._idle[task] = None
                try:
                    first = await asyncio.wait_for(reader.read(1), patience)
                    if not first:
                        return
                    # Who sends a request byte by byte is as much in the way as who sends none.
                    head = first + await _rest(reader)
                finally:
                    self._idle.pop(task, None)
                request, keep = parse(head)
                if unencrypted:
                    raise BadRequestError(400, "this port speaks HTTPS only: use https://")
                response, bodyless = await self._guarded(request), request.method == "HEAD"
            except BadRequestError as error:
                body = (error.text + "\n").encode("utf-8", "backslashreplace")
                response, keep, bodyless = Response(body=body, status=error.status), False, False
            if self._headers is not None:
                response = structs.replace(response, headers=(*response.headers, *self._headers()))
            if response.stream is not None and not bodyless:
                await _send_stream(writer, response, response.stream)
                return
            await _send(writer, response, keep=keep, bodyless=bodyless)
            patience = IDLE_SECONDS

    async def _guarded(self, request: Request) -> Response:
        if self._guard is None:
            return await self._answer(request)
        try:
            return await self._guard(request, self._answer)
        except Exception:  # the guard is its owner's code: where it fails, nobody gets in
            log.exception("a request cannot be guarded")
            return Response(body=b"it failed; the log of this process says why\n", status=500)

    async def _answer(self, request: Request) -> Response:
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


async def _first_byte(connection: socket.socket) -> bytes:
    """The first bytes of a connection, which remain to be read; empty if it was closed.

    Raises TimeoutError if nothing comes.
    """
    loop = asyncio.get_running_loop()
    arrived = asyncio.Event()
    loop.add_reader(connection, arrived.set)
    try:
        await asyncio.wait_for(arrived.wait(), HANDSHAKE_SECONDS)
    finally:
        loop.remove_reader(connection)
    return connection.recv(1, socket.MSG_PEEK)


async def _open(
    connection: socket.socket, tls: ssl.SSLContext | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """The streams of a connection, after its handshake. Raises OSError if that fails."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=MAX_REQUEST)
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await loop.connect_accepted_socket(
        lambda: protocol,
        connection,
        ssl=tls,
        ssl_handshake_timeout=HANDSHAKE_SECONDS if tls is not None else None,
    )
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def _close_tls(writer: asyncio.StreamWriter) -> None:
    """Hand over what is left in the buffer, and announce the end of the data (RFC 8446, 6.1)."""
    writer.close()
    await asyncio.wait_for(writer.wait_closed(), REQUEST_SECONDS)


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

    Raises BadRequestError for anything that is not a request, or has a body.
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
    path, _, query = parts[1].partition("?")
    if path.startswith("http://"):
        path = "/" + path[7:].partition("/")[2]
    return Request(method=parts[0], path=path, headers=headers, query=query), keep


async def _send(
    writer: asyncio.StreamWriter, response: Response, *, keep: bool, bodyless: bool = False
) -> None:
    head = _head(response, f"Content-Length: {len(response.body)}", keep=keep)
    # In one piece: two small ones would wait for each other's acknowledgement (Nagle), 40 ms.
    await _send_in_time(writer, head if bodyless else head + response.body)


async def _send_stream(
    writer: asyncio.StreamWriter,
    response: Response,
    stream: Callable[[], AsyncGenerator[bytes, None]],
) -> None:
    """Send a stream, without a length: it ends with its connection (RFC 9112, 6.3)."""
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _STREAM_BUFFER)
    async with contextlib.aclosing(stream()) as pieces:
        await _send_in_time(writer, _head(response, keep=False))
        async for piece in pieces:
            await _send_in_time(writer, piece)


def _head(response: Response, *lines: str, keep: bool) -> bytes:
    whole = [
        f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}",
        f"Content-Type: {response.content_type}",
        *lines,
        *(f"{name}: {value}" for name, value in response.headers),
        "Connection: " + ("keep-alive" if keep else "close"),
        "\r\n",
    ]
    return "\r\n".join(whole).encode("latin-1")


async def _send_in_time(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Send it. Raises TimeoutError if the client does not take it, OSError if it has gone."""
    writer.write(data)
    await asyncio.wait_for(writer.drain(), REQUEST_SECONDS)
