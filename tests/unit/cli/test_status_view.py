"""Stragglers and alerts as people see them in ``ray-sentinel status``."""

from __future__ import annotations

import io

from rich.console import Console

from ray_sentinel.cli.status_view import status_view
from ray_sentinel.model.alert import Alert
from ray_sentinel.model.status import JobStatus, Status
from ray_sentinel.model.straggler import StragglerStatus


def shown(**job: object) -> str:
    out = io.StringIO()
    status = Status(
        state="healthy",
        verdict="well",
        jobs=(
            JobStatus(job="j", attempt=0, step=5, phase="train", step_age_seconds=1.0, **job),  # type: ignore[arg-type]
        ),
    )
    Console(file=out, width=200).print(status_view(status))
    return out.getvalue()


def test_alerts_are_shown_worst_first_and_cleaned() -> None:
    alerts = (
        Alert(rule="gpu.throttle", severity="warning", host="n1", gpu="3", text="is\x1b[31m hot"),
        Alert(rule="net.port_down", severity="critical", host="n2", port="mlx5_0/1", text="down"),
    )
    text = shown(alerts=alerts)
    assert text.index("net.port_down: n2 mlx5_0/1: down") < text.index("gpu.throttle: n1 GPU 3")
    assert "\x1b" not in text


def test_a_straggler_is_shown_with_its_cost() -> None:
    found = StragglerStatus(
        kind="slow-rank", ranks=(3,), cost_percent=24.6, heat=((1.0, 20.0), (2.0, 24.6))
    )
    assert "rank 3 costs 25 % of the time (lately, in %: 20 25)" in shown(straggler=found)


def test_many_alerts_are_bounded() -> None:
    alerts = tuple(
        Alert(rule="gpu.idle", severity="info", host=f"n{i}", text="rests") for i in range(50)
    )
    assert "and 30 alerts more" in shown(alerts=alerts)
