"""The page by axe-core's rules: nothing serious, in any of its views, light and dark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ray_sentinel.web.page import Page
from ray_sentinel.web.routes import PageSource
from tests.support.browser import Browser
from tests.support.page_data import incident, incident_of_actors, status
from tests.support.page_gpus import gpus, ports
from tests.support.page_lanes import report as lanes
from tests.support.page_pulse import report
from tests.support.page_rank import groups, output, series
from tests.support.page_stacks import with_stacks
from tests.support.parts import require_library

pytestmark = pytest.mark.integration

FOUND = """
axe.run().then((told) => JSON.stringify(told.violations.map((one) =>
  [one.id, one.impact, one.nodes.map((node) => node.html.slice(0, 200))])))
"""


@pytest.fixture(scope="module")
def axe() -> str:
    return Path(require_library("axe"), "axe_playwright_python/axe.min.js").read_text()


@pytest.fixture(scope="module")
def browser(chromium: Browser) -> Browser:
    return chromium


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    incidents = (with_stacks(incident()), incident_of_actors())
    source = PageSource(
        status, lambda: incidents, pulse=report, gpus=gpus, lanes=lanes, ports=ports,
        groups=groups, rank=series, output=output,
    )  # fmt: skip
    started = Page(source, port=0)
    yield started
    started.close()


def violations(browser: Browser, axe: str) -> list[Any]:
    """What axe-core calls serious or critical."""
    browser.run(f"{axe};0")
    found = json.loads(browser.run(FOUND))
    return [one for one in found if one[1] in ("serious", "critical")]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 420])
@pytest.mark.parametrize(
    ("address", "there"),
    [
        ("", "document.querySelector('#gpus table') && document.querySelector('#pulse svg')"),
        ("#incident/0001", "document.querySelector('#detail .tree')"),
        ("#incident/0002", "document.querySelector('#detail .waits')"),
        (
            "#process/llama/1/rank%203",
            "document.querySelector('#detail .stack') && "
            "document.querySelector('#detail .its-lane canvas')",
        ),
        ("#incident/none", "document.querySelector('#detail p')"),
    ],
)
def test_no_view_has_a_serious_finding(
    browser: Browser, page: Page, axe: str, address: str, there: str, width: int, scheme: str
) -> None:
    browser.resize(width, 900)
    browser.prefer(scheme)
    browser.open("about:blank")
    browser.open(page.link + address)
    browser.until(f"({there}) !== null", f"{address or 'the whole'} is shown")
    assert violations(browser, axe) == []


def test_what_cannot_be_read_is_found(browser: Browser, page: Page, axe: str) -> None:
    browser.open("about:blank")
    browser.open(page.link)
    browser.until("document.querySelector('#gpus table') !== null", "the whole is shown")
    browser.run("document.querySelector('#gpus h2').style.color = 'rgba(128, 128, 128, .2)'")
    browser.run("document.querySelector('#detail a').closest('main').append("
                "document.createElement('button'))")  # fmt: skip
    assert {one[0] for one in violations(browser, axe)} == {"button-name", "color-contrast"}
