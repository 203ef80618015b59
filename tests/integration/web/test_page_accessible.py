"""The page by axe-core's rules: nothing serious, in any of its views, light and dark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from ray_sentinel.model.gpus import GpuQuantity
from ray_sentinel.model.incident import Incident
from ray_sentinel.model.status import Status
from ray_sentinel.web.page import Page
from ray_sentinel.web.routes import PageSource
from tests.support.browser import Browser
from tests.support.page_data import incident, incident_of_actors, status
from tests.support.page_gpus import gpus, map_of, ports, rank_gpus
from tests.support.page_lanes import report as lanes
from tests.support.page_nodes import cluster, stopped
from tests.support.page_pulse import report
from tests.support.page_rank import groups, output, series
from tests.support.page_stacks import with_stacks
from tests.support.parts import require_library

pytestmark = pytest.mark.integration

FOUND = """
axe.run().then((told) => JSON.stringify(told.violations.map((one) =>
  [one.id, one.impact, one.nodes.map((node) => node.html.slice(0, 200))])))
"""

DRAWN = [(1280, "light"), (420, "dark")]
"""How wide the page is drawn, and in which scheme at first."""
SHADED = """(() => {
  document.querySelector('#gpus .card').className = 'card gpus %s';
  const cells = document.querySelectorAll('#gpus td[class^=q]');
  cells.forEach((one, at) => { one.className = `q${at %% 10}`; });
})()"""


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
    """What axe-core calls serious or critical, in each scheme: the page follows it."""
    browser.run(f"{axe};0")
    found = []
    for scheme in ("light", "dark"):
        browser.prefer(scheme)
        told = json.loads(browser.run(FOUND))
        found += [[*one, scheme] for one in told if one[1] in ("serious", "critical")]
    return found


@pytest.mark.parametrize(("width", "scheme"), DRAWN)
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


@contextmanager
def scene_of(told: Status, *incidents: Incident) -> Iterator[Page]:
    """The page of such a cluster, each rank of which has a GPU."""
    of_ranks = partial(rank_gpus, told)
    source = PageSource(
        lambda: told, lambda: incidents, pulse=report, lanes=lanes, ports=ports, rank=series,
        gpus=lambda quantity: map_of(of_ranks(quantity)), rank_gpus=of_ranks, output=output,
        groups=partial(groups, len(told.jobs[0].ranks)),
    )  # fmt: skip
    started = Page(source, port=0)
    try:
        yield started
    finally:
        started.close()


def chain_of_actors() -> tuple[Status, Incident]:
    """Only the job of actors, with who waits for whom."""
    told = status()
    return msgspec.structs.replace(told, jobs=told.jobs[1:]), incident_of_actors()


def stopped_one(nodes: int) -> tuple[Status, Incident]:
    """One rank is stopped, and all others wait for it."""
    told = cluster(nodes, scene="stopped")
    return told, stopped(told)


def choose(browser: Browser, name: str) -> None:
    """Another colour of the cells, once it is drawn."""
    pick = f"document.querySelector('#jobs input[value={name}]')"
    browser.until(f"{pick} !== null", f"{name} can be chosen")
    browser.run(f"{pick}.click()")
    ramp = "document.querySelectorAll('#jobs .ramp i').length === 10"
    browser.until(ramp if name in ("power", "utilisation") else "true", "its legend")


@pytest.mark.parametrize(("width", "scheme"), DRAWN)
@pytest.mark.parametrize(
    ("scene", "colour"),
    [
        (chain_of_actors, ""),
        (lambda: (cluster(16, scene="lost"),), ""),
        (lambda: (cluster(16),), "behind"),
        (lambda: (cluster(16),), "utilisation"),
        (lambda: stopped_one(4), "power"),
        (lambda: stopped_one(1000), "utilisation"),
    ],
    ids=["actors", "lost node", "behind", "utilisation", "power", "1,000 nodes"],
)
def test_no_scene_has_a_serious_finding(
    browser: Browser, axe: str, scene: Callable[[], tuple[Any, ...]], colour: str, width: int,
    scheme: str,
) -> None:  # fmt: skip
    browser.resize(width, 900)
    browser.prefer(scheme)
    browser.open("about:blank")
    browser.complaints.clear()  # of a page that had gone
    with scene_of(*scene()) as page:
        browser.open(page.link)
        browser.until("document.querySelector('#pulse svg, #jobs canvas') !== null", "it is shown")
        browser.until(
            "document.querySelector('#gpus :is(.legend, .quiet)') !== null", "its GPUs are"
        )
        if colour:
            choose(browser, colour)
        assert violations(browser, axe) == []
        assert browser.complaints == []


@pytest.mark.parametrize(("width", "scheme"), DRAWN)
def test_what_a_coordinator_that_is_gone_has_left_can_be_read(
    browser: Browser, axe: str, width: int, scheme: str
) -> None:
    browser.resize(width, 900)
    browser.prefer(scheme)
    with scene_of(status(), incident(), incident_of_actors()) as page:
        browser.open("about:blank")
        browser.open(page.link)
        browser.until("document.querySelector('#pulse svg') !== null", "it is shown")
    browser.until("document.querySelector('main.gone') !== null", "it is told")
    assert violations(browser, axe) == []


def test_each_shade_of_the_heat_map_can_be_read(browser: Browser, axe: str) -> None:
    browser.resize(1280, 900)
    browser.open("about:blank")
    with scene_of(cluster(16)) as page:
        browser.open(page.link)
        browser.until("document.querySelector('#gpus table') !== null", "the heat map is shown")
        for quantity in get_args(GpuQuantity):
            browser.run(SHADED % quantity)
            assert violations(browser, axe) == [], quantity


def test_what_cannot_be_read_is_found(browser: Browser, page: Page, axe: str) -> None:
    browser.open("about:blank")
    browser.open(page.link)
    browser.until("document.querySelector('#gpus table') !== null", "the whole is shown")
    browser.run("document.querySelector('#gpus h2').style.color = 'rgba(128, 128, 128, .2)'")
    browser.run("document.querySelector('#detail a').closest('main').append("
                "document.createElement('button'))")  # fmt: skip
    assert {one[0] for one in violations(browser, axe)} == {"button-name", "color-contrast"}
