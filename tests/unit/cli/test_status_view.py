"""What people see in ``ray-sentinel status``, on a narrow terminal and of a large cluster, too."""

from __future__ import annotations

import io
from collections.abc import Sequence

import msgspec
import pytest
from rich.console import Console

from ray_sentinel.cli.main import main
from ray_sentinel.cli.open_incidents import ASKED_EVERY, OpenIncidents
from ray_sentinel.cli.status_view import status_view
from ray_sentinel.errors import UnreachableError
from ray_sentinel.model.alert import Alert
from ray_sentinel.model.incident import Incident, Verdict
from ray_sentinel.model.status import CoordinatorStatus, JobStatus, MemberStatus, Status
from ray_sentinel.model.straggler import StragglerStatus
from tests.support.page_data import HOSTILE, NOW, incident, incident_of_actors
from tests.support.page_data import status as hung
from tests.support.page_nodes import cluster, stopped
from tests.support.top_screen import served_page


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
    assert "and 30 more alerts" in shown(alerts=alerts)


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
    assert "and 92 more processes" in text


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
    line = "coordinator: 498 reports a second, a cycle takes 123 ms, memory 300 of 2048 MiB"
    assert f"\n{line}\n" in of_coordinator()
    text = of_coordinator(log_waiting_bytes=3 << 20, log_missing=7)
    assert "3.0 MiB of events wait for the disk, 7 events are missing in the log" in text
    assert "reports a second by way of 16 relays," in of_coordinator(relays=16, relays_wanted=16)
    assert "by way of 16 relays," in of_coordinator(relays=16, relays_wanted=15)
    assert "by way of 15 of 16 relays," in of_coordinator(relays=15, relays_wanted=16)
    assert "coordinator" not in shown()


def drawn(status: Status, incidents: Sequence[Incident] = (), width: int = 80) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width).print(status_view(status, incidents=incidents), crop=False)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def with_steps(found: Incident, *steps: str) -> Incident:
    assert found.verdict is not None
    verdict = msgspec.structs.replace(found.verdict, next_steps=steps)
    return msgspec.structs.replace(found, verdict=verdict)


def test_who_why_since_when_and_what_to_do_stand_under_the_sentence() -> None:
    told = with_steps(incident(), "kill -CONT 4003 lets it go on")
    assert drawn(hung(), [told])[:6] == [
        "hung  rank 3 on node-1 is stopped by a signal and 7 ranks wait for it",
        "incident 0001 · llama · rank-stopped · 99 % sure · no progress for 14 s, since",
        "07:59:45 UTC",
        "  rank 3 on node-1, pid 4003: stopped by a signal",
        "  → kill -CONT 4003 lets it go on",
        "  → ray-sentinel incidents show 0001   (why, stacks, files)",
    ]


def test_of_an_older_incident_the_day_is_told_and_without_a_culprit_its_sentence() -> None:
    old = msgspec.structs.replace(
        incident(),
        verdict=Verdict(kind="unknown", summary="nobody knows"),
        last_progress=NOW - 100_000.0,
    )
    text = "\n".join(drawn(hung(), [old], width=200))
    assert "no progress for 1 d 3 h, since 2027-01-14 04:13:20 UTC" in text
    assert "\n  rank 3 on node-1 is stopped\n" in text
    never = msgspec.structs.replace(old, last_progress=None)
    assert "· for 12 s, since 07:59:48 UTC" in "\n".join(drawn(hung(), [never], width=200))


def test_many_incidents_and_hostile_ones_do_not_hide_the_job() -> None:
    many = [incident(number=f"{n:04d}", hostile=HOSTILE) for n in range(9)]
    text = "\n".join(drawn(hung(hostile=HOSTILE), many))
    assert text.count("  → ray-sentinel incidents show") == 4
    assert "and 5 more that are open: `ray-sentinel incidents` lists all" in text
    assert "\x1b" not in text


@pytest.mark.parametrize("width", [80, 160])
def test_a_thousand_nodes_fit_a_screen_with_those_in_trouble_first(width: int) -> None:
    status = cluster(1000, 8, scene="stopped")
    lines = drawn(status, [stopped(status)], width)
    assert len(lines) < 40
    at = next(number for number, line in enumerate(lines) if line.startswith("rank  host"))
    assert lines[at + 1].split()[:2] == ["5333", "node-0666"]
    nodes = [line for line in lines if ":9400/metrics" in line]
    assert [line.split()[0] for line in nodes[:4]] == [
        "node-0299", "node-0599", "node-0899", "node-0000"
    ]  # fmt: skip
    assert "and 7992 more ranks: --json shows all" in lines
    assert "and 992 more nodes: --json shows all" in lines


def test_each_job_says_how_it_is_and_its_phase_once() -> None:
    lines = drawn(hung(), width=160)
    assert (
        "llama · hung · attempt 1 · 8 of 8 ranks · step 1204 · train for 14 s, usually up to 2.5 s"
    ) in lines
    assert "train_rl-1 · hung · attempt 0 · 2 processes of Ray · train" in lines


def test_the_port_of_the_metrics_is_seen_in_80_columns() -> None:
    (node,) = (one for one in hung().nodes if one.is_head)
    other = msgspec.structs.replace(
        node, address="fd00::1", metrics_url="http://[fd00::1]:9401/metrics"
    )
    away = msgspec.structs.replace(node, metrics_url="https://x/metrics")
    text = "\n".join(drawn(msgspec.structs.replace(hung(), nodes=(node, other, away))))
    for part in (" :9400/metrics ", " :9401/metrics ", " https://x/metrics "):
        assert part in text
    assert "…" not in text


def test_without_a_job_the_status_says_how_one_is_seen() -> None:
    lines = drawn(Status(state="unknown", verdict="no training job has been seen yet"))
    assert lines[0] == "unknown  no training job has been seen yet"
    assert "attach()" in " ".join(lines[1:])
    assert not any(line.startswith("node ") for line in lines)
    assert "attach()" not in "\n".join(drawn(cluster(3)))


def test_incidents_are_asked_for_where_something_hangs_and_not_with_each_look() -> None:
    now, asked = [0.0], []

    class Coordinator:
        def ask(self, method: str, kind: object, *_: object, seconds: float = 10.0) -> object:
            asked.append(method)
            if len(asked) == 4:
                raise UnreachableError("it is busy")
            over = msgspec.structs.replace(incident(), state="resolved")
            return (over, incident_of_actors(), msgspec.structs.replace(over, kind="asked"))

    opened = OpenIncidents(Coordinator(), lambda: now[0])  # type: ignore[arg-type]
    assert opened.of(cluster(3)) == ()
    assert asked == []
    for _ in range(3):
        assert [one.id for one in opened.of(hung())] == ["0002"]
    assert len(asked) == 1
    now[0] += ASKED_EVERY
    opened.of(hung())
    assert len(asked) == 2
    opened.of(msgspec.structs.replace(hung(), verdict="something else"))
    assert len(asked) == 3
    now[0] += ASKED_EVERY
    assert [one.id for one in opened.of(hung())] == ["0002"], "the status is shown all the same"
    assert len(asked) == 4


@pytest.mark.parametrize(("rows", "times"), [("100", 1), ("20", 2)])
def test_what_is_wrong_is_repeated_where_a_terminal_has_scrolled_it_away(
    rows: str, times: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"FORCE_COLOR": "1", "LINES": rows, "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)
    with served_page(hung, lambda: (incident(),)) as (_, page):
        assert main(["status", "--url", page.link]) == 1
    text = capsys.readouterr().out
    assert text.count("→ ray-sentinel incidents show 0001") == times
    assert text.count("files: /data/llama") == 1
