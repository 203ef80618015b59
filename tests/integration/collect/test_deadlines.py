"""Collectors that do not come back: told where they hang, ended with all that they started."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.collecting import CollectingNode, alive, still_good
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("good_one_beside_it")]


def test_sleeps_for_ever_is_quarantined_and_told_where(node: CollectingNode) -> None:
    node.write(
        "slow.py",
        """
        class Slow(Collector):
            name = "slow"
            interval = 0.2
            deadline = 0.5
            def collect(self):
                self.wait_for_godot()
            def wait_for_godot(self):
                time.sleep(1000)
        """,
    )
    node.start()
    status = node.until("slow", lambda status: status.timeouts >= 2)
    assert status.state == "quarantined"
    assert status.restarts >= 1
    assert "deadline of 0.5 s in wait_for_godot (slow.py:" in status.message
    still_good(node)


def test_hangs_with_the_interpreter_locked(node: CollectingNode) -> None:
    node.write(
        "gil.py",
        """
        import ctypes
        class Gil(Collector):
            name = "gil"
            interval = 0.2
            deadline = 0.5
            def collect(self):
                ctypes.PyDLL(None).sleep(1000)
        """,
    )
    node.start()
    status = node.until("gil", lambda status: status.timeouts >= 1)
    assert "in collect (gil.py:" in status.message


def test_recovers_by_itself(node: CollectingNode, tmp_path: Path) -> None:
    (tmp_path / "stuck").touch()
    node.write(
        "moody.py",
        f"""
        X = Metric("moody_value", "gauge", "X.")
        class Moody(Collector):
            name = "moody"
            interval = 0.2
            deadline = 0.4
            def collect(self):
                while os.path.exists({str(tmp_path / "stuck")!r}):
                    time.sleep(0.01)
                yield X(1)
        """,
    )
    node.start()
    node.until("moody", lambda status: status.state == "quarantined")
    (tmp_path / "stuck").unlink()
    status = node.until("moody", lambda status: status.state == "running")
    assert status.success is True
    assert status.message == ""
    assert status.timeouts >= 1


def test_forks_and_sleeps_is_killed_with_all_it_started(
    node: CollectingNode, tmp_path: Path
) -> None:
    node.write(
        "fork.py",
        f"""
        import subprocess
        class Fork(Collector):
            name = "fork"
            deadline = 1.0
            def collect(self):
                child = subprocess.Popen(["sleep", "1000"])
                other = subprocess.Popen(["sh", "-c", "sleep 1000 & wait"], process_group=0) \\
                    if sys.version_info >= (3, 11) else child
                if os.fork() == 0:
                    time.sleep(1000)
                # A daemon: a session of its own, and no parent that could be followed.
                shell = "setsid sleep 1000 > /dev/null & echo $!"
                away = subprocess.check_output(["sh", "-c", shell], text=True)
                pids = [child.pid, other.pid, os.getpid(), int(away)]
                with open({str(tmp_path / "pids")!r}, "w") as file:
                    file.write(" ".join(map(str, pids)))
                time.sleep(1000)
        """,
    )
    node.start()
    pids = eventually(
        lambda: (tmp_path / "pids").exists() and (tmp_path / "pids").read_text().split(), "forked"
    )
    assert isinstance(pids, list)
    node.until("fork", lambda status: status.timeouts == 1)
    eventually(lambda: not any(alive(int(pid)) for pid in pids), "all of them are gone")
