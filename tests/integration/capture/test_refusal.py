"""Why a process may not be looked at."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ray_sentinel.capture.refusal import why_refused
from tests.support.parts import needs_root
from tests.support.traced import Processes

pytestmark = pytest.mark.integration

as_root = needs_root()


@as_root
def test_without_the_right_to_ptrace_the_missing_right_is_named(processes: Processes) -> None:
    process = processes.start("asleep")
    script = (
        "import os\n"
        "os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)\n"
        "from ray_sentinel.capture.refusal import why_refused\n"
        f"print(why_refused({process.pid}))\n"
    )
    # The package may stand in a folder that only root can read: it is loaded before the switch.
    script = "import ray_sentinel.capture.refusal\n" + script
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert "CAP_SYS_PTRACE" in done.stdout, done.stderr
    assert "user 0, we are user 65534" in done.stdout


def test_a_process_that_is_not_there_is_not_refused() -> None:
    assert "gone" in why_refused(1 << 22)
