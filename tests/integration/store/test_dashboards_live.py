"""Every query of every dashboard, asked of a real Prometheus that scrapes our own exporter."""

from __future__ import annotations

import json
import re
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ray_sentinel.store.alerts_and_dashboards import DASHBOARDS, dashboard
from ray_sentinel.store.prometheus.job import JobPrometheus
from ray_sentinel_exporters.prometheus import PrometheusExporter
from tests.support.all_families import families
from tests.support.parts import require
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

SECONDS = 120.0
GRAFANA = {"$__rate_interval": "40s", "$host": ".*", "$job": ".*", "$gpu": ".*", "$device": ".*"}


class Node:
    """An exporter that publishes everything twice a second, and a Prometheus that scrapes it."""

    def __init__(self, folder: Path) -> None:
        self.exporter = PrometheusExporter("node1", "127.0.0.1", PrometheusExporter.Options(port=0))
        self.exporter.start()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._publish, daemon=True)
        self._thread.start()
        self.prometheus = JobPrometheus(folder, binary=require("prometheus"), port=9290)
        place = self.exporter.url.split("//")[1].split("/")[0]
        self.prometheus.step((place,), {})

    def _publish(self) -> None:
        started = time.time()
        while not self._done.wait(0.5):
            self.exporter.publish(families(started))

    def close(self) -> None:
        self.prometheus.close()
        self._done.set()
        self._thread.join()
        self.exporter.close()

    def ask(self, expr: str) -> list[Any]:
        """The series of an answer. Raises AssertionError for a query that is none."""
        for name, value in GRAFANA.items():
            expr = expr.replace(name, value)
        query = urllib.parse.urlencode({"query": expr.replace("$tag", "tb_.+")})
        try:
            with urllib.request.urlopen(
                f"{self.prometheus.url}/api/v1/query?{query}", timeout=10
            ) as answer:
                return list(json.load(answer)["data"]["result"])
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{expr}: {error.read().decode()}") from None


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    running = Node(tmp_path_factory.mktemp("prometheus"))
    eventually(running.prometheus.ready, "Prometheus answers", SECONDS)
    # A rate needs two scrapes, and an alert two evaluations.
    eventually(lambda: running.ask("ALERTS{alertstate='firing'}"), "an alert fires", SECONDS)
    yield running
    running.close()


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_query_is_answered_with_data(name: str, node: Node) -> None:
    model = dashboard(name)
    asked = [
        (panel["title"], target["expr"])
        for panel in model["panels"]
        for target in panel.get("targets", ())
    ]
    asked += [(mark["name"], mark["expr"]) for mark in model["annotations"]["list"]]
    assert not [f"{title}: {expr}" for title, expr in asked if not node.ask(expr)]


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_choice_has_values(name: str, node: Node) -> None:
    source, *choices = dashboard(name)["templating"]["list"]
    assert source["type"] == "datasource"
    for choice in choices:
        query = choice["query"]["query"]
        found = re.fullmatch(r"label_values\((.+), (\w+)\)", query)
        assert found, query
        labels = [series["metric"].get(found[2]) for series in node.ask(found[1])]
        assert any(labels), query


def test_a_query_that_is_none_is_refused(node: Node) -> None:
    with pytest.raises(AssertionError, match="parse error"):
        node.ask("rate(hw_load1")
    assert not node.ask("hw_no_such_series")
