"""What a collector can do wrong, done by real processes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.support.collecting import CollectingNode, alive
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

GOOD = """
    X = Metric("good_value", "gauge", "X.")
    class Good(Collector):
        name = "good"
        interval = 0.2
        metrics = (X,)
        def collect(self):
            yield X(os.getpid())
"""


@pytest.fixture(autouse=True)
def good_one_beside_it(node: CollectingNode) -> None:
    """Whatever another does, this one goes on."""
    node.write("good.py", GOOD)


def still_good(node: CollectingNode) -> None:
    before = node.until("good", lambda status: status.success is True).last_success
    assert before is not None
    node.until("good", lambda status: (status.last_success or 0) > before)
    eventually(lambda: node.value("good_value") is not None, "it is served")


def test_raises_at_import(node: CollectingNode) -> None:
    node.write("bad.py", "class B(Collector):\n    name = 'bad'\nraise RuntimeError('at import')")
    node.start()
    status = node.until("bad", lambda status: status.state == "quarantined")
    assert status.success is False
    assert "RuntimeError: at import (bad.py:" in status.message
    still_good(node)


def test_raises_while_collecting(node: CollectingNode) -> None:
    node.write(
        "bad.py",
        """
        class B(Collector):
            name = "bad"
            interval = 0.2
            def collect(self):
                raise ValueError("no such thing")
        """,
    )
    node.start()
    status = node.until("bad", lambda status: status.success is False)
    assert status.state == "running"
    assert "ValueError: no such thing (bad.py:" in status.message
    assert "Traceback" in eventually(lambda: node.log("bad"), "the log")
    still_good(node)


def test_prints_garbage_on_stdout(node: CollectingNode) -> None:
    node.write(
        "loud.py",
        """
        X = Metric("loud_value", "gauge", "X.")
        class Loud(Collector):
            name = "loud"
            interval = 0.2
            def collect(self):
                print("garbage")
                os.write(1, b"\\xff\\x00more garbage\\n")
                os.system("echo from a child")
                yield X(1)
        """,
    )
    node.start()
    node.until("loud", lambda status: status.success is True)
    eventually(lambda: node.value("loud_value") == 1.0, "it is served")
    eventually(lambda: "from a child" in node.log("loud"), "what it printed is in its log")


def test_writes_garbage_into_our_pipe(node: CollectingNode) -> None:
    node.write(
        "evil.py",
        """
        class Evil(Collector):
            name = "evil"
            interval = 0.2
            def collect(self):
                for fd in range(3, 20):
                    try:
                        os.write(fd, b"\\xff" * 100)
                    except OSError:
                        pass
                return ()
        """,
    )
    node.start()
    status = node.until("evil", lambda status: status.state == "quarantined")
    assert "longer than" in status.message
    still_good(node)


def test_prints_without_end(node: CollectingNode) -> None:
    node.configure("flood", deadline=1.0)
    node.write(
        "flood.py",
        """
        class Flood(Collector):
            name = "flood"
            def collect(self):
                while True:
                    print("x" * 1000)
        """,
    )
    node.start()
    node.until("flood", lambda status: status.timeouts >= 1)
    assert len(node.log("flood")) < 500_000
    still_good(node)


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


def test_yields_what_another_one_owns(node: CollectingNode) -> None:
    node.start()
    node.until("good", lambda status: status.success is True)
    node.write(
        "thief.py",
        """
        X = Metric("good_value", "gauge", "Mine now.")
        Y = Metric("thief_value", "gauge", "Y.")
        Z = Metric("ray_sentinel_collector_success", "gauge", "Z.")
        class Thief(Collector):
            name = "thief"
            interval = 0.2
            def collect(self):
                yield X(-1)
                yield Y(2)
                yield Z(3)
        """,
    )
    status = node.until("thief", lambda status: bool(status.message))
    assert status.success is True
    assert "good_value is served by good" in status.message
    assert "ray_sentinel_collector_success is served by the agent itself" in status.message
    eventually(lambda: node.value("thief_value") == 2.0, "what is its own is served")
    still_good(node)
    assert node.value("good_value") != -1.0
    helps = {f.metric.help for f in node.published if f.metric.name == "good_value"}
    assert helps == {"X."}


def test_yields_a_million_series(node: CollectingNode) -> None:
    node.write(
        "many.py",
        """
        X = Metric("many_value", "gauge", "X.", ("i",))
        class Many(Collector):
            name = "many"
            def collect(self):
                for i in range(1_000_000):
                    yield X(i, str(i))
        """,
    )
    node.start()
    status = node.until("many", lambda status: status.success is True)
    assert "20000 series or more" in status.message
    eventually(
        lambda: (
            sum(len(f.samples) for f in node.published if f.metric.name == "many_value") == 20_000
        ),
        "as many as allowed are served",
    )


def test_dies_and_is_started_again(node: CollectingNode) -> None:
    node.start()
    node.until("good", lambda status: status.success is True)
    pid = eventually(lambda: node.value("good_value"), "its pid")
    os.kill(int(pid), signal.SIGKILL)
    status = node.until("good", lambda status: status.restarts == 1)
    assert status.timeouts == 0
    node.until("good", lambda status: status.state == "running" and status.success is True)
    eventually(lambda: node.value("good_value") not in (None, pid), "another process serves")
    eventually(lambda: "killed by signal 9" in node.log("good"), "the log says how it ended")


@pytest.mark.parametrize("code", ["sys.exit(3)", "os._exit(3)", "os.kill(os.getpid(), 11)"])
def test_ends_in_the_middle_of_a_run(node: CollectingNode, code: str) -> None:
    node.write(
        "exit.py",
        f"""
        class Exit(Collector):
            name = "exit"
            interval = 0.3
            def collect(self):
                {code}
        """,
    )
    node.start()
    status = node.until("exit", lambda status: status.success is False and bool(status.message))
    expected = {"sys.exit(3)": "SystemExit: 3", "os._exit(3)": "ended with status 3"}
    assert expected.get(code, "killed by signal 11") in status.message
    still_good(node)


def test_skip_is_for_good(node: CollectingNode) -> None:
    for name, where in (("early", "__init__"), ("late", "collect")):
        node.write(
            f"{name}.py",
            f"""
            class C(Collector):
                name = "{name}"
                interval = 0.1
                def collect(self):
                    yield from ()
                def {where}(self, *args):
                    raise Skip("no such hardware")
            """,
        )
    node.start()
    for name in ("early", "late"):
        status = node.until(name, lambda status: status.state == "skipped")
        assert status.message == "no such hardware"
        assert status.success is None
        eventually(lambda name=name: " ended with status" in node.log(name), "its process has gone")
    still_good(node)
    assert node.log("early").count("started process") == 1


def test_no_data_is_success_and_keeps_what_was_there(node: CollectingNode) -> None:
    node.write(
        "quiet.py",
        """
        X = Metric("quiet_value", "gauge", "X.")
        class Quiet(Collector):
            name = "quiet"
            interval = 0.2
            runs = 0
            def collect(self):
                self.runs += 1
                if self.runs > 1:
                    raise NoData("nothing new")
                yield X(7)
        """,
    )
    node.start()
    first = node.until("quiet", lambda status: status.success is True).last_success or 0.0
    status = node.until("quiet", lambda status: (status.last_success or 0) > first + 1.0)
    assert status.success is True
    eventually(lambda: node.value("quiet_value") == 7.0, "it is still served")


def test_old_families_are_dropped(node: CollectingNode, tmp_path: Path) -> None:
    node.write(
        "ghost.py",
        f"""
        X = Metric("ghost_value", "gauge", "X.")
        class Ghost(Collector):
            name = "ghost"
            interval = 1.0
            def collect(self):
                if os.path.exists({str(tmp_path / "broken")!r}):
                    raise OSError("broken")
                yield X(7)
        """,
    )
    node.start()
    eventually(lambda: node.value("ghost_value") == 7.0, "it is served")
    (tmp_path / "broken").touch()
    node.until("ghost", lambda status: status.success is False)
    assert node.value("ghost_value") == 7.0  # the last good one, for three intervals
    eventually(lambda: node.value("ghost_value") is None, "it is not served for ever")
    (tmp_path / "broken").unlink()
    eventually(lambda: node.value("ghost_value") == 7.0, "it is served again")


def test_each_event_is_passed_on_once(node: CollectingNode) -> None:
    node.write(
        "xid.py",
        """
        class Xid(Collector):
            name = "xid"
            interval = 0.1
            count = 0
            def collect(self):
                for _ in range(10):
                    self.count += 1
                    yield Event(time=1.0, kind="kernel.xid", message=str(self.count))
                if self.count == 50:
                    raise OSError("events before a failure count too")
        """,
    )
    node.start()
    eventually(lambda: len(node.events) >= 100, "events")
    seen = [event.message for event in node.events]
    assert seen == [str(i + 1) for i in range(len(seen))]


def test_an_unknown_option_is_told(node: CollectingNode) -> None:
    node.configure("good", intervall=3)
    node.start()
    status = node.until("good", lambda status: status.state == "quarantined")
    assert "[collectors.good]: unknown key intervall" in status.message


def test_a_table_for_nobody_and_a_bad_one_are_told(node: CollectingNode) -> None:
    node.configure("goood", interval=3)
    node.configure("bad", interval="often")
    node.write("bad.py", "class B(Collector):\n    name = 'bad'\n    def collect(self): ...\n")
    node.start()
    status = node.until("[collectors.goood]", lambda status: True)
    assert "there is no such collector" in status.message
    assert "interval" in node.until("bad", lambda status: True).message
    still_good(node)


def test_disabled_is_not_run(node: CollectingNode) -> None:
    node.write("off.py", "class B(Collector):\n    name = 'off'\n    def collect(self): ...\n")
    node.configure("off", enabled=False)
    node.start()
    still_good(node)
    assert node.status("off") is None


def test_a_collector_that_cannot_be_started_is_tried_again(
    node: CollectingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/no/such/python")
    node.start()
    status = node.until("good", lambda status: status.state == "quarantined")
    assert "cannot be started" in status.message
    monkeypatch.undo()
    assert node.runner is not None
    node.runner.restart("good")
    still_good(node)
