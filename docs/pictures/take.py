"""Takes the pictures of the README and the docs: ``make pictures [NAMES="top lanes ..."]``.

The page is served as it is, by the tests' own job: a training of eight ranks, one of which is
stopped, beside reinforcement learning in which a rollout stands still. Chromium draws it, and the
reports. Textual draws the terminal. A section that the page does not have is left out, and said.
"""

from __future__ import annotations

import io
import math
import random
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

import msgspec  # noqa: E402

from ray_sentinel.diagnose.comparison import Side, compare  # noqa: E402
from ray_sentinel.diagnose.logs import LogFacts  # noqa: E402
from ray_sentinel.logs.catalogue import load_catalogue  # noqa: E402
from ray_sentinel.logs.triage import triage_path  # noqa: E402
from ray_sentinel.model.diagnosis import CauseLocation, Diagnosis, Plot  # noqa: E402
from ray_sentinel.model.health import (  # noqa: E402
    GpuHealth,
    GpuState,
    Health,
    NodeView,
    TransportHealth,
)
from ray_sentinel.model.incident import Incident  # noqa: E402
from ray_sentinel.report.html import (  # noqa: E402
    comparison_html,
    health_html,
    incident_html,
    triage_html,
)
from ray_sentinel.report.series import FILE, PLOTS_FILE, plots_json  # noqa: E402
from ray_sentinel.web.page import Page  # noqa: E402
from ray_sentinel.web.routes import PageSource  # noqa: E402
from tests.support.browser import Browser  # noqa: E402
from tests.support.diagnosis import case_of  # noqa: E402
from tests.support.log_corpus.layouts import LAYOUTS  # noqa: E402
from tests.support.log_corpus.scenarios import SCENARIOS  # noqa: E402
from tests.support.page_data import incident, incident_of_actors, status  # noqa: E402
from tests.support.page_gpus import gpus, map_of, ports, rank_gpus  # noqa: E402
from tests.support.page_lanes import report as lanes  # noqa: E402
from tests.support.page_nodes import cluster, stopped  # noqa: E402
from tests.support.page_pulse import FIRST, report, steps  # noqa: E402
from tests.support.page_rank import groups, output, series  # noqa: E402
from tests.support.page_stacks import with_stacks  # noqa: E402
from tests.support.top_screen import TopScreen, drawn, served_page  # noqa: E402
from tests.support.tsdb_scenarios.world import World  # noqa: E402

COLOURS = 256
"""Of a picture, where Pillow is there: half of the bytes, and no difference to be seen."""
TALLEST = 1400
"""Pixels of a report; the rest of it is cut off."""
MARGIN = 12
"""Around a section."""
MANY = 512
"""Ranks of the job in which cells are shown."""
FONT = re.compile(r"@font-face \{[^}]*\}\s*")
"""Would be fetched from elsewhere; any monospace font does."""
STILL = "new Promise((done) => setTimeout(done, 1000))"


class View(NamedTuple):
    """A picture of the page."""

    name: str
    place: str = ""
    """Behind the page's address."""
    section: str = ""
    """A selector of what is taken; empty for what is seen of the page at first."""
    size: tuple[int, int] = (1200, 760)
    scheme: str = "light"
    many: bool = False
    """Of the job of many ranks."""
    colour: str = ""
    """By which its cells are coloured, on nodes of eight GPUs; empty for their state."""


VIEWS = (
    View("page-light"),
    View("page-dark", scheme="dark"),
    View("incident-light", "#incident/0001"),
    View("incident-dark", "#incident/0001", scheme="dark"),
    View("incident-whole", "#incident/0001", "#detail"),
    View("pulse", section="#pulse"),
    View("lanes", section="#lanes"),
    View("cells", section="#jobs", many=True),
    View("cells-power", section="#jobs", colour="power"),
    View("gpus", section="#gpus", scheme="dark"),
    View("network", section="#ports"),
    View("rank", "#process/llama/1/rank%203", "#detail"),
    View("phone", size=(390, 844), scheme="dark"),
)
RECT = """(() => {
  const one = document.querySelector(%r);
  if (!one || one.hidden) return null;
  const at = one.getBoundingClientRect();
  return [at.left + scrollX, at.top + scrollY, at.width, at.height];
})()"""
DRAWN = "(document.body?.innerText.length || 0) > 200"


