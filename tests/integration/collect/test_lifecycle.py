"""Starts and ends, also violent ones: nothing is left behind, nothing piles up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ray_sentinel import signals
from ray_sentinel.collect import child_registry
from ray_sentinel.model.identity import ProcessId, Rank, RankId
from ray_sentinel.model.metrics import Family
from tests.support.collecting import CollectingNode, alive, stop
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

PID = """
    X = Metric("its_pid", "gauge", "X.")
    class C(Collector):
        name = "c"
        interval = 0.2
        def collect(self):
            yield X(os.getpid())
        def close(self):
            print("closed in peace")
"""

AGENT = """
import sys, time
from pathlib import Path
from tests.support.collecting import CollectingNode
node = CollectingNode(Path(sys.argv[1]))
node.start()
while True:
    time.sleep(0.05)
    for name in ("its_pid", "forked_pid"):
        if (value := node.value(name)) is not None:
            (node.folder / name).write_text(str(int(value)))
"""


StartAgent = Callable[[], "subprocess.Popen[bytes]"]


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[StartAgent]:
    """Starts a process that runs the plugins in ``tmp_path`` as an agent does."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        root = Path(__file__).parents[3]
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", AGENT, str(tmp_path)],
                cwd=root,
                env={**os.environ, "PYTHONPATH": str(root)},
            )
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait(timeout=10)


def test_stops_in_peace(node: CollectingNode) -> None:
    node.write("c.py", PID)
    node.start()
    pid = eventually(lambda: node.value("its_pid"), "its pid")
    begin = time.monotonic()
    node.stop()
    assert not alive(int(pid))
    assert time.monotonic() - begin < 15
    assert "closed in peace" in node.log("c")
    assert list((node.run_dir / "children").iterdir()) == []


def test_a_hanging_collector_does_not_hold_up_the_end(node: CollectingNode) -> None:
    node.write(
        "c.py",
        """
        class C(Collector):
            name = "c"
            def collect(self):
                print("begin", flush=True)
                time.sleep(1000)
        """,
    )
    node.start()
    eventually(lambda: "begin" in node.log("c"), "it hangs")
    begin = time.monotonic()
    node.stop()
    assert time.monotonic() - begin < 15


FORK = """
    import subprocess
    X = Metric("its_pid", "gauge", "X.")
    Y = Metric("forked_pid", "gauge", "Y.")
    class C(Collector):
        name = "c"
        interval = 0.2
        child = None
        def collect(self):
            if self.child is None:
                self.child = subprocess.Popen(["sleep", "1000"])
            yield X(os.getpid())
            yield Y(self.child.pid)
"""


def test_nothing_survives_a_killed_agent(agent: StartAgent, tmp_path: Path) -> None:
    node = CollectingNode(tmp_path)
    node.write("c.py", FORK)
    node.write_script("s.sh", f"sleep 1000 & echo $! $$ > {tmp_path}/script; wait")
    process = agent()
    files = [tmp_path / name for name in ("its_pid", "forked_pid", "script")]
    eventually(lambda: all(file.exists() and file.read_text() for file in files), "all run")
    pids = [int(word) for file in files for word in file.read_text().split()]
    assert all(alive(pid) for pid in pids)
    process.kill()
    process.wait(timeout=10)
    eventually(lambda: not any(alive(pid) for pid in pids), "no orphan is left", seconds=10)


def test_the_next_agent_ends_what_a_killed_one_left(agent: StartAgent, tmp_path: Path) -> None:
    node = CollectingNode(tmp_path)
    node.write("c.py", PID)
    process = agent()
    eventually(lambda: (tmp_path / "its_pid").exists(), "it runs")
    pid = int((tmp_path / "its_pid").read_text())
    stop(pid)  # so it cannot notice that the agent has gone
    process.kill()
    process.wait(timeout=10)
    assert alive(pid)
    (tmp_path / "its_pid").unlink()
    agent()
    eventually(lambda: not alive(pid), "it is ended")
    eventually(lambda: (tmp_path / "its_pid").exists(), "another one runs")


