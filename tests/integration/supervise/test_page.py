"""Which of the coordinator's incidents concern the attempt that runs."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from ray_sentinel.guardian import PATIENCE, look_at_page

pytestmark = pytest.mark.integration

SINCE = 1000.0


class Page:
    """Serves incidents."""

    def __init__(self) -> None:
        self.incidents: Any = []
        page = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps(page.incidents).encode())

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def page() -> Iterator[Page]:
    made = Page()
    yield made
    made.server.shutdown()
    made.server.server_close()


def incident(**more: Any) -> dict[str, Any]:
    base = {"id": "1", "job": "job", "kind": "gil-held", "state": "confirmed", "summary": "rank 3"}
    return {**base, "suspected_at": SINCE + 1, "confirmed_at": SINCE + 2, "bundle": "", **more}


def test_a_confirmed_hang_and_its_evidence(page: Page) -> None:
    page.incidents = [incident()]
    seen = look_at_page(page.url, "job", SINCE)
    assert (seen.hang, seen.bundle) == ("rank 3 (incident 1)", "")
    page.incidents = [incident(state="captured", bundle="/b")]
    assert look_at_page(page.url, "job", SINCE).bundle == "/b"


@pytest.mark.parametrize(
    "more",
    [
        {"job": "another"},
        {"state": "suspected"},
        {"state": "resolved"},
        {"state": "dismissed"},
        {"kind": "slow"},
        {"kind": "stall"},
        {"suspected_at": SINCE - 1},
    ],
)
def test_what_is_no_reason_to_restart(page: Page, more: dict[str, Any]) -> None:
    page.incidents = [incident(**more)]
    assert look_at_page(page.url, "job", SINCE).hang == ""


def test_a_launcher_may_end_by_itself_after_a_rank_died(page: Page) -> None:
    page.incidents = [incident(kind="rank-dead")]
    confirmed = SINCE + 2
    assert look_at_page(page.url, "job", SINCE, confirmed + PATIENCE - 1).hang == ""
    assert look_at_page(page.url, "job", SINCE, confirmed + PATIENCE + 1).hang != ""


@pytest.mark.parametrize("answer", ["", {}, [], None, {"error": "x"}])
def test_answers_that_say_nothing(page: Page, answer: Any) -> None:
    page.incidents = answer
    assert look_at_page(page.url, "job", SINCE).hang == ""


def test_nobody_answers() -> None:
    assert look_at_page("http://127.0.0.1:9", "job", SINCE).hang == ""