def hung() -> Incident:
    """The stopped rank's incident as the engine writes it, with the classes of ranks that wait."""
    found = with_stacks(incident())
    assert found.verdict is not None
    waiting = ("ranks 0-2, 4-6: in all_reduce", "rank 7: in barrier")
    return msgspec.structs.replace(
        found, verdict=msgspec.structs.replace(found.verdict, waiting=waiting)
    )


def take_page(browser: Browser, wanted: Callable[[str], bool]) -> None:
    """The pictures of the page."""
    told = (hung(), incident_of_actors())
    small, many = (
        PageSource(
            partial(status, ranks=ranks), lambda: told, pulse=report, gpus=gpus, lanes=lanes,
            ports=ports, rank=series, output=output, groups=partial(groups, ranks),
        )
        for ranks in (8, MANY)
    )  # fmt: skip
    for source, its in (
        (small, lambda view: not view.many and not view.colour),
        (many, lambda view: view.many),
        (with_gpus(), lambda view: view.colour),
    ):
        views = [view for view in VIEWS if its(view) and wanted(view.name)]
        if views:
            take_views(browser, source, views)


def with_gpus() -> PageSource:
    """Sixteen nodes of eight GPUs, one of which belongs to a rank that is stopped."""
    state = cluster(16, scene="stopped")
    told = partial(rank_gpus, state)
    return PageSource(
        lambda: state, lambda: (stopped(state),), pulse=report, lanes=lanes, rank_gpus=told,
        gpus=lambda quantity: map_of(told(quantity)),
    )  # fmt: skip


def take_views(browser: Browser, source: PageSource, views: list[View]) -> None:
    """Some pictures of one page."""
    page = Page(source, port=0)
    try:
        for view in views:
            browser.resize(*view.size)
            browser.prefer(view.scheme)
            browser.open("about:blank")
            browser.open(page.link + view.place)
            browser.until(DRAWN, f"{view.name} is drawn")
            browser.run(STILL)
            if view.colour:
                browser.run(f"document.querySelector('#jobs input[value={view.colour}]').click()")
                browser.until("document.querySelector('#jobs .ramp') !== null", "the colours")
                browser.run(STILL)
            take(browser, view.name, view.section)
    finally:
        page.close()


def take(browser: Browser, name: str, section: str, tallest: float = math.inf) -> None:
    """What is seen, or a section of the document, as ``NAME.png``."""
    part = None
    if section:
        rect = browser.run(RECT % section)
        if rect is None or rect[2] * rect[3] < 1:
            print_line(f"{name}: left out, there is no {section}")
            return
        left, top, width, height = rect
        part = (
            max(left - MARGIN, 0.0), max(top - MARGIN, 0.0),
            width + 2 * MARGIN, min(height + 2 * MARGIN, tallest),
        )  # fmt: skip
    data = small(browser.picture(of=part))
    (HERE / f"{name}.png").write_bytes(data)
    print_line(f"{name}.png: {len(data) / 1000:.0f} kB")


def print_line(line: str) -> None:
    """Print a line for whoever runs this program."""
    sys.stdout.write(f"{line}\n")


def small(png: bytes) -> bytes:
    """The same picture in fewer bytes, where Pillow is there."""
    try:
        from PIL import Image
    except ModuleNotFoundError:
        return png
    out = io.BytesIO()
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    # Not by how much of it is in a colour: a single dot in red tells more than all of the white.
    few = picture.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(out, "PNG", optimize=True)
    return min(png, out.getvalue(), key=len)


