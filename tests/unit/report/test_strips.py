"""What is drawn of a triage and of a health report: inside the picture, whatever they hold."""

from __future__ import annotations

import math

import msgspec
import pytest

from ray_sentinel.model.health import GpuState, Health, NodeView
from ray_sentinel.model.thresholds import GPU_HOT
from ray_sentinel.model.triage import Echo, LogLine, StepProgress, Triage
from ray_sentinel.report import event_strip as errors
from ray_sentinel.report import value_strips as values
from ray_sentinel.report.event_strip import event_strip
from ray_sentinel.report.html import health_html, triage_html
from ray_sentinel.report.line_plot import measured, step_ticks
from ray_sentinel.report.value_strips import value_strips

AT = 1_800_000_000.0


def line(file: str, at: float | None, note: str = "", number: int | None = 1) -> LogLine:
    time = None if at is None else AT + at
    return LogLine(file=file, line=number, text=f"error in {file}", note=note, time=time)


def answer(*evidence: LogLine, echoes: tuple[Echo, ...] = (), step: float | None = None) -> Triage:
    progress = StepProgress(last_step_at=None if step is None else AT + step)
    return Triage(
        kind="gpu-lost", outcome="failed", summary="s", confidence=0.9, evidence=evidence,
        echoes=echoes, progress=progress, first_error_at=evidence[0].time if evidence else None,
    )  # fmt: skip


def echo(kind: str, count: int, first: LogLine) -> Echo:
    return Echo(kind=kind, signature="s", count=count, first=first)


def test_each_node_has_a_row_and_the_cause_the_first_one() -> None:
    found = event_strip(
        answer(
            line("logs/node2/a.err", 60.0, "first cause"),
            line("logs/node1/b.err", 61.0, "echo"),
            line("main.log", 90.0, "of the culprit"),
            echoes=(
                echo("nccl-timeout", 64, line("logs/node1/b.err", 61.0)),
                echo("survived", 1, line("logs/node3/c.err", 5.0)),
                echo("harmless", 999, line("logs/node4/d.err", 6.0)),
            ),
            step=58.0,
        )
    )
    assert found is not None
    assert [row.label for row in found.rows] == ["node2", "main.log", "node3", "node1"]
    by_row = {row.y: row.label for row in found.rows}
    dots = {by_row[dot.y]: dot for dot in found.dots}
    assert len(found.dots) == 4, "one for each line, also where an echo is evidence too"
    assert {name: dot.kind for name, dot in dots.items()} == {
        "node2": "cause", "main.log": "cause", "node1": "echo", "node3": "survived",
    }  # fmt: skip
    assert dots["node1"].radius > dots["node2"].radius
    assert dots["node1"].whole.startswith("64 times")
    assert dots["node3"].x < dots["node2"].x < dots["node1"].x < dots["main.log"].x
    assert [mark.label for mark in found.marks] == ["last step", "first error"]


@pytest.mark.parametrize(
    "told",
    [answer(), answer(line("a.log", None)), answer(line("a.log", 3.0)), answer(step=3.0)],
)
def test_a_moment_or_none_is_no_picture(told: Triage) -> None:
    assert event_strip(told) is None
    assert "When and where" not in triage_html(told)


def test_many_nodes_are_bounded_and_counted() -> None:
    found = event_strip(answer(*(line(f"n{n}/a.log", float(n), number=n) for n in range(3000))))
    assert found is not None
    assert len(found.rows) == errors.MOST_ROWS
    assert found.more == 3000 - errors.MOST_ROWS
    assert all(errors.LEFT <= dot.x <= errors.WIDTH - errors.RIGHT for dot in found.dots)
    assert all(dot.y < found.height for dot in found.dots)
    assert f"{found.more} more places" in triage_html(
        answer(*(line(f"n{n}/a.log", float(n), number=n) for n in range(3000)))
    )


def health(*gpus: GpuState, hosts: int = 1) -> Health:
    nodes = tuple(NodeView(host=f"node{n}", gpus=gpus) for n in range(hosts))
    return Health(healthy=True, verdict="v", nodes=nodes)


def test_gpus_on_both_sides_of_a_limit_within_one_stretch_are_told_apart() -> None:
    limit = GPU_HOT.limit
    told = [GpuState(index=str(n), temperature_celsius=limit + 0.1 * n) for n in (-1, 0, 1)]
    (heat,) = value_strips(health(*told))
    assert sum(bar.beyond for bar in heat.bars) == 1
    (red,) = [bar for bar in heat.bars if bar.beyond]
    assert red.whole.startswith("1 GPU ")
    below = [bar for bar in heat.bars if not bar.beyond and bar.x == red.x]
    assert all(red.y + red.height <= bar.y + 0.2 for bar in below), "they do not cover each other"


def test_a_hot_and_an_idle_gpu_lie_beyond_their_limits() -> None:
    usual = [
        GpuState(index=str(n), temperature_celsius=62.0 + n, utilization_percent=94.0)
        for n in range(6)
    ]
    odd = GpuState(index="7", temperature_celsius=93.0, utilization_percent=0.0)
    heat, load = value_strips(health(*usual, odd))
    assert heat.title == "temperature"
    assert heat.said == "usually 65 °C, highest 93 °C (node0 GPU 7)"
    assert heat.limit is not None
    assert [bar.beyond for bar in heat.bars] == [False] * (len(heat.bars) - 1) + [True]
    assert heat.bars[-1].x > heat.limit.place
    assert load.said == "usually 94 %, lowest 0 % (node0 GPU 7)"
    assert [bar.beyond for bar in load.bars] == [True, False]


@pytest.mark.parametrize("value", [0.0, -40.0, 1e11, 104.0, 1e-9])
def test_any_value_is_inside_the_picture(value: float) -> None:
    (strip,) = value_strips(health(GpuState(index="0", power_watts=value)))
    (bar,) = strip.bars
    assert 0 <= bar.x <= values.WIDTH
    assert bar.height == values.BARS
    assert "node0 GPU 0" in strip.said


def test_what_is_not_told_is_not_drawn() -> None:
    strange = GpuState(index="0", power_watts=math.nan, temperature_celsius=math.inf)
    assert value_strips(health()) == ()
    assert value_strips(health(strange, GpuState(index="1", memory_used_bytes=5))) == ()
    assert "beside their limits" not in health_html(health(strange))


def test_one_of_eighty_thousand_is_seen() -> None:
    usual = tuple(GpuState(index=str(n), temperature_celsius=60.0 + n % 5) for n in range(8))
    told = health(*usual, hosts=10_000)
    hot = NodeView(host="hot", gpus=(GpuState(index="3", temperature_celsius=97.0),))
    (strip,) = value_strips(msgspec.structs.replace(told, nodes=(*told.nodes, hot)))
    assert strip.bars[-1].beyond
    assert strip.bars[-1].height == values.LEAST_BAR
    assert "97 °C (hot GPU 3)" in strip.said
    assert len(strip.bars) <= values.BINS


def test_steps_and_amounts_are_written_for_people() -> None:
    assert [label for _, label in step_ticks(0.0, 250.0)] == ["0", "50", "100", "150", "200", "250"]
    assert [label for _, label in step_ticks(3.0, 5.0)] == ["3", "4", "5"]
    assert step_ticks(2e6, 4e6)[0][1] == "2M"
    assert measured(2.5e9, "B/s") == "2.5 GB/s"
    assert measured(0.83, "s") == "0.83 s"
    assert measured(3.321, "") == "3.321"
