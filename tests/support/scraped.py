"""What tests of a real Prometheus share: an agent to be scraped, waiting, and asking."""

from __future__ import annotations

import http.server
import json
import threading
import urllib.parse
import urllib.request
from collections.abc import Callable
from typing import Any

from tests.support.waiting import eventually

SECONDS = 90.0


class Agent(http.server.ThreadingHTTPServer):
    """Serves what it is told to, as an agent would."""

    def __init__(self) -> None:
        self.pages = {"/metrics": 'hw_load1{host="node1"} 0.5\n', "/steps": "", "/sd": "[]"}
        agent = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = agent.pages[self.path].encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.server_port}"


def until(look: Callable[[], Any], what: str, step: Callable[[], None] = lambda: None) -> Any:
    return eventually(lambda: look() or step(), what, SECONDS)


def values(url: str, query: str) -> list[tuple[float, float]]:
    """All samples that a query over a range gives."""
    path = f"{url}/api/v1/query?" + urllib.parse.urlencode({"query": query})
    with urllib.request.urlopen(path, timeout=10) as answer:
        result = json.load(answer)["data"]["result"]
    return [(float(t), float(v)) for series in result for t, v in series["values"]]