def diagnosis_of_hang() -> Diagnosis:
    """What the series around the stopped rank's incident say."""
    (lane,) = steps().shown_lanes(FIRST)
    points = [point for point in lane.points if point[0] >= 270]
    times = tuple(10.0 * (FIRST + number) for number, *_ in points)
    at = (*times, *(times[-1] + 10.0 * number for number in range(1, 7)))
    gone = len(at) - len(times)
    hole = (math.nan,) * gone

    def power(usual: float, after: float) -> tuple[float, ...]:
        noise = random.Random(usual)
        waits = [after + noise.gauss(0, 4) for _ in range(gone)]
        return (*(usual + noise.gauss(0, 9) for _ in times), *waits)

    means = tuple(mean for _, _, mean, _ in points)
    plots = (
        Plot(
            title="step time", unit="s", promql="", times=at,
            series=(("mean of 8 ranks", (*means, *hole)),),
        ),
        Plot(
            title="GPU power", unit="W", promql="", times=at,
            series=(
                ("node-1 GPU 1", power(640.0, 92.0)), ("mean of 7 others", power(655.0, 240.0)),
            ),
        ),
    )  # fmt: skip
    return Diagnosis(
        analysis="hang",
        outcome="found",
        cause="stopped",
        root_cause="node-1 GPU 1 has drawn idle power since 07:59:50; the 7 others wait busily",
        confidence=0.8,
        culprits=(CauseLocation(host="node-1", gpu="1", reason="idle"),),
        plots=plots,
    )


def incident_report() -> str:
    """``report.html`` of the stopped rank, with the series around it."""
    return incident_html(hung(), diagnosis_of_hang())


