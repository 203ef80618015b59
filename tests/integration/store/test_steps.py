"""Every step of event files reaches a real Prometheus, once, at its own time.

The database is compared with the event files value by value, after whatever may happen between the
two: agents, collectors and the database come, go, and see the same folder.
"""

from __future__ import annotations

import json
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from ray_sentinel.api import Context, NoData
from ray_sentinel.model.identity import ProcessId, Rank, RankId
from ray_sentinel.store.prometheus.job import JobPrometheus
from ray_sentinel_exporters.prometheus import PrometheusExporter
from ray_sentinel_plugins._event_files.run import MAX_POINTS
from ray_sentinel_plugins.tensorboard import TensorboardCollector
from tests.support.parts import require

pytestmark = pytest.mark.integration

Point = tuple[str, int, float]
"""Attempt, milliseconds, value."""
HOST = "node1"


class Training:
    """Writes event files, and knows what must become of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.expected: list[Point] = []
        self._files = 0
        self._begun: int | None = None

    def write(
        self, attempt: int, begin: float, steps: range, every: float, padding: int = 0
    ) -> None:
        """One more file with these steps, of a process of its own."""
        self._files += 1
        place = self.folder.parent / f"writing-{self._files}"
        writer = EventFileWriter(str(place))
        for number, step in enumerate(steps):
            values = [Summary.Value(tag="loss", simple_value=step / 4)]
            if padding:
                values.append(Summary.Value(tag="text", node_name="x" * padding))
            when = begin + number * every
            writer.add_event(Event(wall_time=when, step=step, summary=Summary(value=values)))
            self.expected.append((str(attempt), round(when * 1000), step / 4))
        writer.close()
        (path,) = place.iterdir()
        self._begun = self._begun or int(time.time())
        name = (
            f"events.out.tfevents.{self._begun + self._files}.{HOST}.{70 + attempt}.{self._files}"
        )
        self.folder.mkdir(exist_ok=True)
        path.rename(self.folder / name)


class Agent:
    """What an agent does with the bridge: collects, publishes, and tells who took it."""

    def __init__(self, folder: Path, host: str = HOST, place: str = "127.0.0.1") -> None:
        self._options = TensorboardCollector.Options(folder=str(folder), history=True)
        self._rank = Rank(id=RankId("job", 0, 0), process=ProcessId(host, 1), node=host)
        self.exporter = PrometheusExporter(host, place, PrometheusExporter.Options(port=0))
        self.exporter.start()
        self.collector = self._made(host)
        self._host = host

    def _made(self, host: str) -> TensorboardCollector:
        with pytest.MonkeyPatch.context() as there:
            there.setattr("socket.gethostname", lambda: host)
            return TensorboardCollector(Context(options=self._options, ranks=(self._rank,)))

    @property
    def place(self) -> str:
        return self.exporter.url.removeprefix("http://").removesuffix("/metrics")

    def restart_collector(self) -> None:
        """The collector's process dies, and another one begins from nothing."""
        self.collector.close()
        self.collector = self._made(self._host)

    def cycle(self) -> None:
        self.collector.context = Context(
            options=self._options, ranks=(self._rank,), handed_on=self.exporter.handed_on
        )
        try:
            self.exporter.publish(tuple(self.collector.collect()))
        except NoData:
            self.exporter.publish(())

    def close(self) -> None:
        self.collector.close()
        self.exporter.close()


@pytest.fixture
def training(tmp_path: Path) -> Training:
    return Training(tmp_path / "tb")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[JobPrometheus]:
    server = JobPrometheus(tmp_path / "prometheus", binary=require("prometheus"))
    yield server
    server.close()


@pytest.fixture
def agents(training: Training) -> Iterator[Callable[..., Agent]]:
    made: list[Agent] = []

    def make(host: str = HOST, place: str = "127.0.0.1") -> Agent:
        made.append(Agent(training.folder, host, place))
        return made[-1]

    yield make
    for agent in made:
        agent.close()


def asked(url: str, query: str) -> list[dict[str, object]]:
    path = f"{url}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    with urllib.request.urlopen(path, timeout=10) as answer:
        return list(json.load(answer)["data"]["result"])


def stored(url: str) -> list[Point]:
    """All values of all series, whoever brought them."""
    return sorted(
        (series["metric"]["attempt"], round(float(stamp) * 1000), float(value))  # type: ignore[index]
        for series in asked(url, 'tb_loss{attempt!=""}[60d]')
        for stamp, value in series["values"]  # type: ignore[attr-defined]
    )


