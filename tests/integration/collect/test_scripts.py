"""Plugins that are programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.collecting import CollectingNode, alive
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


def test_host_name_exposition_log_and_state(node: CollectingNode) -> None:
    node.configure("count", interval=0.2)
    node.write_script(
        "count.sh",
        "n=$((${_PLUGIN_STATE:-0} + 1))",
        'echo "the host is $1" >&2',
        "echo '# TYPE runs_total counter'",
        'echo "runs_total{who=\\"a \\\\\\"b\\\\\\"\\"} $n"',
        'echo "# STATE $n"',
    )
    node.start()
    node.until("count", lambda status: status.success is True)
    eventually(lambda: (node.value("runs_total") or 0) >= 3, "the state comes back")
    labels = [s.labels for f in node.published for s in f.samples if s.name == "runs_total"]
    assert labels == [(("who", 'a "b"'),)]
    eventually(lambda: "the host is node1" in node.log("count"), "stderr is logged")


def test_the_state_outlives_the_process(node: CollectingNode) -> None:
    node.configure("count", interval=0.2)
    node.write_script(
        "count.sh",
        "n=$((${_PLUGIN_STATE:-0} + 1))",
        'echo "runs $n"',
        'echo "# STATE $n"',
    )
    node.start()
    before = eventually(lambda: node.value("runs"), "a run")
    node.stop()
    node.start()
    assert eventually(lambda: node.value("runs"), "a run") > before


def test_a_lone_state_line_keeps_the_last_values_alive(node: CollectingNode) -> None:
    node.configure("once", interval=0.2)
    node.write_script(
        "once.sh", '[ -n "$_PLUGIN_STATE" ] || echo "once_value 5"', "echo '# STATE done'"
    )
    node.start()
    first = node.until("once", lambda status: status.success is True).last_success or 0.0
    node.until("once", lambda status: (status.last_success or 0.0) > first + 1.0)
    eventually(lambda: node.value("once_value") == 5.0, "it is still served")


def test_status_99_means_never_again(node: CollectingNode, tmp_path: Path) -> None:
    node.configure("gone", interval=0.1)
    node.write_script("gone.sh", f"echo run >> {tmp_path}/runs", "echo no card here >&2", "exit 99")
    node.start()
    status = node.until("gone", lambda status: status.state == "skipped")
    assert status.message == "no card here"
    node.write_script("other.sh", "echo other_value 1")
    eventually(lambda: node.value("other_value"), "another one runs")
    assert (tmp_path / "runs").read_text() == "run\n"


def test_another_status_is_a_failure(node: CollectingNode) -> None:
    node.configure("bad", interval=0.2)
    node.write_script("bad.sh", "echo half_done 1", "echo cannot reach it >&2", "exit 3")
    node.start()
    status = node.until("bad", lambda status: status.success is False)
    assert "bad.sh ended with status 3: cannot reach it" in status.message
    assert node.value("half_done") is None


def test_garbage_is_reported_by_line_and_the_rest_is_served(node: CollectingNode) -> None:
    node.write_script("mixed.sh", "echo fine 1", "echo what is this", "echo also_fine 2")
    node.start()
    status = node.until("mixed", lambda status: status.success is True)
    assert "line 2: not in the exposition format" in status.message
    eventually(lambda: node.value("also_fine") == 2.0, "what can be read is served")


def test_one_that_hangs_is_killed_with_its_children(node: CollectingNode, tmp_path: Path) -> None:
    node.configure("slow", deadline=3.0, interval=0.2)
    node.write_script(
        "slow.sh",
        f"sleep 1000 & echo $! $$ > {tmp_path}/pids.part",
        f"mv {tmp_path}/pids.part {tmp_path}/pids",
        "wait",
    )
    node.start()
    status = node.until("slow", lambda status: status.timeouts == 1)
    assert status.state == "quarantined"
    assert "slow.sh was ended after" in status.message
    pids = (tmp_path / "pids").read_text().split()
    eventually(lambda: not any(alive(int(pid)) for pid in pids), "nothing is left of it")


@pytest.mark.parametrize(
    ("first", "says"),
    [
        ("#!/no/such/interpreter", "/no/such/interpreter is not there"),
        ("#!/bin/sh\r", "Windows line ends"),
        ("#!", "names no interpreter"),
    ],
)
def test_an_interpreter_that_is_not_there(node: CollectingNode, first: str, says: str) -> None:
    node.write_script("odd.sh", "echo x 1", first=first)
    node.start()
    assert says in node.until("odd", lambda status: status.success is False).message


def test_any_language_and_its_own_folder(node: CollectingNode) -> None:
    node.plugins.mkdir(parents=True)
    (node.plugins / "_helper.py").write_text("VALUE = 42\n")
    node.write_script(
        "python.py",
        "import sys; sys.path.insert(0, '.')",
        "import _helper",
        "print('from_python', _helper.VALUE)",
        first="#!/usr/bin/env python3",
    )
    node.start()
    eventually(lambda: node.value("from_python") == 42.0, "it runs in the plugins' folder")
