"""The generated scrape configuration."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from ray_sentinel.actors.coordinator.prometheus import ray_targets
from ray_sentinel.actors.hosts import ray_nodes
from ray_sentinel.config import ScrapeConfig
from ray_sentinel.store.prometheus.scrape_config import (
    TargetDiscovery,
    ray_targets_file,
    scrape_config,
    targets_file,
)
from ray_sentinel.store.prometheus.yaml_text import yaml_text


def jobs(where: TargetDiscovery) -> dict[str, dict[str, Any]]:
    found = yaml.safe_load(scrape_config(where))["scrape_configs"]
    return {job["job_name"]: job for job in found}


def test_steps_are_a_job_of_their_own() -> None:
    where = TargetDiscovery(kind="http", agents="http://n:9400/sd", ray="/tmp/ray/x.json")
    found = jobs(where)
    assert list(found) == ["ray_sentinel", "ray_sentinel_steps", "ray"]
    for name in ("ray_sentinel", "ray_sentinel_steps"):
        assert [sd["url"] for sd in found[name]["http_sd_configs"]] == ["http://n:9400/sd"]
    tsdb = yaml.safe_load(scrape_config(where))["storage"]["tsdb"]
    assert tsdb == {"out_of_order_time_window": "30d"}


def test_addresses_become_hosts() -> None:
    hosts = {"10.0.0.1": "node1", "10.0.0.2": "a$b", "x": "x"}
    where = TargetDiscovery(kind="http", agents="u", ray="f", hosts=hosts)
    relabel = jobs(where)["ray"]["metric_relabel_configs"]
    assert all(rule["source_labels"] == ["ip"] for rule in relabel)
    assert [(rule["regex"], rule["replacement"]) for rule in relabel] == [
        ("(.+)", "$1"), (r"10\.0\.0\.1", "node1"), (r"10\.0\.0\.2", "a$$b"),
    ]  # fmt: skip


def test_a_list_of_rays_targets_gives_the_host_itself() -> None:
    found = jobs(TargetDiscovery(kind="file", agents="/a", ray="/r"))["ray"]
    assert found["file_sd_configs"] == [{"files": ["/r"]}]
    assert "metric_relabel_configs" not in found


def test_a_step_is_the_same_whichever_agent_read_it() -> None:
    found = jobs(TargetDiscovery(kind="file", agents="/a", ray="/r"))
    drop = [{"action": "labeldrop", "regex": "instance"}]
    assert found["ray_sentinel_steps"]["metric_relabel_configs"] == drop
    assert "metric_relabel_configs" not in found["ray_sentinel"]


def test_agents_with_tls_and_a_name_are_read_and_listed_with_both() -> None:
    scrape = ScrapeConfig(
        ca_file="/ca", username="prom", password_file="/pw", insecure_skip_verify=True
    )
    where = TargetDiscovery(kind="http", agents="https://n:9400/sd", ray="/r", scrape=scrape)
    job = jobs(where)["ray_sentinel"]
    (discovery,) = job["http_sd_configs"]
    for part in (job, discovery):
        assert part["tls_config"] == {"ca_file": "/ca", "insecure_skip_verify": True}
        assert part["basic_auth"] == {"username": "prom", "password_file": "/pw"}
    assert "&" not in scrape_config(where), "no anchors: each part can be copied"


@pytest.mark.parametrize(
    "text", ["1e3", "0o17", "0x1f", "1_000", "20:30", "1.5", "yes", "null", "~", "", "a: b", "30d"]
)
def test_a_string_stays_one_for_every_reader(text: str) -> None:
    written = yaml_text([text])
    assert yaml.safe_load(written) == [text]
    # Go reads YAML 1.2: what may be a number there must be in quotes.
    assert text in ("30d", "a: b") or written[2] in "\"'"


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

    silent = entry(3, MetricsExportPort=0), entry(4, MetricsExportPort=-1)
    entries = [entry(1), entry(2, Alive=False), *silent]
    found = ray_targets(list(ray_nodes(entries).values()))
    assert found == {"10.0.0.1:8080": "node1"}
