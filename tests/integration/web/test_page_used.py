"""The page in the hands of its reader: by the keyboard, on a phone, with one incident open."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from ray_sentinel.model.incident import Incident
from ray_sentinel.web.page import Page
from ray_sentinel.web.routes import PageSource
from tests.support.browser import Browser
from tests.support.page_data import HOSTILE, incident, incident_of_actors, status
from tests.support.page_gpus import gpus
from tests.support.page_lanes import report as lanes
from tests.support.page_pulse import report
from tests.support.page_stacks import with_stacks

pytestmark = pytest.mark.integration

ENTER, ESCAPE, LEFT, RIGHT, TAB = 13, 27, 37, 39, 9
TEXT = "(document.querySelector('{}')?.innerText ?? '')"


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    with Browser(tmp_path / "browser") as started:
        yield started
        assert started.complaints == []


def page_of(*incidents: Incident, ranks: int = 8) -> Page:
    source = PageSource(
        partial(status, ranks=ranks), lambda: incidents, pulse=report, gpus=gpus, lanes=lanes
    )
    return Page(source, port=0)


@pytest.fixture
def page() -> Iterator[Page]:
    started = page_of(with_stacks(incident()), incident_of_actors())
    yield started
    started.close()


def shown(browser: Browser, selector: str, text: str) -> None:
    browser.until(f"{TEXT.format(selector)}.includes({text!r})", f"{selector} says {text}")


def test_the_keyboard_leads_into_an_incident_and_back(browser: Browser, page: Page) -> None:
    browser.open(page.link)
    shown(browser, "#incidents", "rank 3 on node-1 is stopped")
    browser.run("[...document.querySelectorAll('#incidents h3 a')].at(-1).focus()")
    browser.press("Enter", ENTER, "\r")
    shown(browser, "#detail h2", "rank 3 on node-1 is stopped")
    assert browser.run("location.hash") == "#incident/0001"
    assert browser.run("document.activeElement.className") == "title"
    assert not browser.run("document.getElementById('jobs').checkVisibility()")
    browser.press("Escape", ESCAPE)
    browser.until("document.getElementById('jobs').checkVisibility()", "the whole is shown again")
    assert browser.run("document.activeElement.hash") == "#incident/0001"
    assert browser.run("document.querySelectorAll('#pulse svg').length") == 3


def test_one_incident_says_who_why_how_sure_and_what_to_do(browser: Browser, page: Page) -> None:
    browser.open(page.link)
    browser.until("document.title.startsWith('hung')", "the page is there")
    browser.run("location.hash = '#incident/0001'")
    for text in (
        "99 %, as good as certain", "3.7 s after the last progress", "state T", "T (stopped)",
        "kill -CONT 4003", "ranks 0-2, 4-6: in all_reduce", "step 1204 loss 2.30",
        "stacks\tof 8 of 8 ranks", "/data/llama/incidents/x-0001", "logs/rank-3.txt",
    ):  # fmt: skip
        shown(browser, "#detail", text)
    browser.run("location.hash = '#incident/0002'")
    shown(browser, "#detail", "driver\nray.get · 93.0 s\nTrainer 1")
    assert browser.run(TEXT.format("#detail .root")) == "Rollout 2"


def test_stacks_are_one_tree_that_folds_and_is_searched(browser: Browser, page: Page) -> None:
    browser.open(page.link + "#incident/0001")
    shown(browser, ".tree", "fit (trainer.py:240)")
    counts = "[...document.querySelectorAll('.branch > summary')].map((one) => one.innerText)"
    assert browser.run(counts) == [
        "8fit (trainer.py:240)",
        "1read (dataset.py:19)",
        "7training_step (trainer.py:310)",
        "1barrier (distributed_c10d.py:4100)",
        "6all_reduce (distributed_c10d.py:2300)",
    ]
    assert browser.run(TEXT.format(".tree .t-bad")).split() == ["rank", "3", "reading", "a", "file"]
    browser.run("document.querySelectorAll('.branch').forEach((one) => { one.open = false })")
    browser.run("document.querySelector('input[type=search]').focus()")
    for letter in "loader":
        browser.press(letter, ord(letter.upper()), letter)
    shown(browser, ".search", "1 place")
    assert browser.run("document.querySelector('.hit').checkVisibility()")
    assert browser.run(TEXT.format(".hit")) == "next_batch (loader.py:52)"


def test_what_is_unfolded_and_chosen_stays_while_the_page_refreshes(
    browser: Browser, page: Page
) -> None:
    browser.open(page.link + "#incident/0001")
    shown(browser, ".tree", "fit (trainer.py:240)")
    browser.run("document.querySelector('.outer').open = true")
    browser.run("window.refreshed = performance.getEntriesByType('resource').length")
    browser.until(
        "performance.getEntriesByType('resource').length > window.refreshed + 2", "it refreshes"
    )
    assert browser.run("document.querySelector('.outer').open")


def test_an_incident_is_copied_as_markdown(browser: Browser, page: Page) -> None:
    browser.allow("clipboardReadWrite", "clipboardSanitizedWrite")
    browser.open(page.link + "#incident/0001")
    shown(browser, "#detail button", "Copy as Markdown")
    browser.run("document.querySelector('#detail button').click()")
    browser.until(
        "document.querySelector('.actions').innerText.includes('Copied.') "
        "|| document.querySelector('#detail textarea')",
        "it is copied, or there to be copied",
    )
    text = browser.run(
        "document.querySelector('#detail textarea')?.value ?? navigator.clipboard.readText()"
    )
    assert text.startswith("# rank 3 on node-1 is stopped\n")
    assert "## Why" in text


def test_a_heat_map_of_another_quantity_is_chosen_by_the_keyboard(
    browser: Browser, page: Page
) -> None:
    browser.open(page.link)
    shown(browser, "#gpus", "0 %")
    browser.run("document.querySelector('#gpus input:checked').focus()")
    for name, unit in (("memory", "100 %"), ("power", " W"), ("temperature", "°C")):
        browser.press("ArrowRight", RIGHT)
        browser.until(f"document.querySelector('.gpus.{name}') !== null", f"GPUs by {name}")
        shown(browser, "#gpus .ramp", unit)
        assert browser.run("document.activeElement.value") == name


def test_the_pulse_is_read_by_the_keyboard(browser: Browser, page: Page) -> None:
    browser.open(page.link)
    browser.until("document.querySelector('#pulse svg') !== null", "the pulse is drawn")
    browser.run("document.querySelector('#pulse svg').focus()")
    shown(browser, "#pulse .readout", "longest")
    before = browser.run(TEXT.format("#pulse .readout"))
    browser.press("ArrowLeft", LEFT)
    assert browser.run(TEXT.format("#pulse .readout")) != before


@pytest.mark.parametrize("address", ["", "#incident/0001"])
def test_nothing_is_wider_than_a_phone(browser: Browser, page: Page, address: str) -> None:
    browser.resize(420, 900)
    browser.open(page.link + address)
    shown(browser, "#detail" if address else "#pulse", "rank 3" if address else "time per step")
    assert browser.run("document.documentElement.scrollWidth") <= 420
    browser.prefer("dark")
    dark = browser.run("getComputedStyle(document.body).backgroundColor")
    browser.prefer("light")
    assert browser.run("getComputedStyle(document.body).backgroundColor") != dark


def test_nobody_else_is_asked(browser: Browser, page: Page) -> None:
    browser.open(page.link + "#incident/0001")
    shown(browser, ".tree", "fit (trainer.py:240)")
    asked = [url for url in browser.requests if url != "about:blank"]
    assert len(asked) > 10
    assert [url for url in asked if not url.startswith(page.url)] == []


def test_a_deep_stack_and_hostile_names_break_nothing(browser: Browser) -> None:
    told = with_stacks(incident(hostile=HOSTILE), hostile=HOSTILE, deep=500)
    page = page_of(told, incident_of_actors(hostile=HOSTILE))
    try:
        browser.open(page.link + "#incident/0001")
        shown(browser, ".tree", "502 frames above")
        shown(browser, ".tree", "read<img src=x")
        assert browser.run("document.querySelectorAll('img').length") == 0
        assert browser.run("document.title").startswith("hung")
        assert browser.run("document.querySelectorAll('.tree code').length") == 509
        assert browser.run("document.documentElement.scrollWidth") <= 1280
    finally:
        page.close()


def test_ten_thousand_incidents_are_no_burden(browser: Browser) -> None:
    page = page_of(*(incident(number=f"{number:05}") for number in range(10_000)))
    try:
        browser.open(page.link)
        browser.until("document.querySelectorAll('#incidents h3').length === 20", "the last ones")
        browser.run("location.hash = '#incident/00007'")
        shown(browser, "#detail h2", "rank 3 on node-1 is stopped")
    finally:
        page.close()


def test_an_incident_that_is_not_there_is_said(browser: Browser, page: Page) -> None:
    browser.open(page.link + "#incident/none")
    shown(browser, "#detail", "Incident none cannot be shown")
    browser.complaints.clear()  # the browser tells of the answer 404


def test_a_coordinator_that_is_gone_is_said_with_the_time_of_what_is_shown(
    browser: Browser, page: Page
) -> None:
    browser.open(page.link)
    shown(browser, "#incidents", "rank 3 on node-1 is stopped")
    page.close()
    shown(browser, "#verdict", "the coordinator does not answer")
    shown(browser, "#verdict", "what is below is of then")
    shown(browser, "#incidents", "rank 3 on node-1 is stopped")
    browser.complaints.clear()  # the browser tells of each request that fails
