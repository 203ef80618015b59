"""Reports in a real browser: nothing is wider than the screen, whatever names and numbers."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from ray_sentinel.model.health import GpuState, Health, NodeView
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.incident import ChainLink, Culprit, EvidenceItem, Incident, Verdict
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.model.triage import LogLine, Triage
from ray_sentinel.report.html import health_html, incident_html, status_html, triage_html
from tests.support.browser import Browser, rendered
from tests.support.incidents import an_incident
from tests.support.page_data import HOSTILE, incident_of_actors, status

pytestmark = pytest.mark.integration

MEASURE = """<iframe id="f" style="width: WIDTHpx; height: 900px; border: 0"></iframe>
<p id="told"></p>
<script>
const frame = document.getElementById("f");
frame.onload = () => {
  const root = frame.contentDocument.documentElement;
  const tables = [...root.querySelectorAll(".scroll")];
  const wide = tables.filter((one) => one.scrollWidth > one.clientWidth).length;
  document.getElementById("told").textContent =
    [root.scrollWidth, root.clientWidth, frame.contentDocument.title.length, wide].join(" ");
};
frame.srcdoc = PAGE;
</script>"""


def huge(text: str) -> Incident:
    """8,192 ranks, names of 10,000 characters, stacks 500 deep."""
    culprits = tuple(
        Culprit(rank=rank, host=text, pid=rank, reason=f"{text} {rank % 9}") for rank in range(8192)
    )
    deep = tuple(f"{text[:200]}{number} (x.py:{number})" for number in range(500))
    verdict = Verdict(
        kind="stall",
        summary=text,
        culprits=culprits,
        confidence=1.0,
        evidence=tuple(EvidenceItem(source="stacks", text=text, weight=1.0) for _ in range(100)),
        waiting=tuple(f"rank {rank}: {text}" for rank in range(8192)),
        next_steps=(text,),
        stacks=tuple(
            StackFact(process=ProcessId(text, pid, 1), signature=(*deep, f"f{pid}"), label=text)
            for pid in range(40)
        ),
    )
    return an_incident(job=text, summary=text, verdict=verdict, confirmed_at=9.0)


def of_a_long_chain(text: str) -> Incident:
    link = ChainLink(start=text, end=f"{text} at {text}", how="ray.get", since=1.0)
    verdict = Verdict(kind="actor-stuck", summary="s", chain=(link,) * 100)
    return msgspec.structs.replace(incident_of_actors(hostile=HOSTILE), verdict=verdict)


def of_logs(text: str) -> Triage:
    lines = (LogLine(file=f"{text}/worker-01.err", line=355, text=text, note="first cause"),)
    return Triage(
        kind="gpu-lost", outcome="failed", summary=text, confidence=0.9, evidence=lines * 5
    )


def of_nodes(text: str) -> Health:
    gpus = tuple(GpuState(index=str(at), name=text, utilization_percent=90.0) for at in range(8))
    job: dict[str, int | float | str | None]
    job = {"state": "healthy", "step": 1204, "step_age": 0.4, "step_seconds": 0.83}
    nodes = tuple(NodeView(host=f"{text}{at}", gpus=gpus) for at in range(4))
    return Health(healthy=True, verdict=text, progress={text: job}, nodes=nodes)


def pages() -> dict[str, str]:
    long, words = "x" * 10_000, "a word " * 1500
    return {
        "one word": incident_html(huge(long)),
        "words": incident_html(huge(words)),
        "chain": incident_html(of_a_long_chain(long)),
        "status": status_html(status(ranks=64, hostile=long), [huge(long)] * 20),
        "logs": triage_html(of_logs(long)),
        "nodes": health_html(of_nodes(long)),
    }


@pytest.mark.parametrize("width", [390, 1200])
@pytest.mark.parametrize("name", ["one word", "words", "chain", "status", "logs", "nodes"])
def test_a_page_fits_the_screen(name: str, width: int, chromium: Browser, tmp_path: Path) -> None:
    page = json.dumps(pages()[name]).replace("<", "\\u003c")
    file = tmp_path / "measure.html"
    file.write_text(MEASURE.replace("WIDTH", str(width)).replace("PAGE", page))
    shown = rendered(chromium, file.as_uri())
    told = shown.rsplit('<p id="told">', 1)[1].split("</p>")[0].split()
    needed, visible, title, wide = map(int, told)
    assert title, "the page was loaded"
    assert width - 30 < visible <= width, "but for a scroll bar"
    assert needed == visible
    assert not wide, "a table's rows are blocks where they would not fit"
