"""An agent without Ray: what goes on, and how it ends, while nobody takes its reports."""

from __future__ import annotations

import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ray_sentinel.actors.agent.node_monitor import NodeMonitor
from ray_sentinel.actors.messages import AgentReport, Receipt
from ray_sentinel.actors.storage import DeploymentStorage
from ray_sentinel.config import AgentConfig, Config
from ray_sentinel.model.identity import Node, ProcessId, Rank, RankId
from ray_sentinel.model.progress import Exit
from tests.support.waiting import eventually

LONG = 30.0
TARGETS_VERSION = 7


class Coordinator:
    """Takes reports, once it answers."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.asked = threading.Event()
        self.reports: list[AgentReport] = []
        self.interval = 0.0

    def take(self, report: AgentReport) -> Receipt | None:
        self.asked.set()
        assert self.answers.wait(LONG)
        self.reports.append(report)
        return Receipt(
            exits=tuple(gone.order for gone in report.snapshot.exits),
            targets=None if report.targets_version == TARGETS_VERSION else ("10.0.0.1:9400",),
            targets_version=TARGETS_VERSION,
            interval=self.interval,
        )


@pytest.fixture
def coordinator() -> Iterator[Coordinator]:
    made = Coordinator()
    yield made
    made.answers.set()


@pytest.fixture
def monitor(
    coordinator: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[NodeMonitor]:
    monkeypatch.setenv("RAY_SENTINEL_RECORD_DIR", str(tmp_path / "records"))
    monkeypatch.setattr("ray_sentinel.actors.agent.node_monitor.COLLECT_AFTER", 1000.0)
    config = Config(
        log_dir=str(tmp_path / "log"), agent=AgentConfig(port=0, snapshot_interval=0.05)
    )
    node = Node(id="n" * 56, host="h", address="127.0.0.1")
    made = NodeMonitor(node, config, DeploymentStorage(config, {}), coordinator.take, lambda: "")
    yield made
    made.close()


def test_an_agent_tells_what_memory_it_takes_and_when_it_is_too_much(
    coordinator: Coordinator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_SENTINEL_RECORD_DIR", str(tmp_path / "records"))
    monkeypatch.setattr("ray_sentinel.actors.agent.node_monitor.COLLECT_AFTER", 1000.0)
    coordinator.answers.set()
    node = Node(id="n" * 56, host="h", address="127.0.0.1")
    said = []
    for most in (1 << 20, 1 << 40):
        agent = AgentConfig(port=0, snapshot_interval=0.05, memory_bytes=most)
        config = Config(log_dir=str(tmp_path / "log"), agent=agent)
        made = NodeMonitor(
            node, config, DeploymentStorage(config, {}), coordinator.take, lambda: ""
        )
        try:
            before = len(coordinator.reports)
            made.start()
            eventually(lambda before=before: len(coordinator.reports) > before + 2, "it reports")
            with urllib.request.urlopen(made.exporting.url, timeout=5) as answer:
                served = answer.read().decode()
        finally:
            made.close()
        report = coordinator.reports[-1]
        assert (report.memory_bytes or 0) > 1 << 20
        name = "ray_sentinel_memory_limit_bytes{"
        limits = [line.split() for line in served.splitlines() if line.startswith(name)]
        assert [float(value) for _, value in limits] == [most]
        said.append([note for note in report.notes if "agent.memory_bytes" in note])
    assert [len(notes) for notes in said] == [1, 0]
    assert said[0][0].endswith("more than agent.memory_bytes, 1 MiB")


def an_exit(order: int) -> Exit:
    rank = Rank(id=RankId("j", 0, order), process=ProcessId("h", 10_000 + order), node="n" * 56)
    return Exit(rank=rank, at=time.time(), order=order)


def looks(monitor: NodeMonitor, monkeypatch: pytest.MonkeyPatch, exits: list[Exit]) -> list[int]:
    """Counts the monitor's looks at its ranks, and has it see these exits, one a look."""
    counted: list[int] = []

    def poll() -> tuple[tuple[()], tuple[Exit, ...]]:
        counted.append(1)
        return (), tuple(exits.pop(0) for _ in exits[:1])

    monkeypatch.setattr(monitor.watch, "poll", poll)
    return counted


