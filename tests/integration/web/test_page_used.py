"""The page in the hands of its reader: by the keyboard, on a phone, with one incident open."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial

import msgspec
import pytest

from ray_sentinel.model.alert import Alert
from ray_sentinel.model.incident import Incident, Transition
from ray_sentinel.model.last_hour import PulseReport
from ray_sentinel.model.status import Status
from ray_sentinel.web.page import Page
from ray_sentinel.web.routes import PageSource
from tests.support.browser import Browser
from tests.support.page_cells import click
from tests.support.page_data import HOSTILE, NOW, incident, incident_of_actors, status
from tests.support.page_gpus import gpus, ports
from tests.support.page_lanes import report as lanes
from tests.support.page_pulse import report
from tests.support.page_stacks import with_stacks

pytestmark = pytest.mark.integration

DOWN, ENTER, ESCAPE, LEFT, RIGHT, TAB = 40, 13, 27, 37, 39, 9
TEXT = "(document.querySelector('{}')?.innerText ?? '')"


@pytest.fixture
def browser(chromium: Browser) -> Iterator[Browser]:
    """A tab of its own: the browser itself takes longer to start than a test takes."""
    chromium.renew()
    yield chromium
    assert chromium.complaints == []


def page_of(*incidents: Incident, ranks: int = 8, told: Callable[[], Status] | None = None) -> Page:
    source = PageSource(
        told or partial(status, ranks=ranks),
        lambda: incidents,
        pulse=report,
        lanes=lanes,
        gpus=gpus,
        ports=ports,
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
    browser.until("document.title.includes('hung')", "the page is there")
    browser.run("location.hash = '#incident/0001'")
    for text in (
        "99 %, as good as certain", "3.7 s after the last progress", "stopped by a signal",
        "has been stopped",
        "kill -CONT 4003", "ranks 0-2, 4-6", "in all_reduce", "step 1204 loss 2.30",
        "stacks\tof 8 of 8 ranks", "/data/llama/incidents/x-0001", "logs/rank-3.txt",
    ):  # fmt: skip
        shown(browser, "#detail", text)
    browser.run("location.hash = '#incident/0002'")
    drawn = "[...document.querySelectorAll('#detail .waits text')].map((one) => one.textContent)"
    browser.until(f"{drawn}.includes('ray.get, 93 s')", "the age of a wait")
    assert browser.run("document.querySelector('#detail .root .name').textContent") == "Rollout 2"


def test_what_to_do_first_and_since_when_are_seen_without_pointing(
    browser: Browser, page: Page
) -> None:
    browser.open(page.link)
    shown(browser, "#incidents", "To do")
    parts = "[...[...document.querySelectorAll('#incidents .card')].at(-1).children]"
    order = browser.run(f"{parts}.map((one) => one.className.split(' ')[0] || one.localName)")
    assert order == ["h3", "quiet", "todo", "waits", "facts"]
    browser.run("location.hash = '#incident/0001'")
    shown(browser, "#detail", "last progress")
    text = browser.run("document.querySelector('#detail .facts').innerText")
    assert re.search(r"last progress\s+14 s ago, .*2027.* \d\d:\d\d:\d\d [A-Z]", text)
    assert re.search(r"time \([A-Z]", browser.run("document.getElementById('detail').innerText"))


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
    culprit = " ".join(browser.run(TEXT.format(".tree .t-bad")).split())
    assert culprit == "rank 3 reading a file the same in 2 rounds"
    browser.run("document.querySelectorAll('.branch').forEach((one) => { one.open = false })")
    browser.run("document.querySelector('input[type=search]').focus()")
    for letter in "loader":
        browser.press(letter, ord(letter.upper()), letter)
    shown(browser, ".search", "1 place")
    assert browser.run("document.querySelector('.hit').checkVisibility()")
    assert browser.run(TEXT.format(".hit")) == "next_batch (loader.py:52)"


def test_what_moved_over_the_rounds_is_marked_and_two_places_stand_side_by_side(
    browser: Browser, page: Page
) -> None:
    browser.open(page.link + "#incident/0001")
    shown(browser, ".tree", "rank 0 moved: it was in forward (model.py:9)")
    shown(browser, ".tree", "the same in 2 rounds")
    moved = "[...document.querySelectorAll('.tree .moved')].map((one) => one.textContent)"
    backward, reduce = "backward (model.py:12)", "all_reduce (distributed_c10d.py:2300)"
    assert browser.run(moved) == [reduce, backward]
    browser.run("document.querySelector('[data-key=two]').open = true")
    lines = "document.querySelectorAll('.beside > div:nth-child({}) li:not(.quiet)')"
    column = f"[...{lines}].map((one) => one.innerText)"
    left = ["next_batch (loader.py:52)", "read (dataset.py:19)"]
    step = "training_step (trainer.py:310)"
    assert browser.run(column.format(1)) == left
    assert browser.run(column.format(2)) == [step, backward, reduce]
    browser.run("document.querySelectorAll('.beside select')[1].focus()")
    browser.press("ArrowDown", DOWN)
    assert browser.run(column.format(2)) == [step, "barrier (distributed_c10d.py:4100)"]


def test_what_is_unfolded_and_chosen_stays_while_the_page_refreshes(browser: Browser) -> None:
    looks = [0]

    def told() -> Status:
        looks[0] += 1
        return msgspec.structs.replace(status(), verdict=f"look {looks[0]}")

    page = page_of(with_stacks(incident()), told=told)
    try:
        browser.open(page.link + "#incident/0001")
        shown(browser, ".tree", "fit (trainer.py:240)")
        browser.run("document.querySelector('.outer').open = true")
        later = looks[0] + 2
        browser.until(f"Number({TEXT.format('#verdict')}.slice(5)) > {later}", "it refreshes")
        assert browser.run("document.querySelector('.outer').open")
    finally:
        page.close()


def test_a_cell_leads_to_its_rank_and_what_is_known_of_it(browser: Browser, page: Page) -> None:
    browser.open(page.link)
    shown(browser, "#jobs", "llama")
    browser.until("document.querySelector('#jobs .at')?.ariaLabel?.startsWith('rank 3 ')",
                  "the keyboard comes in at the rank that is named")  # fmt: skip
    browser.run("document.querySelector('#jobs .at').focus()")
    browser.press("Enter", ENTER, "\r")
    shown(browser, "#detail h2", "rank 3 of llama")
    for text in (
        "stopped", "steps behind\n1", "4003", "rank 3 on node-1 is stopped",
        "next_batch (loader.py:52)", "step 1204 loss 2.30", "GPUs of node-1",
    ):  # fmt: skip
        shown(browser, "#detail", text)
    browser.press("Escape", ESCAPE)
    browser.until("document.getElementById('jobs').checkVisibility()", "the whole is shown again")
    assert browser.run("document.activeElement.ariaLabel").startswith("rank 3 ")
    # One that stands where others do is shown with their stack.
    browser.run("location.hash = '#process/llama/1/rank%205'")
    shown(browser, "#detail", "all_reduce (distributed_c10d.py:2300)")


def test_an_actor_is_shown_with_who_waits_for_it(browser: Browser, page: Page) -> None:
    browser.open(page.link)
    shown(browser, "#jobs", "Rollout 2")
    links = "[...document.querySelectorAll('#jobs td a')]"
    browser.run(f"{links}.find((one) => one.innerText === 'Rollout 2').click()")
    for text in (
        "silent",
        "Rollout.generate",
        "all_reduce of Trainer: Rollout 2 has not come to it",
    ):
        shown(browser, "#detail", text)
    browser.run("location.hash = '#process/train_rl-1/0/Rollout%209'")
    shown(browser, "#detail", "no longer in this job")


def test_stacks_are_drawn_as_wide_as_there_are_processes(browser: Browser, page: Page) -> None:
    browser.open(page.link + "#incident/0001")
    shown(browser, ".tree", "fit (trainer.py:240)")
    browser.run("document.querySelector('[data-key=icicle]').open = true")
    wide = """[...document.querySelectorAll('.icicle .block')].map((one) => [
        one.firstChild.innerText.split(' ')[0], one.getBoundingClientRect().width])"""
    widths = dict(browser.run(wide))
    assert widths["8"] > widths["7"] > widths["6"] > 3 * widths["1"]
    assert browser.run(TEXT.format(".icicle .named")).startswith("1 read (dataset.py:19)")


def test_the_sentinel_tells_of_itself(browser: Browser, page: Page) -> None:
    browser.open(page.link)
    for text in (
        "nodes watched\n2 of 3", "blind spots\nnvml is quarantined on 2 of 2 nodes",
        "reports\n2.0 of 2.0 a second",
        "one cycle\n4.2 ms", "memory\n181 MB of 2 GB", "series\n640 kB of 256 MB", "events lost\n3",
    ):  # fmt: skip
        shown(browser, "#health", text)


def test_ranks_are_sorted_by_what_is_chosen(browser: Browser, page: Page) -> None:
    browser.open(page.link)
    label = "document.querySelector('#jobs canvas')?.ariaLabel ?? ''"
    browser.until(f"({label}).includes('; node-0: 4 waiting; node-1: 3 waiting')", "by node")
    browser.run("document.querySelector('#jobs .ways input:checked').focus()")
    browser.press("ArrowRight", RIGHT)
    browser.until(f"({label}).includes('; waiting: 7 waiting; stopped: 1 stopped')", "by state")
    assert browser.run("document.activeElement.value") == "state"


def test_one_of_very_many_ranks_is_reached_by_its_cell_and_its_number(browser: Browser) -> None:
    page = page_of(incident(), ranks=8192)
    try:
        browser.open(page.link)
        shown(browser, "#jobs", "8192 of 8192")
        click(browser, "rank 4711 ")
        shown(browser, "#detail h2", "rank 4711 of llama")
        browser.press("Escape", ESCAPE)
        browser.until("document.querySelector('#jobs form').checkVisibility()", "back")
        browser.run("document.querySelector('#jobs form input').focus()")
        for digit in "8000":
            browser.press(digit, ord(digit), digit)
        browser.press("Enter", ENTER, "\r")
        shown(browser, "#detail h2", "rank 8000 of llama")
    finally:
        page.close()


def test_a_number_that_is_being_written_outlives_a_refresh(browser: Browser) -> None:
    looks = [0]

    def told() -> Status:
        looks[0] += 1
        now = status(ranks=300)
        job = msgspec.structs.replace(now.jobs[0], step=2000 + looks[0])
        return msgspec.structs.replace(now, jobs=(job,))

    page = Page(PageSource(told, tuple, pulse=report, lanes=lanes, gpus=gpus), port=0)
    try:
        browser.open(page.link)
        shown(browser, "#jobs", "300 of 300")
        browser.run("document.querySelector('#jobs form input').focus()")
        browser.press("2", ord("2"), "2")
        later = looks[0] + 3
        browser.until(f"Number(/step\\n(\\d+)/.exec({TEXT.format('#jobs')})[1]) > 2000 + {later}",
                      "it is drawn anew")  # fmt: skip
        browser.press("9", ord("9"), "9")
        assert browser.run("document.activeElement.value") == "29"
    finally:
        page.close()


def test_of_two_of_one_name_each_leads_to_its_own_view(browser: Browser) -> None:
    now = status()
    ranks, actors = now.jobs
    twin = msgspec.structs.replace(ranks.ranks[3], host="node-7", pid=7777)
    other = msgspec.structs.replace(actors.members[1], host="node-8", pid=8888)
    jobs = (
        msgspec.structs.replace(ranks, job="a/b %#ü", ranks=(*ranks.ranks, twin)),
        msgspec.structs.replace(actors, members=(*actors.members, other)),
    )
    both = msgspec.structs.replace(now, jobs=jobs)
    source = PageSource(lambda: both, tuple, pulse=report, lanes=lanes, gpus=gpus)
    page = Page(source, port=0)
    links = "[...document.querySelectorAll('#jobs a')]"
    try:
        browser.open(page.link)
        shown(browser, "#jobs", "7777")
        for name, pids in (("3", ("4003", "7777")), ("Rollout 2", ("72", "8888"))):
            for place, pid in zip((0, -1), pids, strict=True):
                of_name = f"{links}.filter((one) => one.innerText === {name!r})"
                browser.run(f"location.hash = {of_name}.at({place}).hash")
                shown(browser, "#detail", f"pid\n{pid}")
    finally:
        page.close()


def test_what_the_reader_did_to_an_incident_outlives_its_being_drawn_anew(
    browser: Browser,
) -> None:
    told = [with_stacks(incident(), deep=60)]
    page = Page(
        PageSource(status, lambda: tuple(told), pulse=report, lanes=lanes, gpus=gpus), port=0
    )
    try:
        browser.resize(420, 700)
        browser.open(page.link + "#incident/0001")
        shown(browser, ".tree", "62 frames above")
        assert browser.run("navigator.clipboard.writeText = () => Promise.reject(), true")
        browser.run("document.querySelector('#detail button').click()")
        browser.until("document.querySelector('#detail textarea') !== null", "text to copy")
        browser.run(
            """
            [...document.querySelectorAll('.branch')].at(-1).open = false;
            document.querySelector('.outer').open = true;
            document.querySelector('#detail details:not(.tree details)').open = false;
            const wide = [...document.querySelectorAll('#detail .scroll')].at(-1);
            wide.scrollLeft = 40;
            const input = document.querySelector('input[type=search]');
            input.focus();
            input.value = 'loader';
            input.dispatchEvent(new Event('input'));
            input.setSelectionRange(2, 4);
            document.querySelector('.tree').scrollIntoView();
            window.wasAt = [scrollY, wide.scrollLeft];
            """
        )
        assert all(browser.run("wasAt"))
        more = Transition(NOW - 1.0, "captured", "another look")
        told[0] = msgspec.structs.replace(told[0], history=(*told[0].history, more))
        shown(browser, "#detail", "another look")
        assert not browser.run("[...document.querySelectorAll('.branch')].at(-1).open")
        assert browser.run("document.querySelector('.outer').open")
        assert not browser.run("document.querySelector('#detail details:not(.tree details)').open")
        assert browser.run("document.activeElement.value") == "loader"
        assert browser.run("document.activeElement.selectionStart") == 2
        assert browser.run(TEXT.format(".hit")) == "next_batch (loader.py:52)"
        shown(browser, ".search", "1 place")
        assert browser.run("document.querySelector('#detail textarea').value.length") > 100
        place = "[scrollY, [...document.querySelectorAll('#detail .scroll')].at(-1).scrollLeft]"
        assert browser.run(place) == browser.run("wasAt")
        browser.run("[...document.querySelectorAll('.branch > summary')].at(-1).focus()")
        told[0] = msgspec.structs.replace(told[0], history=told[0].history[:-1])
        browser.until("!document.body.innerText.includes('another look')", "it is drawn anew")
        assert (
            browser.run("document.activeElement.innerText")
            == "6all_reduce (distributed_c10d.py:2300)"
        )
    finally:
        page.close()


def test_a_pulse_that_cannot_be_told_is_said_until_it_is_again(browser: Browser) -> None:
    broken = [True]

    def told() -> PulseReport:
        if broken[0]:
            raise ValueError("no pulse")
        return report()

    page = Page(PageSource(status, lambda: (incident(),), pulse=told, gpus=gpus), port=0)
    try:
        browser.open(page.link)
        shown(browser, "#pulse .trouble", "The pulse cannot be told (/api/v1/pulse: 500)")
        assert browser.run("document.querySelector('#pulse .trouble').checkVisibility()")
        broken.clear()
        broken.append(False)
        browser.until("document.querySelectorAll('#pulse svg').length === 3", "it is drawn")
        assert not browser.run("document.querySelector('#pulse .trouble').checkVisibility()")
        broken[0] = True
        shown(browser, "#pulse .trouble", "what is below is of ")
        assert browser.run("document.querySelectorAll('#pulse svg').length") == 3
        browser.complaints.clear()  # the browser tells of each answer 500
    finally:
        page.close()


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
    for name, unit in (
        ("memory", "100 %"), ("power", " W"), ("temperature", "°C"), ("clock", " MHz"),
        ("memory-clock", "2619 MHz"),
    ):  # fmt: skip
        browser.press("ArrowRight", RIGHT)
        browser.until(f"document.querySelector('.gpus.{name}') !== null", f"GPUs by {name}")
        shown(browser, "#gpus .ramp", unit)
        assert browser.run("document.activeElement.value") == name


def test_ports_that_are_down_come_first(browser: Browser, page: Page) -> None:
    browser.open(page.link)
    shown(browser, "#ports", "mlx5_2/1 down")
    assert browser.run(TEXT.format("#ports .hosts")).startswith("node-1")
    assert browser.run("document.querySelectorAll('#ports .ports .bad').length") == 1
    shown(browser, "#ports .legend", "4 ports not reported for more than 30 s")


def test_ports_tell_their_traffic_and_their_errors(browser: Browser, page: Page) -> None:
    browser.open(page.link)
    shown(browser, "#ports .hosts", "GB/s received")
    shown(browser, "#ports .hosts", "mlx5_0/1: 30 retransmitted packets")
    browser.run("document.querySelector('#ports input[value=errors]').click()")
    shown(browser, "#ports .legend", "1 port with errors")
    assert browser.run("document.querySelectorAll('#ports .ports .warn').length") == 1
    assert browser.run("document.activeElement.value ?? ''") in ("", "errors")
    browser.run("document.querySelector('#ports input[value=received]').click()")
    shown(browser, "#ports .ramp", "GB/s")
    title = "document.querySelector('#ports .ports i').title"
    assert "GB/s in, " in browser.run(title)


def test_rounds_of_stacks_are_chosen_and_what_moved_between_two_is_marked(browser: Browser) -> None:
    page = page_of(with_stacks(incident()))
    try:
        browser.open(page.link + "#incident/0001")
        shown(browser, ".tree", "rank 0 moved: it was in forward (model.py:9)")
        pick = "document.querySelector('#detail [data-key=\"{}\"]')"
        options = f"[...{pick.format('round')}.options].map((one) => one.text)"
        assert browser.run(options) == [
            "3 of 3, the newest",
            "2 of 3, 2.0 s before",
            "1 of 3, 4.0 s before",
        ]
        browser.run(f"{pick.format('round')}.focus()")
        browser.press("ArrowDown", DOWN)
        shown(browser, ".tree", "forward (model.py:9)")
        shown(browser, ".tree", "moved: it was in load (model.py:3)")
        browser.run(f"{pick.format('compared with')}.focus()")
        browser.press("ArrowDown", DOWN)
        shown(browser, "#detail .filters", "1 of 2 stacks moved between the two")
        assert (
            browser.run("document.querySelector('.tree .moved').textContent")
            == "forward (model.py:9)"
        )
        shown(browser, ".tree", "moved: it was in all_reduce (distributed_c10d.py:2300)")
    finally:
        page.close()


def test_the_pulse_is_read_by_the_keyboard(browser: Browser, page: Page) -> None:
    browser.open(page.link)
    browser.until("document.querySelector('#pulse svg') !== null", "the pulse is drawn")
    browser.run("document.querySelector('#pulse svg').focus()")
    shown(browser, "#pulse .readout", "longest")
    before = browser.run(TEXT.format("#pulse .readout"))
    browser.press("ArrowLeft", LEFT)
    assert browser.run(TEXT.format("#pulse .readout")) != before


def test_what_happened_to_a_job_is_marked_in_its_pulse_and_read_by_the_keyboard(
    browser: Browser, page: Page
) -> None:
    browser.open(page.link)
    shown(browser, "#pulse .legend", "node-1: GPU 3 Xid 94: ECC error")
    shown(browser, "#pulse .legend", "network 4 times")
    titles = browser.run(
        "[...document.querySelectorAll('#pulse g.event title')].map((t) => t.textContent)"
    )
    assert [title.partition(" node")[2] for title in titles] == [
        "-0: mlx5_0: Link DOWN (4 times)",
        "-1: Out of memory: python",
        "-1: GPU 3 Xid 94: ECC error",
    ]
    browser.run("document.querySelector('#pulse svg[tabindex]').focus()")
    read = set()
    for _ in range(360):
        browser.press("ArrowLeft", LEFT)
        read.add(browser.run(TEXT.format("#pulse .readout")))
    for text in ("Xid 94", "Out of memory", "Link DOWN", "checkpoint for 41.0 s"):
        assert any(text in one for one in read), text


@pytest.mark.parametrize("address", ["", "#incident/0001", "#process/llama/1/rank%203"])
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
        assert browser.run("document.title").startswith("2 jobs hung")
        assert browser.run("document.querySelectorAll('.tree code').length") == 509
        assert browser.run("document.documentElement.scrollWidth") <= 1280
    finally:
        page.close()


def test_a_hang_of_ranks_is_drawn_on_its_card_and_in_the_incident(
    browser: Browser, page: Page
) -> None:
    browser.open(page.link)
    names = "[...document.querySelectorAll('{} .waits .name')].map((one) => one.textContent).join()"
    drawn = "ranks 0-2, 4-6,rank 7,rank 3"
    card = names.format("#incidents .card:last-child")
    browser.until(f"{card} === {drawn!r}", "the classes of ranks are drawn")
    assert browser.run("document.querySelectorAll('#incidents .arrow[marker-end]').length") == 5
    browser.run("location.hash = '#incident/0001'")
    browser.until(f"{names.format('#detail')} === {drawn!r}", "they are drawn in the incident")
    label = browser.run("document.querySelector('#detail .waits svg').getAttribute('aria-label')")
    assert "what holds them up: rank 3" in label


def test_alerts_of_telemetry_are_told_the_worst_first(browser: Browser) -> None:
    hot = tuple(
        Alert(rule="gpu.hot", severity="warning", text=f"GPU {n} is at 92 °C", since=NOW - 200.0)
        for n in range(40)
    )
    down = Alert(rule="rdma.down", severity="critical", text=f"a port is down{HOSTILE}")
    now = status()
    jobs = (msgspec.structs.replace(now.jobs[0], alerts=(*hot, down)), now.jobs[1])
    told = msgspec.structs.replace(now, jobs=jobs)
    page = Page(PageSource(lambda: told, tuple, pulse=report, gpus=gpus), port=0)
    try:
        browser.open(page.link)
        shown(browser, "#alerts li", "critical")
        shown(browser, "#alerts li", "a port is down<img")
        shown(browser, "#alerts", "40 places")
        shown(browser, "#alerts time", "3 min ago")
        shown(browser, "#contents", "Alerts41")
        assert browser.run("document.querySelectorAll('#alerts .rows > li').length") == 2
    finally:
        page.close()


def test_what_is_over_is_filtered_and_reached_back_to_the_first(browser: Browser) -> None:
    def over(number: int) -> Incident:
        return msgspec.structs.replace(
            incident(number=f"{number:03}"),
            state="resolved" if number % 2 else "dismissed",
            job=f"job {number % 3}{HOSTILE}",
            resolved_at=NOW,
        )

    page = page_of(incident(number="open"), *map(over, range(50)))
    rows = "document.querySelectorAll('#past li').length"
    older = "document.querySelector('#past button')"
    try:
        browser.open(page.link)
        browser.until("document.querySelectorAll('#incidents h3').length === 1", "one is open")
        for number in (20, 40, 50):
            browser.until(f"{rows} === {number}", f"{number} rows")
            assert browser.run(f"{older}.checkVisibility()") is (number < 50)
            browser.run(f"{older}.click()")
        browser.run(
            """
            const job = document.querySelectorAll('#past select')[1];
            job.value = job.options[1].value;
            job.dispatchEvent(new Event('change'));
            """
        )
        browser.until(f"{rows} === 17 || {rows} === 16", "those of one job")
        shown(browser, "#past li", "over after 12 s")
        browser.run("document.querySelector('#past li a').click()")
        shown(browser, "#detail h2", "rank 3 on node-1 is stopped")
        assert browser.run("document.querySelectorAll('img').length") == 0
    finally:
        page.close()


def test_more_open_ones_than_cards_are_shown_in_the_list(browser: Browser) -> None:
    page = page_of(*(incident(number=f"{number:03}") for number in range(30)))
    try:
        browser.open(page.link)
        shown(browser, "#incidents", "10 more are open.")
        browser.run("document.querySelector('#incidents .actions button').click()")
        browser.until("document.querySelectorAll('#past li').length === 20", "they are listed")
    finally:
        page.close()


def test_the_parts_of_the_page_are_reached_from_its_head(browser: Browser, page: Page) -> None:
    browser.open(page.link)
    shown(browser, "#contents", "Network")
    browser.run("[...document.querySelectorAll('#contents a')].at(-1).click()")
    browser.until("scrollY > 300", "it goes there")
    browser.run("location.hash = '#incident/0001'")
    shown(browser, "#detail h2", "rank 3")
    browser.run("document.querySelector('#contents a[href=\"#gpus\"]').click()")
    place = "document.getElementById('gpus').getBoundingClientRect().top"
    browser.until(f"document.querySelector('#gpus').checkVisibility() && {place} < 200", "GPUs")


def test_the_state_is_seen_in_the_tab_and_in_two_columns(browser: Browser, page: Page) -> None:
    browser.open(page.link)
    shown(browser, "#state", "2 jobs hung")
    assert browser.run("document.querySelector('link[rel=icon]').href").endswith("/mark-bad.svg")
    left = "document.getElementById('{}').getBoundingClientRect().left"
    for width, beside in ((1280, True), (900, False)):
        browser.resize(width, 900)
        assert browser.run(f"{left.format('jobs')} > {left.format('incidents')}") is beside
    shown(browser, "#incidents time", " ago")
    assert "2027" in browser.run("document.querySelector('#incidents time').title")


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
    shown(browser, "#verdict", "what is below is of ")
    shown(browser, "#clock", " s old")
    shown(browser, "#incidents", "rank 3 on node-1 is stopped")
    assert browser.run("getComputedStyle(document.querySelector('main')).filter") == "grayscale(1)"
    browser.complaints.clear()  # the browser tells of each request that fails


def test_blind_spots_are_named_by_collector_with_the_number_of_nodes(
    browser: Browser, page: Page
) -> None:
    browser.open(page.link)
    shown(browser, "#health", "nvml is quarantined on 2 of 2 nodes")
    assert browser.run("document.querySelector('#health .t-warn').title") == "node-0: slow"


def test_a_rank_tells_the_command_for_its_stack(browser: Browser) -> None:
    now = status()
    job = msgspec.structs.replace(now.jobs[0], job="it's $(x)", ray_job="02000000")
    told = msgspec.structs.replace(now, jobs=(job,))
    page = Page(PageSource(lambda: told, tuple, pulse=report, gpus=gpus), port=0)
    try:
        browser.open(page.link + "#process/it's%20%24(x)/1/rank%203")
        shown(browser, "#detail code", "ray-sentinel dump --job 'it'\\''s $(x)'")
        shown(browser, "#detail p:nth-of-type(2) code", "ray-sentinel stacks --job 02000000")
    finally:
        page.close()
