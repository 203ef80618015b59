"""The lanes over time in a real browser."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from ray_sentinel.cli.main import main
from ray_sentinel.model.last_hour import LanesReport
from ray_sentinel.model.straggler import StragglerStatus
from ray_sentinel.web.page import Page
from ray_sentinel.web.routes import PageSource
from tests.support.browser import Browser
from tests.support.page_data import HOSTILE, incident, incident_of_actors, status
from tests.support.page_gpus import gpus
from tests.support.page_lanes import report
from tests.support.page_pulse import report as pulse
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

LEFT, DOWN = 37, 40
READOUT = "document.querySelector('.lanes .readout').textContent"


@pytest.fixture
def browser(chromium: Browser) -> Browser:
    chromium.renew()
    return chromium


def test_lanes_are_read_and_zoomed_by_the_keyboard(browser: Browser) -> None:
    told = (incident(), incident_of_actors())
    source = PageSource(status, lambda: told, pulse=pulse, gpus=gpus, lanes=report)
    page = Page(source, port=0)
    try:
        browser.open(page.link)
        browser.until("document.querySelectorAll('.lanes canvas').length === 2", "two jobs")
        label = browser.run("document.querySelector('.lanes canvas').getAttribute('aria-label')")
        assert "rank 3: stopped" in label
        browser.run("document.querySelector('.lanes canvas').focus()")
        for _ in range(3):
            browser.press("ArrowDown", DOWN)
        browser.until(f"{READOUT}.startsWith('rank 3: stopped, 14.2 s')", "the stop is told")
        browser.press("ArrowLeft", LEFT)
        browser.until(f"{READOUT}.startsWith('rank 3: step')", "what was before it is told")
        browser.run("document.querySelector('.zoom button:nth-child(2)').click()")
        assert browser.complaints == []
    finally:
        page.close()


LANES = "document.querySelector('#lanes canvas')"


def test_new_answers_leave_the_canvas_the_keyboard_and_a_drag_where_they_are(
    browser: Browser,
) -> None:
    asked = [0]

    def later() -> LanesReport:
        asked[0] += 1
        told, by = report(), 10.0 * asked[0]
        return msgspec.structs.replace(told, begin=told.begin + by, end=told.end + by)

    source = PageSource(status, lambda: (incident(),), pulse=pulse, gpus=gpus, lanes=later)
    page = Page(source, port=0)
    try:
        browser.open(page.link)
        browser.until("document.querySelectorAll('.lanes canvas').length === 2", "two jobs")
        browser.run(f"window.first = {LANES}; first.focus()")
        for _ in range(3):
            browser.press("ArrowDown", DOWN)
        browser.until(f"{READOUT}.startsWith('rank 3: stopped')", "the stop is told")
        before = browser.run(f"{LANES}.toDataURL()")
        known = asked[0]
        eventually(lambda: asked[0] > known, "another answer", 30.0)
        browser.until(f"{LANES}.toDataURL() !== {before!r}", "it is drawn")
        assert browser.run(f"first === {LANES} && document.activeElement === first")
        browser.press("ArrowUp", 38)
        browser.until(f"{READOUT}.startsWith('rank 2:')", "the lane above the one before")
        assert browser.complaints == []
    finally:
        page.close()


def test_a_lane_leads_to_its_rank_and_a_mark_to_its_incident(browser: Browser) -> None:
    told = (incident(), incident_of_actors())
    page = Page(PageSource(status, lambda: told, pulse=pulse, gpus=gpus, lanes=report), port=0)
    press = """(([x, y]) => {{
      const box = {0}.getBoundingClientRect();
      const at = {{ clientX: box.x + x, clientY: box.y + y, bubbles: true, pointerId: 1 }};
      {0}.setPointerCapture = () => {{}};
      for (const kind of ["pointermove", "pointerdown", "pointerup"])
        {0}.dispatchEvent(new PointerEvent(kind, at));
    }})"""
    try:
        browser.open(page.link)
        browser.until("document.querySelectorAll('.lanes canvas').length === 2", "two jobs")
        browser.run(f"{press.format(LANES)}([20, 99])")
        browser.until("location.hash === '#process/llama/1/rank%205'", "to the rank")
        browser.run("location.hash = ''")
        browser.until(f"{LANES}.checkVisibility()", "back")
        browser.run(f"{press.format(LANES)}([{LANES}.clientWidth - 9, 20])")
        browser.until("location.hash === '#incident/0001'", "to the incident")
        browser.run("location.hash = ''")
        other = "document.querySelectorAll('.lanes canvas')[1]"
        browser.until(f"{other}.checkVisibility()", "back")
        browser.run(f"{other}.focus()")
        browser.press("ArrowDown", DOWN)
        browser.press("Enter", 13, "\r")
        browser.until("location.hash.startsWith('#process/train_rl-1/0/Rollout')", "its role")
        assert browser.complaints == []
    finally:
        page.close()


def test_hostile_names_stay_text_in_lanes(browser: Browser) -> None:
    source = PageSource(
        lambda: status(hostile=HOSTILE), tuple, pulse=pulse, gpus=gpus,
        lanes=lambda: report(HOSTILE),
    )  # fmt: skip
    page = Page(source, port=0)
    try:
        browser.open(page.link)
        browser.until("document.querySelectorAll('.lanes canvas').length === 2", "two jobs")
        assert browser.run("document.querySelectorAll('.lanes img').length") == 0
        assert "owned" not in browser.run("document.title")
        assert browser.complaints == []
    finally:
        page.close()


def test_a_rank_that_slows_its_job_down_is_told_on_its_lane(browser: Browser) -> None:
    known = status()
    slow = StragglerStatus(kind="slow-rank", ranks=(5,), host="node-1")
    job = msgspec.structs.replace(known.jobs[0], straggler=slow)
    told = msgspec.structs.replace(known, jobs=(job,))
    page = Page(PageSource(lambda: told, tuple, lanes=report), port=0)
    try:
        browser.open(page.link)
        label = "document.querySelector('.lanes canvas')?.ariaLabel"
        browser.until(f"({label} || '').includes('; rank 5, slow; rank 3: stopped')", "both")
    finally:
        page.close()


def test_a_page_is_asked_for_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = Page(PageSource(status, tuple, lanes=lambda: report(HOSTILE)), port=0)
    try:
        command = ["export", "perfetto", "--url", page.link]
        assert main([*command, "--to", str(tmp_path / "lanes.json")]) == 0
        said = capsys.readouterr()
        assert "lanes of 2 jobs" in said.out + said.err
        assert main([*command, "--job", "none", "--json"]) == 1
    finally:
        page.close()
    trace = json.loads((tmp_path / "lanes.json").read_text(encoding="utf-8"))
    names = {e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"}
    assert names == {f"llama{HOSTILE} (attempt 1)", "train_rl-1"}
    assert "\x1b" not in (tmp_path / "lanes.json").read_text(encoding="utf-8")
