"""What collectors print and yield: garbage, too much, another's, nothing, something old."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.collecting import CollectingNode, still_good
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("good_one_beside_it")]


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
