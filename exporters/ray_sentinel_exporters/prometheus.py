"""Serves :9400 to Prometheus: bytes that were made after a collection, never during a scrape.

``/metrics`` has all current values, in the text format or in OpenMetrics, as the scraper asks;
``/steps`` has the samples that carry a time of their own, apart, because one that is too old fails
the whole scrape that it comes with; ``/healthz`` says whether collection goes on. The agent adds
its own.

With ``web_config_file`` all of it, ``/healthz`` and ``/sd`` too, is behind TLS and authentication,
configured as in Prometheus' own exporters (``http.web_config``).
"""

from __future__ import annotations

import logging
import threading
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import msgspec

from ray_sentinel.api import Exporter, Family
from ray_sentinel.api import Options as BaseOptions
from ray_sentinel.clock import Clock, SystemClock
from ray_sentinel.errors import ConfigError
from ray_sentinel.http.address import check_private, listen
from ray_sentinel.http.negotiation import accepts_gzip, wants_openmetrics
from ray_sentinel.http.server import Handler, Request, Response, Server
from ray_sentinel.model.exposition import OPENMETRICS_TYPE, TEXT_TYPE, Renderer

if TYPE_CHECKING:  # 12 ms, where no password is asked for
    from ray_sentinel.http.web_access import WebAccess

log = logging.getLogger(__name__)

SCRAPE_HEADER = "x-prometheus-scrape-timeout-seconds"
GZIP_LEVEL = 1
"""Compression level of gzip: text like this shrinks twelvefold already at the lowest level."""
_WANTED_FOR = 150
"""Publications for which a form that nobody asks for is still made; after that, it is made only
when asked for."""


class _Ready(msgspec.Struct, frozen=True):
    """What a scrape is answered with; None if not made yet."""

    families: tuple[Family, ...] = ()
    plain: bytes | None = None
    packed: bytes | None = None


class CachedExposition:
    """One exposition in one format, plain and compressed: made after each publication while it is
    asked for, else when it is asked for again. A scrape during a publication gets the one before.
    """

    def __init__(self, renderer: Renderer, content_type: str) -> None:
        self._renderer, self._content_type = renderer, content_type
        self._making = threading.Lock()
        self._ready = _Ready()
        self._plain_wanted = self._packed_wanted = 0

    def publish(self, families: tuple[Family, ...]) -> None:
        """Take the families to serve from now on."""
        self._plain_wanted -= 1
        self._packed_wanted -= 1
        with self._making:
            self._ready = self._made(
                _Ready(families), plain=self._plain_wanted > 0, packed=self._packed_wanted > 0
            )

    def response(self, *, packed: bool) -> Response:
        """The answer to a scrape."""
        if packed:
            self._packed_wanted = _WANTED_FOR
        else:
            self._plain_wanted = _WANTED_FOR
        ready = self._ready
        if (ready.packed if packed else ready.plain) is None:
            with self._making:
                self._ready = ready = self._made(self._ready, plain=not packed, packed=packed)
        headers = [("Vary", "Accept, Accept-Encoding")]
        if packed:
            headers.append(("Content-Encoding", "gzip"))
        body = ready.packed if packed else ready.plain
        return Response(body=body or b"", content_type=self._content_type, headers=tuple(headers))

    def _made(self, ready: _Ready, *, plain: bool, packed: bool) -> _Ready:
        text, zipped = ready.plain, ready.packed
        if text is None and (plain or packed):
            text = self._renderer.render(ready.families)
        if zipped is None and packed:
            zipped = _gzip(text or b"")
        return _Ready(ready.families, text, zipped)


