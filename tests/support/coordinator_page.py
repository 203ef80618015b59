"""A stand-in for the coordinator's page: real HTTP on loopback, answers as the test says."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

from ray_sentinel.model.status import JobStatus, RankStatus


class Page:
    """Gives ``answer`` to whatever is asked."""

    def __init__(self) -> None:
        self.answer: Any = []
        page = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps(page.answer).encode())

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Answer no more."""
        self.server.shutdown()
        self.server.server_close()


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
