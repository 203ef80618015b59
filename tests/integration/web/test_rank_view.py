"""One rank's view in a real browser: what it did lately, its lane, and its last output."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from functools import partial

import msgspec
import pytest

from ray_sentinel.model.incident import RankOutput
from ray_sentinel.model.last_hour import RankAsked, RankSeries
from ray_sentinel.model.status import Status
from ray_sentinel.web.page import Page
from ray_sentinel.web.routes import PageSource
from tests.support.browser import Browser
from tests.support.page_data import HOSTILE, incident, status
from tests.support.page_gpus import gpus
from tests.support.page_lanes import report as lanes
from tests.support.page_pulse import report as pulse
from tests.support.page_rank import output, series
from tests.support.page_stacks import with_stacks

pytestmark = pytest.mark.integration

RANK = "#process/llama/1/rank%203"
TEXT = "(document.querySelector('{}')?.innerText ?? '')"
PLOTS = "document.querySelectorAll('#detail .plots svg')"


@pytest.fixture
def browser(chromium: Browser) -> Iterator[Browser]:
    chromium.renew()
    yield chromium
    assert chromium.complaints == []


def moving(hostile: str = "") -> Callable[[RankAsked], RankSeries | None]:
    """Each look finds it a little later."""
    looks = itertools.count()

    def look(asked: RankAsked) -> RankSeries | None:
        found, by = series(asked, hostile), next(looks) / 10
        if found is None:
            return None
        return msgspec.structs.replace(found, begin=found.begin + by, end=found.end + by)

    return look


def page_of(hostile: str = "") -> Page:
    source = PageSource(
        status, lambda: (with_stacks(incident()),), pulse=pulse, gpus=gpus, lanes=lanes,
        rank=moving(hostile), output=partial(output, hostile=hostile),
    )  # fmt: skip
    return Page(source, port=0)


@pytest.fixture
def page() -> Iterator[Page]:
    started = page_of()
    yield started
    started.close()


def shown(browser: Browser, selector: str, text: str) -> None:
    browser.until(f"{TEXT.format(selector)}.includes({text!r})", f"{selector} says {text}")


def test_a_rank_shows_its_steps_its_cpus_and_its_gpu(browser: Browser, page: Page) -> None:
    browser.open(page.link + RANK)
    browser.until(f"{PLOTS}.length === 6", "all of it is drawn")
    for text in (
        "time per step", "CPUs of its node", "utilisation of GPU 3", "power of GPU 3\n92 W",
        "61 GB of 85 GB", "GPU 3 is assumed from the rank's position on its node",
    ):  # fmt: skip
        shown(browser, "#detail", text)


def test_a_plot_is_read_by_the_keyboard_also_over_new_answers(browser: Browser, page: Page) -> None:
    browser.open(page.link + RANK)
    browser.until(f"{PLOTS}.length === 6", "all of it is drawn")
    browser.run(f"{PLOTS}[4].focus()")
    readout = f"{PLOTS}[4].parentElement.querySelector('.readout').textContent"
    browser.until(f"{readout}.endsWith('92 W')", "the last value")
    for _ in range(3):
        browser.press("ArrowLeft", 37)
    browser.until(f"/: 6\\d\\d W$/.test({readout})", "one before it stopped")
    first = browser.run(f"window.first = {PLOTS}[4]; 1")
    assert first == 1
    browser.until(f"{PLOTS}[4] !== window.first", "it is drawn anew")
    assert browser.run(f"document.activeElement === {PLOTS}[4]")
    assert browser.run(f"/: 6\\d\\d W$/.test({readout})"), "it is read on where the reader was"


def test_its_lane_is_drawn_and_stays(browser: Browser, page: Page) -> None:
    browser.open(page.link + RANK)
    lane = "document.querySelector('#detail .its-lane canvas')"
    browser.until(f"{lane} !== null", "the lane is drawn")
    assert "1 lane over time" in browser.run(f"{lane}.ariaLabel")
    browser.run(f"window.first = {lane}; window.plot = {PLOTS}[0]; 1")
    browser.until(f"{PLOTS}[0] !== window.plot", "the rest is drawn anew")
    assert browser.run(f"{lane} === window.first")


def test_what_it_wrote_last_is_read_when_it_is_asked_for(browser: Browser, page: Page) -> None:
    browser.open(page.link + RANK)
    button = "document.querySelector('#detail [data-keep^=output] button')"
    browser.until(f"{button} !== null", "it can be asked for")
    assert browser.run("document.querySelectorAll('#detail [data-keep^=output] pre').length") == 0
    browser.run(f"{button}.click()")
    shown(browser, "#detail [data-keep^=output] pre", "step 1203 loss 2.18")
    shown(browser, "#detail [data-keep^=output]", "Read it again")
    text = "document.querySelector('#detail [data-keep^=output] pre')"
    assert browser.run(f"{text}.scrollTop + {text}.clientHeight >= {text}.scrollHeight - 2")
    browser.run("getSelection().selectAllChildren(document.querySelector('#detail pre'))")
    browser.run(f"window.plot = {PLOTS}[0]; 1")
    browser.until(f"{PLOTS}[0] !== window.plot", "the rest is drawn anew")
    shown(browser, "#detail [data-keep^=output] pre", "step 1203")
    assert "step 1203" in browser.run("getSelection().toString()"), "to be copied"


def test_the_process_that_is_shown_is_asked_about_and_not_each_second(browser: Browser) -> None:
    asked = []

    def look(rank: RankAsked) -> RankSeries | None:
        asked.append(rank.place)
        return series(rank)

    now = itertools.count()

    def older() -> Status:
        told = status()
        return msgspec.structs.replace(told, time=told.time + next(now), jobs=tuple(
            msgspec.structs.replace(job, step=next(now)) for job in told.jobs
        ))  # fmt: skip

    source = PageSource(older, tuple, pulse=pulse, gpus=gpus, lanes=lanes, rank=look)
    page, begun = Page(source, port=0), time.monotonic()
    try:
        browser.open(page.link + RANK + "/node-9%2077")
        browser.until(f"{PLOTS}.length === 6", "all of it is drawn")
        browser.run("window.facts = document.querySelector('#detail .facts'); 1")
        browser.until("document.querySelector('#detail .facts') !== window.facts", "drawn anew")
    finally:
        page.close()
    (shown_rank,) = [one for one in status().jobs[0].ranks if one.rank == 3]
    assert set(asked) == {f"{shown_rank.host} {shown_rank.pid}"}
    assert len(asked) <= 1 + (time.monotonic() - begun) / 5


def test_why_there_is_nothing_is_said(browser: Browser) -> None:
    def missing(asked: RankAsked) -> RankOutput | None:
        return None

    page = Page(
        PageSource(status, tuple, pulse=pulse, gpus=gpus, lanes=lanes, output=missing), port=0
    )
    try:
        browser.open(page.link + RANK)
        button = "document.querySelector('#detail [data-keep^=output] button')"
        browser.until(f"{button} !== null", "it can be asked for")
        browser.run(f"{button}.click()")
        shown(browser, "#detail [data-keep^=output]", "there is no such rank any more")
        assert browser.run(f"{PLOTS}.length") == 0
    finally:
        page.close()


def test_hostile_lines_and_names_stay_text(browser: Browser) -> None:
    page = page_of(HOSTILE)
    try:
        browser.open(page.link + RANK)
        button = "document.querySelector('#detail [data-keep^=output] button')"
        browser.until(f"{button} !== null", "it can be asked for")
        browser.run(f"{button}.click()")
        shown(browser, "#detail [data-keep^=output] pre", "<img src=x")
        shown(browser, "#detail .plots", "<img src=x")
        assert browser.run("document.querySelectorAll('img').length") == 0
        assert "owned" not in browser.run("document.title")
    finally:
        page.close()