def run(
    database: JobPrometheus,
    agents: list[Agent],
    done: Callable[[list[Point]], bool],
    seconds: float = 90.0,
) -> list[Point]:
    """Collect and scrape until ``done`` is content with what is stored, or time is up."""
    found: list[Point] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for agent in agents:
            agent.cycle()
        database.step(tuple(agent.place for agent in agents), {})
        time.sleep(0.5)
        found = stored(database.url) if database.ready() else []
        if done(found):
            break
    return found


def settled(database: JobPrometheus, agents: list[Agent], training: Training) -> list[Point]:
    """What is stored once all is there, and some scrapes later."""
    wanted = sorted(training.expected)
    run(database, agents, lambda found: found == wanted)
    end = time.monotonic() + 12.0
    return run(database, agents, lambda _: time.monotonic() > end)


def test_the_database_holds_what_the_files_hold(
    training: Training, database: JobPrometheus, agents: Callable[..., Agent]
) -> None:
    """Files older than the sentinel, a restart that rewinds, 100 steps a second, and records of
    100 kB; steps that come later than newer ones; one too old for any Prometheus."""
    now = time.time()
    training.write(0, now - 40 * 86400, range(5), 1.0)
    training.expected.clear()
    training.write(0, now - 20 * 86400, range(200), 1.0)
    training.write(1, now - 3600, range(150, 1150), 0.01)
    training.write(1, now - 60, range(1150, 1160), 1.0, padding=100_000)
    agent = agents()
    run(database, [agent], lambda found: found == sorted(training.expected))
    training.write(1, now - 7200, range(5000, 5050), 1.0)
    assert settled(database, [agent], training) == sorted(training.expected)
    ups = asked(database.url, 'min_over_time(up{job=~"ray_sentinel.*"}[5m])')
    assert ups
    assert {series["value"][1] for series in ups} == {"1"}  # type: ignore[index]


def test_a_shared_folder_seen_by_three_agents_that_take_over(
    training: Training, database: JobPrometheus, agents: Callable[..., Agent]
) -> None:
    """One reads; when the training moves to another host, that one's agent reads all anew."""
    three = [agents(f"node{i}", f"127.0.0.{i}") for i in (1, 2, 3)]
    now = time.time()
    training.write(0, now - 600, range(100), 1.0)
    run(database, three, lambda found: found == sorted(training.expected))
    assert [b"tb_step" in _page(agent) for agent in three].count(True) == 1
    training.write(1, now - 300, range(50, 200), 1.0)
    newest = max(training.folder.iterdir(), key=lambda path: path.name)
    newest.rename(newest.with_name(newest.name.replace(f".{HOST}.", ".node2.")))
    assert settled(database, three, training) == sorted(training.expected)
    series = asked(database.url, 'count by (attempt) (last_over_time(tb_loss{attempt!=""}[1h]))')
    assert [one["value"][1] for one in series] == ["1", "1"], "one series an attempt"  # type: ignore[index]


def _page(agent: Agent) -> bytes:
    with urllib.request.urlopen(agent.exporter.url, timeout=10) as answer:
        return bytes(answer.read())


def test_a_collector_that_is_restarted_in_between(
    training: Training, database: JobPrometheus, agents: Callable[..., Agent]
) -> None:
    agent = agents()
    now = time.time()
    training.write(0, now - 900, range(300), 1.0)
    run(database, [agent], lambda found: found == sorted(training.expected))
    agent.restart_collector()
    training.write(1, now - 400, range(100, 400), 1.0)
    agent.cycle()
    agent.restart_collector()
    assert settled(database, [agent], training) == sorted(training.expected)


def test_ten_minutes_without_a_prometheus(
    training: Training,
    database: JobPrometheus,
    agents: Callable[..., Agent],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It scrapes, ends, ten minutes of 100 steps a second pass, and it comes back. The clock is
    moved, not waited for."""
    agent = agents()
    now = time.time()
    training.write(0, now - 1200, range(100), 1.0)
    run(database, [agent], lambda found: found == sorted(training.expected))
    assert agent.exporter.handed_on is not None
    database.close()
    real, passed = time.monotonic, 0.0
    with monkeypatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: real() + passed)
        for minute in range(10):
            steps = range(6000 * minute, 6000 * (minute + 1))
            training.write(0, now - 660 + 60 * minute, steps, 0.01)
            for _ in range(4):
                passed += 15.0
                agent.cycle()
        assert len(training.expected) > MAX_POINTS
        again = JobPrometheus(tmp_path / "prometheus", binary=require("prometheus"))
        try:
            wanted = sorted(training.expected)
            found = run(again, [agent], lambda found: found == wanted, 150.0)
        finally:
            again.close()
    assert len(found) == len(wanted)
    assert found == wanted
