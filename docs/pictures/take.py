"""Takes the pictures of the README and the docs: ``make pictures``.

The page is served as it is, by the tests' own job: a training of eight ranks, one of which is
stopped, beside reinforcement learning in which a rollout stands still. Chromium draws it. Textual
draws the terminal.
"""

from __future__ import annotations

import re
import sys
import tempfile
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from ray_sentinel.web.page import Page  # noqa: E402
from ray_sentinel.web.routes import PageSource  # noqa: E402
from tests.support.browser import Browser  # noqa: E402
from tests.support.page_data import incident, incident_of_actors, status  # noqa: E402
from tests.support.page_gpus import gpus, ports  # noqa: E402
from tests.support.page_lanes import report as lanes  # noqa: E402
from tests.support.page_pulse import report  # noqa: E402
from tests.support.page_stacks import with_stacks  # noqa: E402
from tests.support.top_screen import TopScreen, drawn, served_page  # noqa: E402

WIDTH, HEIGHT = 1200, 760
VIEWS = {
    "page": ("", "document.querySelectorAll('#gpus *').length > 50"),
    "incident": ("#incident/0001", "document.querySelector('#detail h2') !== null"),
}
"""Name → place on the page, and what is true once it is drawn."""
FONT = re.compile(r"@font-face \{[^}]*\}\s*")
"""Would be fetched from elsewhere; any monospace font does."""
STILL = "new Promise((done) => setTimeout(done, 1000))"


def take_page() -> None:
    """``page-light.png``, ``incident-dark.png`` ...: the first screen of each view."""
    told = (with_stacks(incident()), incident_of_actors())
    source = PageSource(status, lambda: told, pulse=report, gpus=gpus, lanes=lanes, ports=ports)
    page = Page(source, port=0)
    try:
        with tempfile.TemporaryDirectory() as folder, Browser(Path(folder)) as browser:
            browser.resize(WIDTH, HEIGHT)
            for scheme in ("light", "dark"):
                browser.prefer(scheme)
                for name, (place, drawn_now) in VIEWS.items():
                    browser.open("about:blank")
                    browser.open(page.link + place)
                    browser.until(drawn_now, f"{name} is drawn")
                    browser.run(STILL)
                    (HERE / f"{name}-{scheme}.png").write_bytes(browser.picture())
    finally:
        page.close()


def take_top() -> None:
    """``top.svg``: the terminal, small."""

    async def see(screen: TopScreen) -> str:
        await screen.text()
        return FONT.sub("", screen.app.export_screenshot(title="ray-sentinel top"))

    told = (incident_of_actors(), incident())
    with served_page(partial(status, ranks=64), lambda: told) as (found, _):
        (HERE / "top.svg").write_text(drawn(found, see, size=(80, 16)), encoding="utf-8")


if __name__ == "__main__":
    take_page()
    take_top()
