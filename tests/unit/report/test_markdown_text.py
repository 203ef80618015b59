"""Text of a job in reports: a real renderer makes the same document of it as of harmless text."""

from __future__ import annotations

import random
import re
from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest
from markdown_it import MarkdownIt

from ray_sentinel.actors.bundles.index import rendered
from ray_sentinel.model.comparison import Comparison, Delta
from ray_sentinel.model.diagnosis import (
    CauseLocation,
    Diagnosis,
    DiagnosisReport,
    Figure,
    FigureTable,
    Inventory,
    Link,
    Plot,
)
from ray_sentinel.model.health import CheckpointHealth, GpuState, Health, NodeView
from ray_sentinel.model.incident import Incident
from ray_sentinel.model.triage import (
    Echo,
    LogCulprit,
    LogException,
    LogLine,
    StepProgress,
    Triage,
)
from ray_sentinel.report import diagnosis_markdown, incident_markdown
from ray_sentinel.report.html import (
    comparison_html,
    diagnosis_html,
    framed,
    health_html,
    status_html,
    triage_html,
)
from ray_sentinel.report.markdown_text import block, cell, code, escaped, table
from ray_sentinel.text import CONTROL, one_line
from tests.support.page_data import status

NASTY = [
    "| a | b |", "`", "``", "```", "~~~", "<script>alert(1)</script>", "<!--", "<b>", "</td>",
    "[x](javascript:alert(1))", "![p](http://h/x.png)", "[r]: http://h", "[x][r]", "[^1]", "[ ] x",
    "# h", "## ", "> q", ">", "- ", "---", "===", "+ a", "* a", "1. a", "23) b", "**b**", "*i*",
    "__b__", "_i_", "~~s~~", "$x$", "&lt;", "&#x3c;", "<http://h>", "http://h/x", "www.h.org", "\\",
    "\\|", "\\\\|", "\\`", "\n\n# h", "\r\n---\r\n", "\n| a |\n|---|\n", "    code", "\t", "  \n",
    "\x1b[2J\x1b]8;;http://h\x07x\x1b]8;;\x07", "\x9b2J", "\u202e\u2066", "\u061c", "\u2028# h",
    "\U000e0041", "word", "a_b", "all_reduce (c10d.py:99)", "{.x}", ":::", ":smile:", "@x", "!",
]  # fmt: skip
ENGINE = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


