"""What a page of another origin can do to this one, in a real browser: link here."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator

import pytest

from ray_sentinel.model.incident import RankOutput
from ray_sentinel.model.last_hour import RankAsked
from ray_sentinel.model.status import Status
from ray_sentinel.web.page import Page
from ray_sentinel.web.routes import PageSource
from tests.support.browser import Browser
from tests.support.page_data import incident, status
from tests.support.page_gpus import gpus
from tests.support.page_lanes import report as lanes
from tests.support.page_pulse import report as pulse
from tests.support.page_rank import output, series
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

OUTPUT = "api/v1/page/output?job=llama&attempt=1&rank=3"
BLIND = """Promise.all([
  fetch('{url}', {{ mode: 'no-cors', credentials: 'include' }})
    .then((one) => one.type, () => 'failed'),
  fetch('{url}', {{ credentials: 'include' }}).then(() => 'read', () => 'failed'),
  new Promise((done) => {{
    const one = new Image();
    one.onerror = one.onload = () => done('image');
    one.src = '{url}';
  }}),
  new Promise((done) => {{
    const one = document.createElement('iframe');
    one.onload = () => done('frame');
    one.src = '{url}';
    document.body.append(one);
  }}),
  new Promise((done) => {{
    const one = new EventSource('{live}', {{ withCredentials: true }});
    one.onerror = () => {{ one.close(); done('stream'); }};
  }}),
])"""


class Handler(http.server.BaseHTTPRequestHandler):
    """An empty page."""

    def do_GET(self) -> None:  # its name is the library's
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>another</title><body><a>here</a>")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def other() -> Iterator[int]:
    """The port of another server of this machine."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


class Counted:
    """A page that counts what is asked of its source."""

    def __init__(self) -> None:
        self.looks, self.reads = 0, 0
        source = PageSource(
            self.look, lambda: (incident(),), pulse=pulse, gpus=gpus, lanes=lanes, rank=series,
            output=self.read,
        )  # fmt: skip
        self.page = Page(source, port=0)

    def look(self) -> Status:
        self.looks += 1
        return status()

    def read(self, asked: RankAsked) -> RankOutput | None:
        self.reads += 1
        return output(asked)


@pytest.fixture
def counted() -> Iterator[Counted]:
    made = Counted()
    yield made
    made.page.close()


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_another_page_asks_in_vain_and_may_link_here(
    chromium: Browser, counted: Counted, other: int, name: str
) -> None:
    chromium.renew()
    chromium.open(counted.page.link)
    chromium.until("document.title.startsWith('2 jobs')", "this browser is let in")
    answer = f"fetch('/{OUTPUT}').then((one) => one.status)"
    assert chromium.run(answer) == 200, "the page's own questions are answered"
    eventually(lambda: counted.reads == 1, "it was read")
    chromium.open(f"http://{name}:{other}/")
    chromium.until("document.title === 'another'", "the other page is there")
    eventually(lambda: _is_still(counted), "nobody looks any more")
    before = counted.looks
    blind = BLIND.format(url=counted.page.url + OUTPUT, live=counted.page.url + "api/v1/live")
    assert chromium.run(blind) == ["opaque", "failed", "image", "frame", "stream"]
    assert (counted.reads, counted.looks) == (1, before)
    chromium.run(f"document.querySelector('a').href = '{counted.page.link}'")
    chromium.run("document.querySelector('a').click()")
    if name == "localhost":  # of another site, with whose links no browser sends a cookie
        chromium.until("document.querySelector('a[href=\"/\"]') !== null", "it asks for a click")
        chromium.run("document.querySelector('a[href=\"/\"]').click()")
    chromium.until("document.title.startsWith('2 jobs')", "a link leads here")


def _is_still(counted: Counted) -> bool:
    before = counted.looks
    threading.Event().wait(1.5)
    return counted.looks == before
