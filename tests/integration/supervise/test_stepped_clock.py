"""How long a command ran, where the wall clock is set while it does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ray_sentinel.supervise.attempt.keeper import Order
from ray_sentinel.supervise.json_records import decode, encode
from ray_sentinel.supervise.run_folder import STATE, State
from tests.support.stepped_clock import SteppedClock
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("step", [-3600, 3600])
def test_a_clock_that_is_set_makes_a_command_no_shorter_or_longer(
    tmp_path: Path, step: int
) -> None:
    clock, folder = SteppedClock(tmp_path), tmp_path / "attempt"
    folder.mkdir()
    order = Order(
        argv=(sys.executable, "-c", f"open({str(tmp_path / 'fifo')!r}).read()"),
        environ=dict(os.environ),
        cwd=str(tmp_path),
        grace=5.0,
        max_bytes=1 << 16,
    )
    os.mkfifo(tmp_path / "fifo")
    keeper = subprocess.Popen(
        [sys.executable, "-m", "ray_sentinel.supervise.attempt.keeper", str(folder)],
        stdin=subprocess.PIPE,
        env={**os.environ, **clock.environ},
    )
    assert keeper.stdin is not None
    keeper.stdin.write(encode(order))
    keeper.stdin.close()

    def state() -> State | None:
        try:
            return decode((folder / STATE).read_bytes(), State)
        except OSError:
            return None

    eventually(lambda: (found := state()) is not None and found.child, "the command runs")
    clock.set(step)
    (tmp_path / "fifo").write_text("")
    assert keeper.wait(timeout=30) == 0
    found = state()
    assert found is not None
    assert found.ended_at is not None
    assert 0.0 < found.ended_at - found.started_at < 30.0
