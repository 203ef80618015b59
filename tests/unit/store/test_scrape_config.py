"""The generated scrape configuration."""

from __future__ import annotations

import json

from ray_sentinel.actors.coordinator.prometheus import ray_targets
from ray_sentinel.store.scrape_config import (
    TargetDiscovery,
    pod_monitor,
    ray_targets_file,
    scrape_config,
    targets_file,
)


def test_steps_are_a_job_of_their_own() -> None:
    text = scrape_config(
        TargetDiscovery(kind="http", agents="http://n:9400/sd", ray="/tmp/ray/x.json")
    )
    jobs = [line.split()[-1] for line in text.splitlines() if "job_name" in line]
    assert jobs == ["ray_sentinel", "ray_sentinel_steps", "ray"]
    assert text.count('url: "http://n:9400/sd"') == 2
    assert "out_of_order_time_window" in text


def test_addresses_become_hosts() -> None:
    where = TargetDiscovery(kind="http", agents="u", ray="f", hosts={"10.0.0.1": "node1", "x": "x"})
    text = scrape_config(where)
    assert '        regex: "10\\\\.0\\\\.0\\\\.1"\n' in text
    assert '        replacement: "node1"\n' in text
    assert text.count("source_labels: [ip]") == 2


def test_paths_are_quoted() -> None:
    text = scrape_config(
        TargetDiscovery(kind="file", agents='/a "b": c', ray="/r"), rules=["/x/*.yml"]
    )
    assert '- files: ["/a \\"b\\": c"]' in text
    assert "source_labels: [ip]" not in text


def test_a_step_is_the_same_whichever_agent_read_it() -> None:
    text = scrape_config(TargetDiscovery(kind="file", agents="/a", ray="/r"))
    steps = text.partition("job_name: ray_sentinel_steps")[2].partition("job_name: ray\n")[0]
    assert "action: labeldrop\n        regex: instance\n" in steps
    assert text.count("labeldrop") == 1


def test_lists_of_targets() -> None:
    assert json.loads(targets_file(["b:1", "a:1"])) == [{"targets": ["a:1", "b:1"], "labels": {}}]
    assert json.loads(ray_targets_file({"a:2": "node1"})) == [
        {"targets": ["a:2"], "labels": {"host": "node1"}}
    ]


def test_targets_of_ray_are_those_that_live() -> None:
    def entry(number: int, **more: object) -> dict[str, object]:
        return {
            "NodeID": str(number),
            "NodeManagerHostname": f"node{number}.cluster",
            "NodeManagerAddress": f"10.0.0.{number}",
            "MetricsExportPort": 8080,
            "Alive": True,
            **more,
        }

    found = ray_targets([entry(1), entry(2, Alive=False), entry(3, MetricsExportPort=0)])
    assert found == {"10.0.0.1:8080": "node1"}


def test_the_pod_monitor_scrapes_both_paths() -> None:
    text = pod_monitor("ml")
    assert "path: /metrics" in text
    assert "path: /steps" in text
    assert '  namespace: "ml"\n' in text