def test_what_cannot_be_killed_is_counted_and_waited_for_across_restarts(
    node: CollectingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process in D state, as far as the runner can see: no signal of ours reaches it."""
    node.configure("c", deadline=0.3)
    node.write("c.py", PID)
    node.start()
    pid = int(eventually(lambda: node.value("its_pid"), "its pid"))
    real_group, real_send = signals.send_pinned_group, signals.send

    def send_pinned_group(leader: int, number: int) -> None:
        if leader != pid:
            real_group(leader, number)

    def send(target: int, start: int, number: int) -> bool:
        return target != pid and real_send(target, start, number)

    monkeypatch.setattr(signals, "send_pinned_group", send_pinned_group)
    monkeypatch.setattr(signals, "send", send)
    stop(pid)  # so it misses its deadline
    status = node.until("c", lambda status: status.state == "stuck")
    assert status.unkillable == 1
    node.stop()
    assert alive(pid)
    node.start()
    status = node.until("c", lambda status: status.state == "stuck")
    assert status.unkillable == 1
    time.sleep(0.5)
    assert node.value("its_pid") is None  # no other one is started beside it
    monkeypatch.undo()
    os.kill(pid, signal.SIGKILL)
    node.until("c", lambda status: status.state == "running")
    assert node.value("its_pid") != pid


def test_ranks_are_handed_over_before_each_run(node: CollectingNode) -> None:
    node.write(
        "c.py",
        """
        X = Metric("rank_pids", "gauge", "X.")
        class C(Collector):
            name = "c"
            interval = 0.1
            def collect(self):
                yield X(sum(rank.process.pid for rank in self.context.ranks))
        """,
    )
    node.start()
    eventually(lambda: node.value("rank_pids") == 0.0, "none")
    rank = Rank(id=RankId("job", 0, 3), process=ProcessId("node1", 1234), node="ab")
    assert node.runner is not None
    node.runner.set_ranks([rank])
    eventually(lambda: node.value("rank_pids") == 1234.0, "the rank")


def test_a_collector_is_never_taken_for_a_rank(
    node: CollectingNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    node.write(
        "c.py",
        """
        class C(Collector):
            name = "c"
            def collect(self):
                print("variables", os.environ.get("RANK"), os.environ["RAY_SENTINEL_ROLE"])
                return ()
        """,
    )
    node.start()
    eventually(lambda: "variables None collector" in node.log("c"), "its variables")


def test_imports_no_ray_and_little_else(node: CollectingNode) -> None:
    node.write(
        "c.py",
        """
        class C(Collector):
            name = "c"
            def collect(self):
                heavy = {"ray", "numpy", "torch", "asyncio", "ssl", "http", "importlib.metadata"}
                print("heavy", sorted(heavy & sys.modules.keys()), len(sys.modules) < 150)
                return ()
        """,
    )
    node.start()
    eventually(lambda: "heavy [] True" in node.log("c"), "what it imported")


def test_the_log_is_bounded(tmp_path: Path) -> None:
    from ray_sentinel.collect.runner import Logbook

    book = Logbook(tmp_path / "logs", max_bytes=10_000)
    for _ in range(20):
        for _ in range(50):
            book.write("a/b", "x" * 50)
        time.sleep(0.01)
    book.close()
    files = sorted((tmp_path / "logs").iterdir())
    assert [file.name for file in files] == ["collector-a_b.log", "collector-a_b.log.1"]
    assert all(file.stat().st_size <= 10_000 for file in files)


def test_a_log_folder_that_cannot_be_written_costs_nothing_else(
    tmp_path: Path, node: CollectingNode
) -> None:
    node.logs = tmp_path / "file" / "logs"
    (tmp_path / "file").write_text("")
    node.write("c.py", PID)
    node.start()
    eventually(lambda: node.value("its_pid"), "it runs")


def test_a_process_of_the_same_number_is_not_taken_for_ours(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as other:
        try:
            group = child_registry.group_of(other.pid)
            book = child_registry.ChildRegistry(tmp_path / "children")
            book.write("c", child_registry.SpawnedGroup(group.pid, group.start - 1))
            assert book.leftovers() == []
            child_registry.kill(child_registry.SpawnedGroup(group.pid, group.start - 1))
            assert other.poll() is None
            book.write("c", group)
            assert [record.name for record in book.leftovers()] == ["c"]
            child_registry.kill(group)
            other.wait(timeout=10)
            assert book.leftovers() == []
        finally:
            other.kill()


def test_a_collector_is_told_when_its_steps_were_taken(tmp_path: Path) -> None:
    node = CollectingNode(tmp_path)
    node.write(
        "c.py",
        """
        X = Metric("taken_at", "gauge", "X.")
        class C(Collector):
            name = "c"
            interval = 0.2
            def collect(self):
                yield X(-1 if self.context.handed_on is None else self.context.handed_on)
        """,
    )
    node.start()
    try:
        eventually(lambda: node.value("taken_at") == -1, "none has come yet")
        node.runner.set_handed_on(123.5)
        eventually(lambda: node.value("taken_at") == 123.5, "it is told")
    finally:
        node.stop()


def test_the_same_answer_again_is_not_published_again(node: CollectingNode, tmp_path: Path) -> None:
    published: list[tuple[Family, ...]] = []
    (tmp_path / "value").write_text("1")
    node.write(
        "steady.py",
        f"""
        STEADY = Metric("steady", "gauge", "The same for a while.")
        class C(Collector):
            name = "steady"
            interval = 0.1
            def collect(self):
                with open({str(tmp_path / "runs")!r}, "a") as file:
                    file.write("x")
                yield STEADY(float(open({str(tmp_path / "value")!r}).read()))
        """,
    )
    node.start()
    eventually(lambda: node.value("steady") == 1, "it is served")
    runs = (tmp_path / "runs").stat().st_size

    def asked_often() -> bool:
        # What is published is another object each time, and no sooner than 0.2 s after the last.
        if not published or published[-1] is not node.published:
            published.append(node.published)
        return (tmp_path / "runs").stat().st_size > runs + 20

    eventually(asked_often, "it was asked often")
    assert len(published) <= 3
    (tmp_path / "value").write_text("2")
    eventually(lambda: node.value("steady") == 2, "what is new is served at once", seconds=5.0)
