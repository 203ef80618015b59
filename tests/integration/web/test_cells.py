"""Ranks as cells, from a few to 80,000, and the nodes, in a real browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import pytest

from ray_sentinel.model.incident import Incident
from ray_sentinel.model.process_groups import GroupsReport
from ray_sentinel.model.status import Status
from ray_sentinel.web.page import Page
from ray_sentinel.web.routes import PageSource
from tests.support.browser import Browser
from tests.support.page_cells import click, colour, point
from tests.support.page_data import HOSTILE, incident, status
from tests.support.page_nodes import LOST, cluster, host, stopped
from tests.support.page_rank import groups

pytestmark = pytest.mark.integration

DOWN, ENTER, ESCAPE, LEFT, RIGHT, UP = 40, 13, 27, 37, 39, 38
CANVAS = "document.querySelector('#jobs .cells canvas')"
TIP = "document.querySelector('#jobs .tip').textContent"
TEXT = "(document.querySelector('{}')?.innerText ?? '')"
INK = "getComputedStyle(document.documentElement).getPropertyValue('--{}')"
NODES = "[...document.querySelectorAll('#nodes tbody tr')].map((row) => row.firstChild.textContent)"

Open = Callable[..., Browser]


@pytest.fixture
def opened(chromium: Browser) -> Iterator[Open]:
    """Opens a page of that status in a tab of its own."""
    pages: list[Page] = []
    chromium.renew()

    def start(
        told: Status | Callable[[], Status],
        *incidents: Incident,
        groups: Callable[[], GroupsReport] = GroupsReport,
    ) -> Browser:
        look = (lambda: told) if isinstance(told, Status) else told
        pages.append(Page(PageSource(look, lambda: incidents, groups=groups), port=0))
        chromium.open(pages[-1].link)
        chromium.until(f"{CANVAS}?.dataset.cells", "cells are drawn")
        return chromium

    yield start
    assert [one for one in chromium.complaints if "404" not in one] == []
    for page in pages:
        page.close()


def drawn(browser: Browser) -> tuple[int, str, int]:
    """How many cells there are, of what, and how high they are together."""
    cells, of, height = browser.run(
        f"[Number({CANVAS}.dataset.cells), {CANVAS}.dataset.of, {CANVAS}.clientHeight]"
    )
    return cells, of, height


def test_a_thousand_nodes_of_eight_are_seen_whole(opened: Open) -> None:
    told = cluster(1000, scene="stopped")
    browser = opened(told, stopped(told))
    cells, of, height = drawn(browser)
    assert (cells, of) == (8000, "ranks")
    assert height < 1080, "on a screen"
    label = browser.run(f"{CANVAS}.ariaLabel")
    assert "8000 ranks; 7999 waiting, 1 stopped; named by an incident: 5333" in label
    assert colour(browser, "rank 5333 ") == browser.run(INK.format("bad-cell"))
    assert browser.run(TIP).endswith("named by an incident")
    assert colour(browser, "rank 5334 ") == browser.run(INK.format("idle-cell"))
    click(browser, "rank 7999 ")
    browser.until(f"{TEXT.format('#detail h2')} === 'rank 7999 of llama'", "its view")


def test_of_80_000_ranks_each_node_is_a_cell_that_leads_to_its_ranks(opened: Open) -> None:
    told = cluster(10_000, scene="stopped")
    browser = opened(told, stopped(told))
    cells, of, height = drawn(browser)
    assert (cells, of) == (10_000, "nodes")
    assert height < 960
    node = host(53_333 // 8)
    said = f"{node}: ranks 53328-53335\n7 waiting, 1 stopped\nup to 1 step behind\n"
    assert colour(browser, node) == browser.run(INK.format("bad-cell"))
    assert browser.run(TIP) == f"{said}named by an incident: 53333"
    click(browser, node)
    browser.until(f"{TEXT.format('#detail h2')} === '{node} of llama'", "its ranks")
    browser.until("document.querySelectorAll('#detail tbody tr').length === 8", "all of them")
    links = "[...document.querySelectorAll('#detail td a')]"
    browser.run(f"{links}.find((one) => one.innerText === 'rank 53333').click()")
    browser.until(f"{TEXT.format('#detail h2')} === 'rank 53333 of llama'", "its view")
    browser.until(f"{TEXT.format('#detail')}.includes('57333')", "its pid")


def test_a_healthy_job_and_who_is_behind_in_it(opened: Open) -> None:
    browser = opened(cluster(40))
    browser.until(f"{TEXT.format('#jobs .legend')}.includes('320 running')", "all are well")
    assert browser.run("document.querySelectorAll('#jobs table').length") == 0
    assert colour(browser, "rank 96 ") == browser.run(INK.format("good-cell"))
    browser.run("document.querySelector('#jobs input[value=behind]').click()")
    browser.until(f"{TEXT.format('#jobs .legend')}.includes('3 1 step behind')", "who is behind")
    assert colour(browser, "rank 96 ") == browser.run(INK.format("behind-1"))
    assert colour(browser, "rank 97 ") == browser.run(INK.format("behind-0"))


def test_a_lost_node_is_seen_among_a_thousand(opened: Open) -> None:
    browser = opened(cluster(1000, scene="lost"))
    assert colour(browser, f"rank {8 * LOST} ") == browser.run(INK.format("warn-cell"))
    assert browser.run("document.querySelectorAll('#jobs tbody tr').length") == 8
    assert browser.run(f"{NODES}.length") == 50
    assert browser.run(f"{NODES}.slice(0, 5)") == [host(one) for one in (LOST, 299, 599, 899)] + [
        f"{host(0)} (head)"
    ]


def test_nodes_are_found_by_name_and_shown_all(opened: Open) -> None:
    browser = opened(cluster(120))
    assert browser.run(f"{NODES}.length") == 50
    browser.run("document.querySelector('#nodes button').click()")
    assert browser.run(f"{NODES}.length") == 120
    browser.run("document.querySelector('#nodes input').focus()")
    for digit in "011":
        browser.press(digit, ord(digit), digit)
    browser.until(f"{NODES}.length === 11", "those of that name")
    assert browser.run("document.activeElement.value") == "011"
    assert "11 of 11 nodes of that name" in browser.run(TEXT.format("#nodes"))


def test_arrows_move_through_cells_and_enter_leads_to_the_rank(opened: Open) -> None:
    told = cluster(4, scene="stopped")
    browser = opened(told, stopped(told))
    browser.run("document.querySelector('#jobs .at').focus()")
    said = "document.querySelector('#jobs .said').textContent"
    for key, code, rank in (
        ("ArrowRight", RIGHT, 22), ("ArrowUp", UP, 14), ("ArrowDown", DOWN, 22),
        ("ArrowLeft", LEFT, 21), ("Home", 36, 0), ("End", 35, 31),
    ):  # fmt: skip
        browser.press(key, code)
        assert browser.run(said).startswith(f"rank {rank} on {host(rank // 8)}, "), key
    browser.press("Enter", ENTER, "\r")
    browser.until(f"{TEXT.format('#detail h2')} === 'rank 31 of llama'", "its view")
    browser.press("Escape", ESCAPE)
    browser.until("document.getElementById('jobs').checkVisibility()", "the whole is shown again")
    assert browser.run("document.activeElement.ariaLabel").startswith("rank 31 ")


def test_cells_are_drawn_anew_only_where_one_looks_different(opened: Open) -> None:
    looks = [0]

    def told() -> Status:
        looks[0] += 1
        now = cluster(64)
        (job,) = now.jobs
        ranks = [msgspec.structs.replace(one, step_age_seconds=looks[0]) for one in job.ranks]
        if looks[0] > 6:
            ranks[77] = msgspec.structs.replace(ranks[77], state="blocked")
        return msgspec.structs.replace(
            now, jobs=(msgspec.structs.replace(job, ranks=tuple(ranks)),)
        )

    browser = opened(told)
    browser.until("document.querySelectorAll('#jobs table').length === 0", "all are well")
    point(browser, "rank 77 ")
    times = "performance.getEntriesByName('cells').length"
    before, first = browser.run(times), browser.run(TIP)
    browser.until(f"{TIP} !== {first!r}".replace("'", "`"), "the age is told as it is")
    if looks[0] < 6:
        assert browser.run(times) == before
    browser.until(f"{times} > {before}", "it is drawn once it looks different")
    assert colour(browser, "rank 77 ") == browser.run(INK.format("bad-cell"))


@pytest.mark.parametrize(("nodes", "of"), [(1, "ranks"), (16, "ranks"), (1024, "nodes")])
def test_cells_fit_on_a_phone(opened: Open, chromium: Browser, nodes: int, of: str) -> None:
    chromium.resize(390, 800)
    browser = opened(cluster(nodes, scene="healthy"))
    browser.until(f"{CANVAS}.dataset.of === '{of}'", "as many as can be read")
    assert browser.run("document.documentElement.scrollWidth") <= 390
    assert drawn(browser)[2] < 960


def test_hostile_names_stay_text_in_cells(opened: Open) -> None:
    browser = opened(status(hostile=HOSTILE), incident(hostile=HOSTILE))
    point(browser, "rank 3 ")
    assert "<img src=x" in browser.run(TIP)
    assert browser.run("document.querySelectorAll('img').length") == 0
    assert browser.run("document.title").startswith("2 jobs hung")


def by_group(browser: Browser, name: str) -> None:
    pick = f"document.querySelector('#jobs input[value=\"group {name}\"]')"
    browser.until(f"{pick} !== null", "the groups are known")
    browser.run(f"{pick}.click()")


@pytest.mark.parametrize("nodes", [4, 1000])
def test_ranks_are_sorted_by_their_process_groups(opened: Open, nodes: int) -> None:
    told = cluster(nodes, scene="stopped")
    browser = opened(told, stopped(told), groups=lambda: groups(8 * nodes))
    by_group(browser, "TENSOR")
    browser.until(f"{TEXT.format('#jobs .legend')}.includes('the flight recorders told')", "when")
    cells, of, height = drawn(browser)
    assert (cells, of) == (8 * nodes, "ranks")
    assert height < 1200
    point(browser, f"rank {8 * nodes - 1} ")
    by_group(browser, "DATA")
    label = f"{CANVAS}.ariaLabel"
    browser.until(f"{label}.includes('ranks 0, 4, 8')", "a group of the other kind")
    assert len(set(browser.run(label).split("; ")[1:5])) == 4


def test_groups_of_another_attempt_are_not_offered(opened: Open) -> None:
    browser = opened(cluster(4), groups=lambda: groups(32, attempt=0))
    browser.run("new Promise((done) => setTimeout(done, 300))")
    assert browser.run("document.querySelectorAll('#jobs input[value^=group]').length") == 0


def test_hostile_names_of_groups_stay_text(opened: Open) -> None:
    browser = opened(status(), groups=lambda: groups(hostile=HOSTILE))
    browser.until(f"{TEXT.format('#jobs .ways')}.includes('<img src=x')", "the name as it is")
    assert browser.run("document.querySelectorAll('img').length") == 0


@pytest.mark.parametrize(("nodes", "beside"), [(2, True), (128, True), (1000, False)])
def test_cells_that_fit_stand_beside_the_incidents(
    opened: Open, chromium: Browser, nodes: int, beside: bool
) -> None:
    chromium.resize(1280, 900)
    told = cluster(nodes, scene="stopped")
    browser = opened(told, stopped(told))
    browser.until("document.querySelector('#incidents h3') !== null", "the incident is shown")
    lefts = [
        f"document.getElementById('{one}').getBoundingClientRect().left"
        for one in ("incidents", "jobs")
    ]
    browser.until(f"({lefts[0]} + 400 < {lefts[1]}) === {str(beside).lower()}", "where they are")
    assert drawn(browser)[1] == "ranks"
    width = "document.getElementById('jobs').clientWidth"
    assert beside or browser.run(f"{width} === document.querySelector('main > #now').clientWidth")
