"""What ``ray-sentinel doctor`` prints: what is wrong comes first, with its remedy below it."""

from __future__ import annotations

import pytest

from ray_sentinel.cli.commands.doctor import print_results
from ray_sentinel.doctor.check import CheckResult


def test_what_is_wrong_comes_first(capsys: pytest.CaptureFixture[str]) -> None:
    results = [
        CheckResult(check="clock", outcome="ok", seen="within 0.4 ms"),
        CheckResult(check="efa", outcome="skipped", seen="there is no EFA device"),
        CheckResult(check="limits", outcome="warning", seen="20000 files", remedy="ulimit"),
        CheckResult(check="rdma", outcome="failure", seen="mlx5_0 is down", host="node-3"),
        CheckResult(check="versions", outcome="ok", seen="equal"),
    ]
    print_results(results, ["a", "b"], None, "")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines[1:-1]] == [
        "rdma", "limits", "ulimit", "clock", "versions", "efa"
    ]  # fmt: skip
    assert lines[0] == "examined this machine: 2 nodes"
    assert lines[-1] == "2 ok, 1 warning, 1 failure, 1 skipped"
