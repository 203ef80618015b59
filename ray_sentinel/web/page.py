"""The coordinator's HTTP server: on loopback, on its port or the next that is free."""

from __future__ import annotations

import logging
import time
from functools import partial

import msgspec

from ray_sentinel.errors import SentinelError
from ray_sentinel.http.access import link_of, new_secret
from ray_sentinel.http.address import listen
from ray_sentinel.http.page_file import PageEntry, PageFile, network
from ray_sentinel.http.server import Server
from ray_sentinel.web.gate import PageGate
from ray_sentinel.web.live import Live
from ray_sentinel.web.rank_levels import chosen_quantity
from ray_sentinel.web.routes import PageSource, looked, routes

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """Whose page it is, as its file says."""

    deployment: str
    secret: bytes
    job: str = ""
    cluster: str = ""
    """Address of the Ray cluster's control store, as ``HOST:PORT``."""

    @classmethod
    def alone(cls) -> Owner:
        """The owner of a page that belongs to no deployment."""
        secret = new_secret()
        return cls(deployment=secret[:8].hex(), secret=secret)


class Page:
    """Serves from its creation until ``close``. If it cannot, watching goes on: ``url`` is empty
    then, and ``notes`` say why."""

    def __init__(self, source: PageSource, port: int, owner: Owner | None = None) -> None:
        """Without ``owner`` the page belongs to no deployment."""
        self.url = ""
        self._note = ""
        self._owner = owner or Owner.alone()
        self._server: Server | None = None
        self._file: PageFile | None = None
        self._live = Live(partial(looked, source), chosen_quantity)
        try:
            listening = listen(LOOPBACK, port)
            taken = listening.getsockname()[1]
            gate = PageGate(self._owner.secret, f"{LOOPBACK}:{taken}")
            self._server = Server(listening, routes(source, self._live), guard=gate)
            self._server.start()
        except (SentinelError, OSError) as error:
            self._server = None
            self._note = f"the coordinator's page is not served: {error}"
            log.warning("%s", self._note)
            return
        self.url = f"http://{LOOPBACK}:{taken}/"
        if port and taken != port:
            self._note = f"port {port} is taken; the coordinator's page is on {taken}"
            log.warning("%s", self._note)
        self._file = PageFile(self._entry(port))
        for problem in self._file.problems:
            log.warning("%s", problem)

    def _entry(self, wanted_port: int) -> PageEntry:
        return PageEntry(
            url=self.url,
            wanted_port=wanted_port,
            since=time.time(),
            network=network(),
            **msgspec.structs.asdict(self._owner),
        )

    @property
    def link(self) -> str:
        """The page's URL with its token: for people, not for logs. Empty if it is not served."""
        return link_of(self.url, self._owner.secret)

    @property
    def notes(self) -> tuple[str, ...]:
        """What people should know about it."""
        told = [self._note, *(self._file.problems if self._file is not None else ())]
        if self._file is not None and self._file.path is None:
            told.append(
                "no file could be made by which programs on this machine find the page: give "
                "`ray-sentinel run` its link, by --page"
            )
        return tuple(filter(None, told))

    def restore(self) -> None:
        """Make the page's file again if it was removed."""
        if self._file is not None:
            self._file.restore()

    def close(self) -> None:
        """Stop serving."""
        if self._file is not None:
            self._file.close()
        if self._server is not None:
            self._server.close()
            self._server = None
        self._live.close()
