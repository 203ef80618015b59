"""Every step of event files reaches a real Prometheus, once, at its own time."""

from __future__ import annotations

import json
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from ray_sentinel.api import Context
from ray_sentinel.store.job_prometheus import JobPrometheus
from ray_sentinel_exporters.prometheus import PrometheusExporter
from ray_sentinel_plugins.tensorboard import TensorboardCollector
from tests.support.parts import require

pytestmark = pytest.mark.integration

Point = tuple[str, int, float]
"""Attempt, milliseconds, value."""


def write(folder: Path, begin: float, steps: range, every: float, padding: int = 0) -> list[Point]:
    """Steps with these times; what they must become."""
    writer = EventFileWriter(str(folder))
    found = []
    for number, step in enumerate(steps):
        when = begin + number * every
        values = [Summary.Value(tag="loss", simple_value=step / 4)]
        if padding:
            values.append(Summary.Value(tag="text", node_name="x" * padding))
        writer.add_event(Event(wall_time=when, step=step, summary=Summary(value=values)))
        found.append(("", round(when * 1000), step / 4))
    writer.close()
    return found


def stored(url: str) -> list[Point]:
    query = urllib.parse.urlencode({"query": 'tb_loss{attempt!=""}[40d]'})
    with urllib.request.urlopen(f"{url}/api/v1/query?{query}", timeout=10) as answer:
        result = json.load(answer)["data"]["result"]
    return sorted(
        (series["metric"]["attempt"], round(float(stamp) * 1000), float(value))
        for series in result
        for stamp, value in series["values"]
    )


def test_the_database_holds_what_the_files_hold(tmp_path: Path) -> None:
    folder, now = tmp_path / "tb", time.time()
    expected = [("0", *p[1:]) for p in write(folder, now - 20 * 86400, range(200), 1.0)]
    # A restart that rewinds, 100 steps a second, and then records of 100 kB.
    later = write(tmp_path / "b", now - 3600, range(150, 1150), 0.01)
    (path,) = (tmp_path / "b").iterdir()
    path.rename(folder / f"events.out.tfevents.{int(now) + 10}.h.77.0")
    large = write(tmp_path / "c", now - 60, range(1150, 1160), 1.0, padding=100_000)
    (path,) = (tmp_path / "c").iterdir()
    path.rename(folder / f"events.out.tfevents.{int(now) + 20}.h.77.1")
    expected += [("1", *p[1:]) for p in (*later, *large)]
    options = TensorboardCollector.Options(folder=str(folder), history=True)
    collector = TensorboardCollector(Context(options=options))
    exporter = PrometheusExporter("node1", "127.0.0.1", PrometheusExporter.Options(port=0))
    server = JobPrometheus(tmp_path / "prometheus", binary=require("prometheus"))
    try:
        exporter.start()
        place = exporter.url.removeprefix("http://").removesuffix("/metrics")
        found: list[Point] = []
        end = time.monotonic() + 90
        while found != sorted(expected) and time.monotonic() < end:
            exporter.publish(tuple(collector.collect()))
            server.step((place,), {})
            time.sleep(0.5)
            found = stored(server.url) if server.ready() else []
        assert found == sorted(expected)
    finally:
        server.close()
        exporter.close()
