"""Stragglers and alerts as people see them in ``ray-sentinel status``."""

from __future__ import annotations

import io

from rich.console import Console

from ray_sentinel.cli.status_view import status_view
from ray_sentinel.model.alert import Alert
from ray_sentinel.model.status import CoordinatorStatus, JobStatus, MemberStatus, Status
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


def test_members_of_a_job_of_actors_are_shown_with_what_they_run_and_who_waits() -> None:
    members = (
        MemberStatus(label="driver", role="driver", host="n1", pid=7, state="waiting"),
        MemberStatus(
            label="Rollout 2",
            role="Rollout",
            host="n2",
            pid=9,
            method="Rollout.gen\x1b[2Jerate",
            seconds=93.0,
            usual_seconds=2.5,
            state="silent",
        ),
    )
    text = shown(members=members, waits="driver waits 93 s in ray.get for Rollout.generate")
    assert "2 processes of Ray" in text
    assert "0 ranks" not in text
    (rollout,) = (line for line in text.splitlines() if line.startswith("Rollout 2"))
    assert rollout.split() == [
        "Rollout", "2", "n2", "9", r"Rollout.gen\x1b[2Jerate", "93.0", "s", "2.5", "s", "silent"
    ]  # fmt: skip
    assert "who waits for whom: driver waits 93 s in ray.get for Rollout.generate" in text
    assert "\x1b" not in text


def test_of_many_members_those_in_trouble_are_shown() -> None:
    members = tuple(
        MemberStatus(
            label=f"Pool {n}", role="Pool", host="n", pid=n, state="silent" if n == 99 else "idle"
        )
        for n in range(100)
    )
    text = shown(members=members)
    assert "Pool 99" in text
    assert "and 36 processes more" in text


def of_coordinator(**told: object) -> str:
    out = io.StringIO()
    work = CoordinatorStatus(
        reports_per_second=498.4,
        cycle_seconds=0.123,
        memory_bytes=300 << 20,
        memory_limit_bytes=2 << 30,
        **told,  # type: ignore[arg-type]
    )
    status = Status(state="healthy", verdict="well", coordinator=work)
    Console(file=out, width=200).print(status_view(status))
    return out.getvalue()


def test_the_coordinator_tells_what_it_does_and_takes() -> None:
    line = "coordinator: 498 reports a second, a cycle takes 0.12 s, memory 300 of 2048 MiB"
    assert line + "\n" in of_coordinator() + "\n"
    text = of_coordinator(log_waiting_bytes=3 << 20, log_missing=7)
    assert "3.0 MiB of events wait for the disk, 7 events are missing in the log" in text
    assert "reports a second by way of 16 relays," in of_coordinator(relays=16, relays_wanted=16)
    assert "by way of 16 relays," in of_coordinator(relays=16, relays_wanted=15)
    assert "by way of 15 of 16 relays," in of_coordinator(relays=15, relays_wanted=16)
    assert "coordinator" not in shown()
