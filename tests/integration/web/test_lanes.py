"""The lanes over time in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_sentinel.web.page import Page
from ray_sentinel.web.routes import PageSource
from tests.support.browser import Browser
from tests.support.page_data import HOSTILE, incident, incident_of_actors, status
from tests.support.page_gpus import gpus
from tests.support.page_lanes import report
from tests.support.page_pulse import report as pulse

pytestmark = pytest.mark.integration

LEFT, DOWN = 37, 40
READOUT = "document.querySelector('.lanes .readout').textContent"


def test_lanes_are_read_and_zoomed_by_the_keyboard(tmp_path: Path) -> None:
    told = (incident(), incident_of_actors())
    source = PageSource(status, lambda: told, pulse=pulse, gpus=gpus, lanes=report)
    page = Page(source, port=0)
    try:
        with Browser(tmp_path / "browser") as browser:
            browser.open(page.link)
            browser.until("document.querySelectorAll('.lanes canvas').length === 2", "two jobs")
            label = browser.run(
                "document.querySelector('.lanes canvas').getAttribute('aria-label')"
            )
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


def test_hostile_names_stay_text_in_lanes(tmp_path: Path) -> None:
    source = PageSource(
        lambda: status(hostile=HOSTILE), tuple, pulse=pulse, gpus=gpus,
        lanes=lambda: report(HOSTILE),
    )  # fmt: skip
    page = Page(source, port=0)
    try:
        with Browser(tmp_path / "browser") as browser:
            browser.open(page.link)
            browser.until("document.querySelectorAll('.lanes canvas').length === 2", "two jobs")
            assert browser.run("document.querySelectorAll('.lanes img').length") == 0
            assert "owned" not in browser.run("document.title")
            assert browser.complaints == []
    finally:
        page.close()
