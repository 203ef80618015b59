"""The configurations that we print, read as YAML: each key where Prometheus and its operator look.

``promtool check config`` looks at the first too; of the second there is no checker without a
cluster, so its shape is held against the fields of the operator's API (v1).
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from ray_sentinel.cli.main import main
from ray_sentinel.store.alerts_and_dashboards import prometheus_rule, rules_file
from ray_sentinel.store.prometheus.scrape_config import TargetDiscovery, pod_monitor, scrape_config

SPEC = {"selector", "podMetricsEndpoints", "namespaceSelector"}
ENDPOINT = {
    "targetPort", "portNumber", "port", "path", "interval", "scrapeTimeout", "honorLabels",
    "honorTimestamps", "relabelings", "metricRelabelings",
}  # fmt: skip
RELABELING = {"sourceLabels", "targetLabel", "regex", "replacement", "action"}
NASTY = 'a "b": c\\d #e'


def jobs(text: str) -> dict[str, dict[str, Any]]:
    return {job["job_name"]: job for job in yaml.safe_load(text)["scrape_configs"]}


def test_a_pod_monitor_has_the_operators_fields() -> None:
    found = yaml.safe_load(pod_monitor("ml"))
    assert (found["apiVersion"], found["kind"]) == ("monitoring.coreos.com/v1", "PodMonitor")
    assert found["metadata"] == {"name": "ray-sentinel", "namespace": "ml"}
    assert set(found["spec"]) <= SPEC
    assert found["spec"]["selector"] == {"matchLabels": {"ray.io/is-ray-node": "yes"}}
    endpoints = found["spec"]["podMetricsEndpoints"]
    assert [endpoint["path"] for endpoint in endpoints] == ["/metrics", "/steps"]
    for endpoint in endpoints:
        assert set(endpoint) <= ENDPOINT
        assert endpoint["honorLabels"] is True
        for rule in [*endpoint["relabelings"], *endpoint.get("metricRelabelings", [])]:
            assert set(rule) <= RELABELING
    assert "namespace" not in yaml.safe_load(pod_monitor())["metadata"]


def test_a_prometheus_rule_has_the_rules_under_its_spec() -> None:
    found = yaml.safe_load(prometheus_rule("ml"))
    assert (found["apiVersion"], found["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    assert found["metadata"] == {"name": "ray-sentinel", "namespace": "ml"}
    assert found["spec"] == yaml.safe_load(rules_file())


def test_names_are_texts_whatever_is_in_them() -> None:
    assert yaml.safe_load(pod_monitor(NASTY))["metadata"]["namespace"] == NASTY
    where = TargetDiscovery(kind="file", agents=NASTY, ray=f"/{NASTY}")
    found = yaml.safe_load(scrape_config(where, rules=[NASTY]))
    assert found["rule_files"] == [NASTY]
    (agents,) = found["scrape_configs"][0]["file_sd_configs"]
    assert agents["files"] == [NASTY]


@pytest.mark.parametrize("kind", ["http", "file"])
def test_three_jobs_that_keep_our_labels(kind: Any) -> None:
    found = jobs(
        scrape_config(TargetDiscovery(kind=kind, agents="http://n:9400/sd", ray="/r.json"))
    )
    assert list(found) == ["ray_sentinel", "ray_sentinel_steps", "ray"]
    for name in ("ray_sentinel", "ray_sentinel_steps"):
        assert found[name]["honor_labels"] is True
        discovery = "http_sd_configs" if kind == "http" else "file_sd_configs"
        assert len(found[name][discovery]) == 1
    assert "honor_labels" not in found["ray"]


def test_rays_dashboard_is_asked_with_its_token() -> None:
    where = TargetDiscovery(
        kind="http",
        agents="http://n:9400/sd",
        ray="/r.json",
        ray_dashboard="http://head:8265/",
        ray_token_file="/etc/token",
    )
    (discovery,) = jobs(scrape_config(where))["ray"]["http_sd_configs"]
    assert discovery == {
        "url": "http://head:8265/api/prometheus/sd",
        "authorization": {"credentials_file": "/etc/token"},
    }


def test_an_old_prometheus_gets_no_window_and_no_steps() -> None:
    where = TargetDiscovery(kind="file", agents="/a", ray="/r")
    text = scrape_config(where, old_samples=False)
    assert "storage" not in yaml.safe_load(text)
    assert list(jobs(text)) == ["ray_sentinel", "ray"]


def test_the_commands_print_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prometheus", "config", "--sd", "http://n:9400/sd", "--rules", "/r.yml"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["rule_files"] == ["/r.yml"]
    assert main(["prometheus", "config", "--kubernetes", "--namespace", "ml", "--json"]) == 0
    assert "PodMonitor" in json.loads(capsys.readouterr().out)["config"]
    assert main(["prometheus", "rules"]) == 0
    printed = capsys.readouterr().out
    assert main(["prometheus", "rules", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["file"] == printed
    assert {"name", "expr", "severity", "summary", "action"} <= set(found["rules"][0])
