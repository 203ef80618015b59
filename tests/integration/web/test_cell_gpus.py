"""Ranks coloured by what their GPUs do, in a real browser."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from ray_sentinel.model.gpus import GpuMap, GpuQuantity, RankGpus
from ray_sentinel.model.status import Status
from ray_sentinel.web import live
from ray_sentinel.web.page import Page
from ray_sentinel.web.routes import PageSource
from tests.support.browser import Browser
from tests.support.page_cells import colour, point
from tests.support.page_gpus import map_of, rank_gpus
from tests.support.page_lanes import report as lanes
from tests.support.page_nodes import cluster, host, stopped
from tests.support.page_pulse import report as pulse
from tests.support.page_thousands import a_second_later, scattered
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

RANKS = 8192
CANVAS = "document.querySelector('#jobs .cells canvas')"
LEGEND = "(document.querySelector('#jobs .legend')?.innerText ?? '')"
TIP = "document.querySelector('#jobs .tip').textContent"
RAMP = """[...document.querySelectorAll('#jobs .ramp i')].map((one) => {
  const shade = getComputedStyle(one).backgroundColor;
  const parts = shade.match(/[0-9.]+/g).slice(0, 3).map(Number);
  return parts.map((part) => Math.round(shade.startsWith('color') ? 255 * part : part));
})"""


class Gpus:
    """A page whose ranks have GPUs, and what they do now."""

    def __init__(self, told: Status, browser: Browser) -> None:
        self.told, self.second = told, 0
        incidents = tuple(stopped(told) for one in told.jobs[0].ranks if one.state == "stopped")
        self.page = Page(
            PageSource(
                lambda: self.told, lambda: incidents, pulse=pulse, lanes=lanes,
                gpus=lambda quantity: map_of(self.now(quantity)), rank_gpus=self.now,
            ),
            port=0,
        )  # fmt: skip
        browser.renew()
        browser.open(self.page.link)
        browser.until(f"{CANVAS}?.dataset.cells", "cells are drawn")
        self.browser = browser

    def now(self, quantity: GpuQuantity) -> RankGpus:
        return rank_gpus(self.told, quantity, self.second)

    def choose(self, name: str) -> None:
        pick = f"document.querySelector('#jobs input[name^=colour][value={name}]')"
        self.browser.until(f"{pick} !== null", f"{name} can be chosen")
        self.browser.run(f"{pick}.click()")


Open = Callable[[Status], Gpus]


@pytest.fixture
def opened(chromium: Browser) -> Iterator[Open]:
    pages: list[Page] = []

    def start(told: Status) -> Gpus:
        gpus = Gpus(told, chromium)
        pages.append(gpus.page)
        return gpus

    yield start
    assert chromium.complaints == []
    for page in pages:
        page.close()


def rgb(shade: str) -> list[int]:
    return [int(shade[at : at + 2], 16) for at in (1, 3, 5)]


@pytest.mark.parametrize(
    ("name", "ends", "idle", "busy"),
    [
        ("power", ("0 W", "700 W"), "50 W to 100 W", "W to"),
        ("utilisation", ("0 %", "100 %"), "0 % to 10 %", "% to"),
    ],
)
def test_ranks_are_coloured_by_their_gpus(
    opened: Open, name: str, ends: tuple[str, str], idle: str, busy: str
) -> None:
    told = cluster(16, scene="stopped")
    gpus = opened(told)
    browser, (bad,) = gpus.browser, [one for one in told.jobs[0].ranks if one.state == "stopped"]
    gpus.choose(name)
    browser.until(f"{LEGEND}.includes('{ends[0]}') && {LEGEND}.includes('{ends[1]}')", "from, to")
    ramp = browser.run(RAMP)
    assert len(ramp) == 10
    if name == "utilisation":
        drawn = rgb(colour(browser, f"rank {bad.rank} "))
        assert drawn == pytest.approx(ramp[0], abs=1), "as the legend says"
    point(browser, f"rank {bad.rank} ")
    assert f"GPU {name}: {idle}" in browser.run(TIP)
    point(browser, "rank 7 ")
    assert busy in browser.run(TIP)
    assert browser.run(f"{LEGEND}.includes('8 not reported for more than 30 s')")
    point(browser, f"rank {8 * 15} ")
    assert browser.run(TIP).endswith(f"GPU {name}: not reported for more than 30 s")
    gpus.choose("state")
    browser.until(f"{LEGEND}.includes('127 waiting')", "states are shown again")
    eventually(lambda: browser.run("1") and followed(browser)[-1] == "/api/v1/live", "no levels")
    assert followed(browser) == ["/api/v1/live", f"/api/v1/live?gpus={name}", "/api/v1/live"]


def followed(browser: Browser) -> list[str]:
    return ["/api" + url.partition("/api")[2] for url in browser.requests if "/api/v1/live" in url]


def test_where_there_are_no_gpus_they_cannot_be_chosen(chromium: Browser) -> None:
    def none(quantity: GpuQuantity) -> GpuMap:
        return GpuMap(quantity=quantity)

    page = Page(PageSource(lambda: cluster(4), tuple, pulse=pulse, gpus=none), port=0)
    try:
        chromium.renew()
        chromium.open(page.link)
        chromium.until(f"{CANVAS}?.dataset.cells", "cells are drawn")
        chromium.settle()
        values = "[...document.querySelectorAll('#jobs input[type=radio]')].map((one) => one.value)"
        assert (
            {"state", "behind"} <= set(chromium.run(values)) <= {"node", "role", "state", "behind"}
        )
    finally:
        page.close()


def test_where_a_cell_is_a_node_the_least_of_its_gpus_is_shown(opened: Open) -> None:
    told = cluster(10_000, scene="stopped")
    gpus = opened(told)
    gpus.choose("utilisation")
    gpus.browser.until(f"{LEGEND}.includes('100 %')", "the colours are told")
    assert gpus.browser.run(f"{CANVAS}.dataset.of") == "nodes"
    ramp = gpus.browser.run(RAMP)
    assert rgb(colour(gpus.browser, host(53_333 // 8))) == pytest.approx(ramp[0], abs=1)
    assert rgb(colour(gpus.browser, host(7))) == pytest.approx(ramp[7], abs=1)


def test_without_a_stream_the_levels_are_asked_for(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "MOST_STREAMS", 0)
    gpus = opened(cluster(4))
    gpus.browser.complaints.clear()  # that there is no stream
    gpus.choose("power")
    gpus.browser.until(f"{LEGEND}.includes(' W')", "the colours are told", 10.0)
    assert any(url.endswith("/api/v1/page?gpus=power") for url in gpus.browser.requests)
    gpus.browser.complaints.clear()


@pytest.mark.parametrize("name", ["utilisation", "power"])
def test_what_thousands_of_gpus_do_is_followed_and_small(opened: Open, name: str) -> None:
    gpus = opened(scattered(RANKS))
    browser = gpus.browser
    gpus.choose(name)
    browser.until("document.querySelectorAll('#jobs .ramp i').length === 10", "the colours")
    browser.settle()
    times = "performance.getEntriesByName('cells').length"
    for second in range(3):
        before, drawn = browser.received, browser.run(times)
        gpus.told, gpus.second = a_second_later(gpus.told, seed=second), second + 1
        begun = time.monotonic()
        browser.until(f"{times} > {drawn}", "cells look different", 10.0)
        browser.until(f"{CANVAS}.dataset.cells === '{RANKS}'", "all of them")
        seconds = time.monotonic() - begun
        assert browser.received - before < 50_000 * max(1.0, seconds)