def comparison_report() -> str:
    """Two jobs, on a node of the second of which something else runs."""

    def side(title: str, *, loaded: bool) -> Side:
        world = World(seed=1, hosts=4, gpus=2)
        world.step_seconds = 8.0
        if loaded:
            world.slowdown[len(world.slowdown) // 3 :] *= 1.25
            world.gauges["hw_procs_running"][2] += 180.0
        world.play()
        case = case_of(world)
        case.logs = LogFacts(config={"loader_workers": "12" if loaded else "4"})
        return Side(title=title, case=case, logs=case.logs)

    both = side("jobs/1233", loaded=False), side("jobs/1240", loaded=True)
    return comparison_html([compare(*both)])


def health_report() -> str:
    """64 GPUs, one of which is hot and one idle."""
    chance = random.Random(1)

    def gpu(node: int, index: int) -> GpuState:
        busy = min(chance.gauss(93, 3) if chance.random() > 0.2 else chance.gauss(70, 5), 100.0)
        return GpuState(
            index=str(index),
            name="NVIDIA H100 80GB HBM3",
            utilization_percent=0.0 if (node, index) == (5, 7) else busy,
            memory_used_bytes=int(chance.gauss(61, 2) * 2**30),
            memory_total_bytes=80 << 30,
            power_watts=chance.gauss(610, 30),
            temperature_celsius=93.0 if (node, index) == (3, 2) else chance.gauss(63, 4),
        )

    nodes = tuple(
        NodeView(host=f"node-{number}", gpus=tuple(gpu(number, index) for index in range(8)))
        for number in range(8)
    )
    return health_html(
        Health(
            healthy=False,
            verdict="1 of 64 GPUs does nothing for the training",
            issues=("node-5 GPU 7 does nothing for the training",),
            gpu=GpuHealth(
                count=64, busy=63, processes=64, avg_utilization=88.0, power_watts=39_040.0
            ),
            transport=TransportHealth(used="infiniband", by="log", devices=("mlx5_0", "mlx5_1")),
            progress={
                "llama": {"state": "healthy", "step": 1204, "step_age": 0.4, "step_seconds": 0.83}
            },
            nodes=nodes,
        )
    )


def triage_report() -> str:
    """The logs of a job of eight ranks, one of which lost its GPU."""
    job, _ = SCENARIOS["gpu_lost"](11)
    with tempfile.TemporaryDirectory() as folder:
        root = LAYOUTS["ray-tree"](job, Path(folder) / "job")
        return triage_html(triage_path(root, load_catalogue(), now=job.now + 86400))


REPORTS = {
    "report": incident_report,
    "comparison": comparison_report,
    "health": health_report,
    "triage": triage_report,
}


def take_reports(browser: Browser, wanted: Callable[[str], bool]) -> None:
    """The pictures of the pages that are files."""
    browser.prefer("light")
    browser.resize(1000, 900)
    for name, written in REPORTS.items():
        if wanted(name):
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / f"{name}.html"
                file.write_text(written(), encoding="utf-8")
                browser.open(file.as_uri())
                browser.until("document.querySelector('footer') !== null", f"{name} is drawn")
                take(browser, name, "main", TALLEST)


NOTEBOOK = (
    "from ray_sentinel import notebook\n\n"
    'report = notebook.read_incident("incidents/0001")\nreport',
    'report.frames()["step time"].dropna().tail(3)',
)


def take_notebook(browser: Browser) -> None:
    """An incident in a notebook that is run for real, drawn as JupyterLab draws it."""
    try:
        import nbformat
        from nbconvert import HTMLExporter
        from nbconvert.preprocessors import ExecutePreprocessor
    except ModuleNotFoundError as error:
        print_line(
            f"notebook: left out, needs pip install nbconvert ipykernel pandas ({error.name})"
        )
        return
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder) / "incidents" / "0001"
        bundle.mkdir(parents=True)
        (bundle / "incident.json").write_bytes(msgspec.json.encode(hung()))
        told = diagnosis_of_hang()
        without = msgspec.structs.replace(told, plots=())
        (bundle / FILE).write_bytes(msgspec.json.encode(without))
        (bundle / PLOTS_FILE).write_bytes(plots_json(told.plots))
        cells = [nbformat.v4.new_code_cell(source) for source in NOTEBOOK]
        book = nbformat.v4.new_notebook(cells=cells)
        ExecutePreprocessor(timeout=60).preprocess(book, {"metadata": {"path": folder}})
        # Its own scripts would be fetched from elsewhere.
        page, _ = HTMLExporter(template_name="lab").from_notebook_node(book)
        page = re.sub(r"<script[^>]* src=[^>]*></script>", "", page)
        file = Path(folder) / "notebook.html"
        file.write_text(page, encoding="utf-8")
        browser.open(file.as_uri())
        browser.until("document.querySelectorAll('.jp-OutputArea-output').length > 1", "its cells")
        browser.run(STILL)
        take(browser, "notebook", "body", TALLEST)


def take_top() -> None:
    """``top.svg``: the terminal, small."""

    async def see(screen: TopScreen) -> str:
        await screen.text()
        return FONT.sub("", screen.app.export_screenshot(title="ray-sentinel top"))

    told = (incident_of_actors(), hung())
    with served_page(partial(status, ranks=64), lambda: told, report) as (found, _):
        (HERE / "top.svg").write_text(drawn(found, see, size=(80, 18)), encoding="utf-8")


@contextmanager
def a_browser() -> Iterator[Browser]:
    """One that keeps nothing."""
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        Browser(Path(folder)) as browser,
    ):
        yield browser


def main(names: list[str]) -> None:
    """All pictures, or those that are named."""

    def wanted(name: str) -> bool:
        return not names or name in names

    if wanted("top"):
        take_top()
    if any(wanted(name) for name in (*REPORTS, "notebook", *(view.name for view in VIEWS))):
        with a_browser() as browser:
            if wanted("notebook"):
                browser.resize(900, 900)
                browser.prefer("light")
                take_notebook(browser)
            take_reports(browser, wanted)
            take_page(browser, wanted)


if __name__ == "__main__":
    main(sys.argv[1:])
