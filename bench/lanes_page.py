"""How smoothly the page's lanes zoom, in a real Chromium that renders in software.

    python bench/lanes_page.py [--lanes 72] [--stretches 8192] [--width 1280]

The page is served and drawn as always; its zoom buttons are pressed once a frame for some two
seconds, further in and further out by turns. Prints what the browser's own trace says: frames a
second, the time between two at the median and at the 95th percentile, and how many were dropped;
and the time that drawing one took.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ray_sentinel.engine.last_hour.lanes import Lanes
from ray_sentinel.model.last_hour import JobLanes, LanesReport
from ray_sentinel.web.page import Page
from ray_sentinel.web.routes import PageSource
from tests.support.browser import Browser
from tests.support.page_data import NOW, status
from tests.support.page_frames import CATEGORIES, frames_of
from tests.support.page_lanes import BEGIN

ZOOM = """new Promise((done) => {
  const [out, into] = document.querySelectorAll('.zoom button');
  const drawn = [], real = window.requestAnimationFrame;
  window.requestAnimationFrame = (call) => real((now) => {
    const begun = performance.now();
    call(now);
    drawn.push(performance.now() - begun);
  });
  let frames = 0;
  real(function frame(now) {
    (frames % 8 < 4 ? into : out).click();
    if (frames++ < 120) return real(frame);
    done(drawn.sort((a, b) => a - b)[drawn.length >> 1]);
  });
})"""


def busy(lanes: int, stretches: int, of_roles: bool) -> LanesReport:
    """An hour of a job whose lanes are full."""
    known = Lanes()
    for number in range(2 * stretches):
        role, at = f"Role{number % lanes}", BEGIN + 1800.0 * number / stretches
        known.call(f"{role}.m{number // lanes % 3}", at, at + 8.0)
    kinds, drawn = known.drawn(BEGIN, {})
    of = "roles" if of_roles else "ranks"
    job = JobLanes(job="train_rl-1", attempt=0, of=of, kinds=kinds, lanes=drawn)
    return LanesReport(begin=BEGIN, end=NOW, jobs=(job,))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lanes", type=int, default=72)
    parser.add_argument("--stretches", type=int, default=8192)
    parser.add_argument("--width", type=int, default=1280)
    asked = parser.parse_args()
    for of_roles in (False, True):
        report = busy(asked.lanes, asked.stretches, of_roles)
        number = sum(len(lane.stretches) for lane in report.jobs[0].lanes)
        page = Page(PageSource(status, tuple, lanes=lambda told=report: told), port=0)
        try:
            with (
                tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
                Browser(Path(folder), width=asked.width) as browser,
            ):
                browser.open(page.link)
                browser.until("document.querySelector('.lanes canvas') !== null", "it is drawn")
                browser.run("document.querySelector('#lanes').scrollIntoView()")
                drawing, events = browser.traced(ZOOM, CATEGORIES)
        finally:
            page.close()
        frames = frames_of(events)
        print(
            f"{len(report.jobs[0].lanes)} lanes of {report.jobs[0].of}, {number} stretches: "
            f"{frames.a_second:.0f} frames a second; {frames.median_ms:.1f} ms between two at the "
            f"median, {frames.high_ms:.1f} ms at the 95th percentile; {frames.dropped} dropped; "
            f"drawing {drawing:.1f} ms"
        )


if __name__ == "__main__":
    main()