def test_the_watch_and_the_metrics_go_on_while_a_report_is_not_taken(
    monitor: NodeMonitor, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = looks(monitor, monkeypatch, [an_exit(order) for order in range(5)])
    monitor.start()
    assert coordinator.asked.wait(LONG)
    before = len(counted)
    eventually(lambda: len(counted) > before + 20, "the watch goes on")
    with urllib.request.urlopen(monitor.exporting.url, timeout=5) as answer:
        assert 'rank="4"' in answer.read().decode(), "the last exit is served"
    assert coordinator.reports == []
    coordinator.answers.set()
    eventually(lambda: len(coordinator.reports) >= 3, "reports are taken")
    first, second, third = coordinator.reports[:3]
    told = [gone.order for report in (first, second) for gone in report.snapshot.exits]
    assert told == [0, 1, 2, 3, 4], "none was lost"
    assert second.snapshot.time - first.snapshot.time > 0.5, "the newest look, none in between"
    assert [r.snapshot.sequence for r in (first, second, third)] == [1, 2, 3]
    assert third.snapshot.exits == ()


def test_a_node_on_which_nothing_happens_reports_when_it_is_due_and_an_exit_at_once(
    monitor: NodeMonitor, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    exits: list[Exit] = []
    counted = looks(monitor, monkeypatch, exits)
    coordinator.interval = LONG
    coordinator.answers.set()
    monitor.start()
    eventually(lambda: len(counted) > 20, "it looks")
    reports = len(coordinator.reports)
    assert reports < 5
    exits.append(an_exit(0))
    # A report that is due may be on its way before.
    (told,) = eventually(
        lambda: [one.snapshot for one in coordinator.reports[reports:] if one.snapshot.exits],
        "the exit is told",
    )
    assert (len(told.exits), told.interval) == (1, pytest.approx(LONG))


def test_targets_that_are_told_once_are_served_from_then_on(
    monitor: NodeMonitor, coordinator: Coordinator
) -> None:
    coordinator.answers.set()
    monitor.start()
    eventually(lambda: len(coordinator.reports) >= 4, "reports are taken")
    assert [r.targets_version for r in coordinator.reports[:4]] == [0, 7, 7, 7]
    with urllib.request.urlopen(monitor.exporting.url.replace("/metrics", "/sd"), timeout=5) as sd:
        assert b'"10.0.0.1:9400"' in sd.read()


def test_closing_does_not_wait_for_a_report_that_is_not_taken(
    monitor: NodeMonitor, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = looks(monitor, monkeypatch, [])
    monitor.start()
    assert coordinator.asked.wait(LONG)
    begun = time.monotonic()
    # ``down`` asks again and again, on threads of the actor.
    ends: list[Any] = []
    closers = [
        threading.Thread(target=lambda: ends.append(monitor.close()), daemon=True) for _ in range(3)
    ]
    for closer in closers:
        closer.start()
    for closer in closers:
        closer.join(LONG)
    assert ends == [[], [], []]
    assert time.monotonic() - begun < 10
    done = len(counted)
    coordinator.answers.set()
    eventually(
        lambda: not any(t.name == "ray-sentinel-report" for t in threading.enumerate()),
        "the thread that reported ends",
    )
    assert len(counted) == done
    assert len(coordinator.reports) <= 1


def test_a_clock_that_is_set_is_seen_while_nobody_asks_for_dumps(
    monitor: NodeMonitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert monitor.evidence.dumps.recorders.wall is monitor.wall
    looked: list[int] = []
    monkeypatch.setattr(monitor.wall, "poll", lambda: looked.append(1))
    monitor.start()
    eventually(lambda: len(looked) > 3, "it looks at the clock once a cycle")
