"""torchrun's table of failures."""

from __future__ import annotations

import pytest

from ray_sentinel.evidence.logs.causes import ended_by_signal
from ray_sentinel.evidence.logs.errors.exits import (
    ProcessExit,
    killed_by_launcher,
    read_table,
    signal_name,
)
from ray_sentinel.evidence.logs.lines.lines import parse_line
from ray_sentinel.evidence.logs.records import Hit
from ray_sentinel.logs.catalogue import load_catalogue

TABLE = """Failures:
[1]:
  time      : 2025-05-21_15:43:04
  host      : node2
  rank      : 9 (local_rank: 1)
  exitcode  : 1 (pid: 77)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2025-05-21_15:43:03
  host      : node1
  rank      : 3 (local_rank: 3)
  exitcode  : -9 (pid: 14750)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 14750
============================================================"""


def test_rows() -> None:
    rows = read_table([parse_line(line) for line in TABLE.split("\n")], 2025)
    assert [(r.rank, r.code, r.pid, r.host, r.root) for r in rows] == [
        (9, 1, 77, "node2", False),
        (3, -9, 14750, "node1", True),
    ]
    assert rows[1].time is not None
    assert rows[0].time == rows[1].time + 1


def test_rows_of_a_newer_torch_name_the_signal() -> None:
    text = TABLE.replace("-9 (pid: 14750)", "-9 (pid: 14750) (SIGKILL)")
    assert read_table([parse_line(line) for line in text.split("\n")], 2025)[1].pid == 14750


@pytest.mark.parametrize(
    ("code", "name"),
    [(-9, "SIGKILL"), (137, "SIGKILL"), (-11, "SIGSEGV"), (1, ""), (0, ""), (None, "")],
)
def test_signal_names(code: int | None, name: str) -> None:
    assert signal_name(code) == name


def test_a_kill_after_the_launchers_grace_is_the_launchers() -> None:
    root = ProcessExit(rank=1, code=1, time=100.0, root=True)
    at_once = ProcessExit(rank=2, code=-9, time=100.0)
    late = ProcessExit(rank=3, code=-9, time=131.0)
    rows = (at_once, late, root)
    assert [killed_by_launcher(row, rows) for row in rows] == [False, True, False]
    assert not killed_by_launcher(late, (late,))
    assert not killed_by_launcher(ProcessExit(rank=3, code=-11, time=131.0), rows)


@pytest.mark.parametrize("number", [143, 154])
def test_the_number_of_an_xid_is_no_exit_code(number: int) -> None:
    text = f"NVRM: Xid (PCI:0000:0f:00): {number}, pid=77, name=python"
    found = load_catalogue().search(text, "kernel")
    assert found is not None
    hit = Hit(file=0, offset=0, text=text, signature=found.signature, groups=found.groups)
    assert found.groups["xid"] == str(number)
    assert ended_by_signal(hit) == ""