class PrometheusExporter(Exporter):
    """The exporter of every agent."""

    name: ClassVar[str] = "prometheus"

    class Options(BaseOptions, frozen=True):
        """``[exporters.prometheus]``; the agent gives port and public from ``[agent]``."""

        port: int = 9400
        """Port to listen on; 0 takes any that is free."""
        public: bool = False
        """Whether to listen on a public address too."""
        web_config_file: str = ""
        """Absolute path of the file with TLS and authentication; "" for neither."""
        stale_seconds: float = 120.0
        """Seconds without a publication after which nothing is served: old values would be a
        lie."""

    def __init__(
        self, host: str, address: str, options: Options | None = None, clock: Clock | None = None
    ) -> None:
        super().__init__(host, address, options or PrometheusExporter.Options())
        self._clock = clock or SystemClock()
        self._published: float | None = None
        self._metrics = {
            False: CachedExposition(Renderer(host), TEXT_TYPE),
            True: CachedExposition(Renderer(host, openmetrics=True), OPENMETRICS_TYPE),
        }
        self._steps = {
            False: CachedExposition(Renderer(host, history=True), TEXT_TYPE),
            True: CachedExposition(
                Renderer(host, openmetrics=True, history=True), OPENMETRICS_TYPE
            ),
        }
        self._routes: dict[str, Handler] = {
            "/": self._index,
            "/metrics": lambda request: self._page(self._metrics, request),
            "/steps": self._history,
            "/healthz": self._health,
        }
        self._server: Server | None = None
        self._access: WebAccess | None = None
        self._url = ""
        self.handed_on: float | None = None
        """When a Prometheus last took the steps, on the monotonic clock."""

    @property
    def url(self) -> str:
        """``http://address:port/metrics``, or ``https``, with the port that was really taken."""
        return self._url

    @property
    def problem(self) -> str:
        """What is wrong with the web configuration now; empty if nothing is."""
        return self._access.problem if self._access is not None else ""

    def start(self) -> None:
        """Listen and serve. Raises ConfigError for a public address that was not allowed, or a web
        configuration that cannot be used, and UnreachableError if no port is free."""
        options = self.options
        ip = check_private(self.address, public=options.public)
        listening = listen(ip, options.port)
        try:
            self._access = access = _access(options.web_config_file)
        except ConfigError:
            listening.close()
            raise
        port = listening.getsockname()[1]
        if options.port and port != options.port:
            log.warning("port %d of %s is taken; metrics are on %d", options.port, ip, port)
        encrypted = access is not None and access.encrypted
        self._server = Server(
            listening,
            self._routes,
            tls=access.tls if access is not None and encrypted else None,
            guard=access.guard if access is not None else None,
            headers=access.headers if access is not None else None,
        )
        self._server.start()
        place = f"{f'[{ip}]' if ':' in ip else ip}:{port}"
        self._url = f"http{'s' if encrypted else ''}://{place}/metrics"

    def publish(self, families: Iterable[Family]) -> None:
        """Serve ``families`` from now on."""
        now = tuple(families)
        for pages in (self._metrics, self._steps):
            for page in pages.values():
                page.publish(now)
        self._published = self._clock.monotonic()

    def add_route(self, path: str, content_type: str, body: Callable[[], bytes]) -> None:
        """Serve ``path`` too. ``body`` is called on the server's thread for each request and must
        return at once."""
        self._routes[path] = lambda _request: Response(body=body(), content_type=content_type)

    def close(self) -> None:
        """Stop serving."""
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._access is not None:
            self._access.close()

    def _page(self, pages: Mapping[bool, CachedExposition], request: Request) -> Response:
        age = self._age()
        if age is None or age > self.options.stale_seconds:
            since = "yet" if age is None else f"for {age:.0f} s"
            return Response(body=f"nothing was collected {since}\n".encode(), status=503)
        page = pages[wants_openmetrics(request.headers.get("accept", ""))]
        return page.response(packed=accepts_gzip(request.headers.get("accept-encoding", "")))

    def _history(self, request: Request) -> Response:
        response = self._page(self._steps, request)
        # Every Prometheus says how long it waits; somebody who only looks does not.
        if response.status == 200 and SCRAPE_HEADER in request.headers:
            self.handed_on = self._clock.monotonic()
        return response

    def _health(self, _request: Request) -> Response:
        age = self._age()
        if age is None or age > self.options.stale_seconds:
            return Response(body=b"collection stands still\n", status=503)
        return Response(body=b"ok\n")

    def _index(self, _request: Request) -> Response:
        links = "".join(f'<li><a href="{path}">{path}</a></li>' for path in sorted(self._routes))
        page = f"<!doctype html><title>ray_sentinel</title><h1>ray_sentinel</h1><ul>{links}</ul>"
        return Response(body=page.encode(), content_type="text/html; charset=utf-8")

    def _age(self) -> float | None:
        """Seconds since the last publication."""
        return None if self._published is None else self._clock.monotonic() - self._published


def _access(file: str) -> WebAccess | None:
    """The check that lets clients in; None if everybody is let in. Raises ConfigError."""
    if not file:
        return None
    from ray_sentinel.http.web_access import WebAccess

    path = Path(file).expanduser()
    if not path.is_absolute():
        raise ConfigError(f"web_config_file: {file!r} must be an absolute path, on every node")
    return WebAccess(path)


def _gzip(data: bytes) -> bytes:
    packer = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()