class Skeleton(HTMLParser):
    """The tags of a page in their order, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "code":  # what has a pipe is not set as code
            self.tags.append(" ".join([tag, *(f"{name}={value}" for name, value in attrs)]))

    def handle_endtag(self, tag: str) -> None:
        if tag != "code":
            self.tags.append(f"/{tag}")

    def handle_comment(self, data: str) -> None:
        self.tags.append("comment")

    def handle_data(self, data: str) -> None:
        self.text += data


def skeleton(markdown: str) -> Skeleton:
    return Skeleton(ENGINE.render(markdown))


def same(shown: str, text: str) -> bool:
    return re.sub(r"\s+", " ", shown).strip() == re.sub(r"\s+", " ", text).strip()


def nasty_texts() -> list[str]:
    chance = random.Random(7)
    made = ["".join(chance.choices(NASTY, k=chance.randint(2, 5))) for _ in range(400)]
    made += [" ".join(chance.choices(NASTY, k=3)) for _ in range(400)]
    return [text for text in (*NASTY, *made) if one_line(text)]


@pytest.mark.parametrize(
    "place", ["{0}", "# {0}", "- {0}", "1. {0}", "**k:** {1}", "- {0} *({1}, x)*", "- {2}, y"]
)
def test_any_text_is_shown_as_it_is(place: str) -> None:
    plain = skeleton(place.format("x", "x", "x"))
    for text in nasty_texts():
        shown = skeleton(place.format(escaped(text), cell(text), code(text)))
        assert shown.tags == plain.tags, text
        line = one_line(text)
        assert same(shown.text, plain.text[: plain.text.index("x")] + line) or line in re.sub(
            r"\s+", " ", shown.text
        ), text


def test_any_text_stays_in_its_cell() -> None:
    plain = skeleton("\n".join(table(("a", "b"), [("x", code("x")), ("x", "x")])))
    for text in nasty_texts():
        rows = [(text, code(text)), (text, text)]
        shown = skeleton("\n".join(table((text, text), rows)))
        assert shown.tags == plain.tags, text


def test_no_text_ends_a_block_of_code() -> None:
    for text in nasty_texts():
        lines = [one_line(text), "```", "~~~", one_line(text)]
        shown = skeleton("\n".join([*block(lines), "", "end"]))
        assert shown.tags == ["pre", "/pre", "p", "/p"], text
        assert shown.text.splitlines()[:4] == lines


def test_plain_text_is_not_littered() -> None:
    for text in ("all_reduce (c10d.py:99)", "rank 4 is at 3.5 s, -2 % of 10", "a-b, c: d", "x!"):
        assert escaped(text) == cell(text) == text


def hostile(record: Any, text: str) -> Any:
    """The record with ``text`` in each field that is any text."""
    plain = msgspec.to_builtins(record)
    known = _choices(type(record))
    return msgspec.convert(_changed(plain, text, known), type(record), strict=False)


def _changed(value: Any, text: str, known: set[str]) -> Any:
    if isinstance(value, str):
        return value if value in known or value.isdigit() else text
    if isinstance(value, dict):
        return {key: _changed(one, text, known) for key, one in value.items()}
    return [_changed(one, text, known) for one in value] if isinstance(value, list) else value


def _choices(kind: type) -> set[str]:
    found: set[str] = set()

    def note(part: Any) -> None:
        if isinstance(part, dict):
            found.update(str(one) for one in part.get("enum", ()))
            for one in part.values():
                note(one)
        elif isinstance(part, list):
            for one in part:
                note(one)

    note(msgspec.json.schema(kind))
    return found


def a_diagnosis() -> DiagnosisReport:
    found = Diagnosis(
        analysis="a b",
        playbook="p",
        cause="c",
        outcome="found",
        root_cause="c d",
        window=(0.0, 60.0),
        confidence=0.5,
        culprits=(CauseLocation(host="h h", gpu="g g", reason="r r"),),
        chain=(Link(at=1.0, role="root", text="t t"),),
        evidence=(Figure(text="f f", promql="up{a='b'}", host="h h"), Figure(text="g g")),
        tables=(FigureTable(title="x y", columns=("c c",), rows=(("v v",),), promql="q q"),),
        anomalies=("an omaly",),
        logs=(Figure(text="l l"),),
        next_steps=("n s",),
        plots=(
            Plot(
                title="p p",
                unit="u u",
                promql="q q",
                times=(0.0, 9.0),
                series=(("s s", (1.0, 2.0)),),
                marks=((1.0, "m m"),),
            ),
        ),
        administrator="- **Node:** a\n- b c",
    )
    stock = Inventory(source="s s", hosts=("h h",), missing=("m m",), warnings=("w w",))
    return DiagnosisReport(diagnosis=found, inventory=stock, triage="t t")


def test_an_incidents_report_has_nothing_of_what_a_text_brings(incident: Incident) -> None:
    plain = skeleton(incident_markdown.markdown(hostile(incident, "x"), ("x",)))
    page = Skeleton(rendered(hostile(incident, "x"))["report.html"].decode())
    for text in nasty_texts()[:150]:
        bad = hostile(incident, text)
        written = incident_markdown.markdown(bad, (text,))
        assert skeleton(written).tags == plain.tags, text
        assert not CONTROL.search(written)
        shown = rendered(bad, (text,))["report.html"].decode()
        assert Skeleton(shown).tags == page.tags, text
        assert not CONTROL.search(shown)


def test_a_diagnosis_has_nothing_of_what_a_text_brings() -> None:
    report = a_diagnosis()
    plain = skeleton(diagnosis_markdown.markdown(hostile(report, "x")))
    page = Skeleton(diagnosis_html(hostile(report, "x")))
    for text in nasty_texts()[:150]:
        written = diagnosis_markdown.markdown(hostile(report, text))
        assert skeleton(written).tags == plain.tags, text
        assert not CONTROL.search(written)
        shown = diagnosis_html(hostile(report, text))
        assert Skeleton(shown).tags == page.tags, text
        assert not CONTROL.search(shown)


LINE = LogLine(file="f f", line=3, text="t t", note="n n")


def pages_of(text: str, incident: Incident) -> dict[str, str]:
    """Every other page with ``text`` in all places, names of jobs and nodes included."""
    delta = Delta(metric="m", title="t", unit="s", first=1.0, second=2.0, relative=-7.0,
                  significant=True, hosts="h", cause="c")  # fmt: skip
    compared = Comparison(
        first="a", second="b", config={}, steps=(1.0, 2.0), deltas=(delta, delta), root_cause="r",
        standing=("s",), source_trace=("p",), notes=("n",),
        plots=(Plot(title="t", unit="u", promql="q", times=(1.0, 2.0, 3.0),
                    series=(("a", (1.0, 2.0, 3.0)), ("b", (2.0, 3.0, 4.0)))),),
    )  # fmt: skip
    compared = msgspec.structs.replace(hostile(compared, text), config={text: (text, text)})
    told = Health(
        healthy=False, verdict="v", issues=("i",), notes=("n",), logs=(LINE,),
        checkpoints=CheckpointHealth(folder="f", problems=("p",)),
        nodes=(NodeView(host="h", gpus=(
            GpuState(index="i", name="n", utilization_percent=3.0, temperature_celsius=93.0),
        )),),
    )  # fmt: skip
    told = msgspec.structs.replace(
        hostile(told, text),
        progress={text: {"state": text, "step": 3, "step_age": 1.0}},
        collectors={"failing": {text: text}},
    )
    answer = Triage(
        kind="hang", outcome="failed", summary="s", confidence=0.5, cause="c",
        culprits=(LogCulprit(rank=3, node="n", gpu="g", reason="r"),), evidence=(LINE,),
        next_steps=("n",), playbook="p", problems=("p",), first_error_at=1.0,
        exception=LogException(kind="k", message="m", frame="f"),
        progress=StepProgress(last_step=3, total_steps=9, checkpoint_step=2, lost_steps=1),
        echoes=(
            Echo(kind="k", signature="s", count=2, first=LINE),
            Echo(kind="k", signature="s", count=9, first=msgspec.structs.replace(LINE, time=9.0)),
        ),
    )  # fmt: skip
    return {
        "comparison": comparison_html([compared]),
        "health": health_html(told),
        "triage": triage_html(hostile(answer, text)),
        "status": status_html(hostile(status(), text), [hostile(incident, text)] * 20),
    }


def test_no_other_page_has_anything_of_what_a_text_brings(incident: Incident) -> None:
    plain = {name: Skeleton(page).tags for name, page in pages_of("x", incident).items()}
    for text in nasty_texts()[:150]:
        for name, page in pages_of(text, incident).items():
            assert Skeleton(page).tags == plain[name], (name, text)
            assert not CONTROL.search(page)


def test_a_page_within_a_page_is_the_text_of_one_attribute(incident: Incident) -> None:
    page = rendered(incident)["report.html"].decode()
    frame = Skeleton(framed(page))
    assert len(frame.tags) == 2
    assert frame.tags[0].startswith("iframe srcdoc=<!doctype html>")
    assert " sandbox= " in frame.tags[0]
    assert len(frame.tags[0]) > len(page)
