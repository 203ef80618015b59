"""The coordinator's HTTP server: on loopback, on its port or the next that is free."""

from __future__ import annotations

import logging

from ray_sentinel.errors import SentinelError
from ray_sentinel.serving.address import listen
from ray_sentinel.serving.server import Server
from ray_sentinel.web.routes import Source, routes

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"


class Page:
    """Serves from its making to ``close``. That it cannot is no reason to stop watching: ``url`` is
    empty then, and ``note`` says why."""

    def __init__(self, source: Source, port: int) -> None:
        self.url = ""
        self.note = ""
        self._server: Server | None = None
        try:
            listening = listen(LOOPBACK, port)
            taken = listening.getsockname()[1]
            self._server = Server(listening, routes(source))
            self._server.start()
        except (SentinelError, OSError) as error:
            self._server = None
            self.note = f"the coordinator's page is not served: {error}"
            log.warning("%s", self.note)
            return
        self.url = f"http://{LOOPBACK}:{taken}/"
        if port and taken != port:
            self.note = f"port {port} is taken; the coordinator's page is on {taken}"
            log.warning("%s", self.note)

    def close(self) -> None:
        """Stop serving."""
        if self._server is not None:
            self._server.close()
            self._server = None
