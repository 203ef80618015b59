"""A coordinator's page that says what a test wants, and proves itself as the real one does."""

from __future__ import annotations

from typing import Any

import msgspec

from ray_sentinel.http.access import link_of, new_secret
from ray_sentinel.http.address import listen
from ray_sentinel.http.server import Handler, Request, Response, Server
from ray_sentinel.model.status import JobStatus, RankStatus
from ray_sentinel.watched_page import WatchedPage
from ray_sentinel.web.gate import PageGate


class Page:
    """Answers each of the API's paths with ``answer``, or with what that returns."""

    def __init__(self) -> None:
        self.answer: Any = []
        self.secret = new_secret()
        listening = listen("127.0.0.1", 0)
        self.address = f"127.0.0.1:{listening.getsockname()[1]}"
        self.url = f"http://{self.address}"
        self.link = link_of(self.url, self.secret)
        paths = ("/api/v1/incidents", "/api/v1/ranks", "/api/v1/status")
        self._server = Server(
            listening,
            {**dict.fromkeys(paths, self._answer), **self.more_routes()},
            guard=PageGate(self.secret, self.address),
        )
        self._server.start()

    def more_routes(self) -> dict[str, Handler]:
        """What it serves besides."""
        return {}

    def watched(self) -> WatchedPage:
        """As a run asks it that was given its link."""
        return WatchedPage(self.link)

    def _answer(self, _request: Request) -> Response:
        answer = self.answer() if callable(self.answer) else self.answer
        return Response(body=msgspec.json.encode(answer), content_type="application/json")

    def close(self) -> None:
        """Answer no more."""
        self._server.close()


def a_job(name: str, *ranks: RankStatus, ended: bool = False) -> dict[str, Any]:
    """A job as ``/api/v1/ranks`` tells of it."""
    status = JobStatus(
        job=name,
        attempt=0,
        step=None,
        phase="",
        step_age_seconds=None,
        ranks=ranks or (a_rank(0),),
        ended=ended,
    )
    return dict(msgspec.to_builtins(status))


def a_rank(number: int, state: str = "running", **more: Any) -> RankStatus:
    """One of its ranks."""
    return RankStatus(rank=number, host="n2", pid=7, step=None, state=state, **more)
