"""What a debugger may take beyond its deadline fits into the time that its node is waited for."""

from __future__ import annotations

from ray_sentinel.actors.coordinator.executor import GATHER_SECONDS
from ray_sentinel.capture.tracers import cuda_gdb, gdb


def test_a_debugger_that_lets_go_late_does_not_cost_the_capture_of_its_node() -> None:
    for late in (gdb.DETACH_SECONDS, cuda_gdb.DETACH_SECONDS):
        assert 2 * late < GATHER_SECONDS
