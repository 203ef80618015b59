"""How smoothly the page goes on with thousands of ranks, in a Chromium that renders in software.

    python bench/cells_page.py [--nodes 1024] [--per-node 8] [--seconds 10] [--colour power]

Each second the page is sent another step, and cells are drawn again; meanwhile its lanes are zoomed
and the pointer moves over the cells, once a frame. The browser's own trace says what counts as a
frame, and as a dropped one. Prints the time between two frames that were presented at the median
and at the 95th percentile, how many were dropped, what drawing all cells and all GPUs and ports
took, how many bytes came in a second, and the longest tasks of the page. With ``--colour`` (power
or utilisation) cells are coloured by what the GPU of each rank does, another level each second.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ray_sentinel.web.page import Page
from ray_sentinel.web.routes import PageSource
from tests.support.browser import Browser
from tests.support.page_frames import CATEGORIES, frames_of
from tests.support.page_gpus import map_of, ports, rank_gpus
from tests.support.page_lanes import report as lanes
from tests.support.page_nodes import cluster, moving
from tests.support.page_pulse import report as pulse

LANES = 72
"""As many as a job of thousands of ranks has: of groups, and of ranks that do something else."""
PICK = "document.querySelector('#jobs input[value={}]')"
MOVE = """new Promise((done) => {{
  const node = document.querySelector('.cells'), canvas = node.querySelector('canvas');
  const [out, into] = document.querySelectorAll('.zoom button');
  const tips = new Set(), until = performance.now() + 1000 * {seconds};
  let frames = 0;
  const took = (name) => performance.getEntriesByName(name).map((one) => one.duration);
  performance.clearMeasures('cells');
  requestAnimationFrame(function frame(now) {{
    (frames++ % 8 < 4 ? into : out).click();
    const {{ left, top }} = node.getBoundingClientRect();
    const x = (frames * 9) % canvas.clientWidth, y = (frames * 2) % canvas.clientHeight;
    const at = {{ clientX: left + x, clientY: top + y, bubbles: true }};
    node.dispatchEvent(new PointerEvent('pointermove', at));
    tips.add(node.querySelector('.tip').textContent);
    if (now < until) requestAnimationFrame(frame);
    else done([tips.size, took('cells'), took('heat')]);
  }});
}})"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1024)
    parser.add_argument("--per-node", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--colour", choices=("state", "power", "utilisation"), default="state")
    asked = parser.parse_args()
    number = asked.nodes * asked.per_node
    state, seconds = cluster(asked.nodes, asked.per_node), itertools.count()
    source = PageSource(
        moving(asked.nodes, asked.per_node), tuple, pulse=pulse,
        lanes=lambda: lanes(number=LANES),
        gpus=lambda quantity: map_of(rank_gpus(state, quantity)), ports=lambda: ports(asked.nodes),
        rank_gpus=lambda quantity: rank_gpus(state, quantity, next(seconds)),
    )  # fmt: skip
    page = Page(source, port=0)
    try:
        with (
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
            Browser(Path(folder), width=1280, height=1800) as browser,
        ):
            browser.open(page.link)
            browser.until("document.querySelector('.lanes canvas') !== null", "lanes are drawn")
            browser.until("document.querySelector('.cells canvas')?.dataset.cells", "cells are too")
            if asked.colour != "state":
                browser.until(f"{PICK.format(asked.colour)} !== null", "its colour can be chosen")
                browser.run(f"{PICK.format(asked.colour)}.click()")
                browser.until("document.querySelector('#jobs .ramp') !== null", "and is there")
            browser.run("document.querySelector('#lanes').scrollIntoView()")
            browser.settle()
            before = browser.received
            (tips, drawn, heats), events = browser.traced(
                MOVE.format(seconds=asked.seconds), CATEGORIES
            )
    finally:
        page.close()
    frames = frames_of(events)
    print(
        f"{number} ranks on {asked.nodes} nodes: {frames.a_second:.1f} frames a second; "
        f"{frames.median_ms:.1f} ms between two at the median, {frames.high_ms:.1f} ms at the 95th "
        f"percentile, {frames.longest_ms:.1f} ms at most; {frames.dropped} dropped of "
        f"{frames.presented + frames.dropped}; {tips} cells pointed at"
    )
    came = (browser.received - before) / asked.seconds
    print(f"{came / 1000:.1f} kB came in a second, of all that the page asks for")
    drawn.sort()
    print(
        f"all cells drawn {len(drawn)} times: {drawn[len(drawn) // 2]:.1f} ms at the median, "
        f"{drawn[-1]:.1f} ms at most"
    )
    print(f"GPUs and ports drawn: {', '.join(f'{took:.1f}' for took in heats)} ms")
    for name, took in frames.tasks[:5]:
        print(f"  {took:.1f} ms {name}")


if __name__ == "__main__":
    main()
