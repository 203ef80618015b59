"""What happens just before the end of a job is seen, however wide the cells are."""

from __future__ import annotations

import numpy as np
import pytest

from ray_sentinel.diagnose.examine import examine
from ray_sentinel.diagnose.view import View
from ray_sentinel.store.event_files.memory import MemorySource

BEGIN, WEEK = 1.7e9, 7 * 86400.0


def test_a_kill_in_the_last_minutes_of_a_week_is_found() -> None:
    source = MemorySource()
    times = BEGIN + np.arange(0.0, WEEK + 160.0, 10.0)
    limit = np.full(times.size, 1e12)
    for host in ("n0", "n1"):
        killed = (times >= times[-1] - 100.0) & (host == "n1")
        source.add("hw_mem_total_bytes", {"host": host}, times, limit)
        source.add("hw_mem_available_bytes", {"host": host}, times, limit * 0.5)
        source.add("hw_oom_kills_total", {"host": host}, times, killed.astype(float))
    source.add("tb_step", {"host": "n0"}, times, np.arange(times.size) // 2)
    found = examine(source).diagnosis
    assert (found.outcome, found.cause) == ("found", "oom")
    assert [one.host for one in found.culprits] == ["n1"]


@pytest.mark.parametrize(("end", "last"), [(0.0, 10.0), (30.0, 30.0), (31.0, 40.0), (39.0, 40.0)])
def test_the_last_cell_holds_the_end(end: float, last: float) -> None:
    source = MemorySource()
    source.add("hw_load1", {"host": "n0"}, [BEGIN, BEGIN + end + 1e-3], [1.0, 1.0])
    assert View(source, BEGIN, BEGIN + end, step=10.0).end == BEGIN + last
