"""The scrape configuration of a Prometheus that watches a job, as YAML.

Three scrape jobs: our agents' gauges; the history of steps, whose samples have times of their own,
and of which one that is too old fails its whole scrape, so that it must not share one with the
hardware; and Ray's own metrics.
Format: https://prometheus.io/docs/prometheus/latest/configuration/configuration/.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.config import ScrapeConfig
from ray_sentinel.errors import ConfigError
from ray_sentinel.store.prometheus.yaml_text import yaml_text

SCRAPE_SECONDS = 5
OUT_OF_ORDER = "30d"
"""How far a step's sample may be behind the newest sample: values from files older than the
sentinel count too."""

RAY_FILE = "prom_metrics_service_discovery.json"
"""Name of Ray's own list of its targets, in Ray's temp dir on the head."""

RAY_PATH = "/api/prometheus/sd"
"""Path at which Ray's dashboard serves the same list."""


class TargetDiscovery(msgspec.Struct, frozen=True, kw_only=True):
    """How Prometheus learns its targets."""

    kind: Literal["http", "file"]
    agents: str
    """The URL of an agent's ``/sd``, or the file that lists the agents."""
    ray: str
    """Path of the file that lists Ray's targets."""
    ray_dashboard: str = ""
    """The URL of Ray's dashboard, which lists Ray's targets for a Prometheus that cannot read the
    file; empty if the file is used."""
    ray_token_file: str = ""
    """Path of the file with the cluster's token, if the dashboard asks for one."""
    scrape: ScrapeConfig = ScrapeConfig()
    """How the agents are read if they ask for TLS or authentication."""
    hosts: Mapping[str, str] = {}
    """The host label of each address of Ray's nodes; needed if the file does not give the host."""


def scrape_config(
    where: TargetDiscovery, *, rules: Iterable[str] = (), old_samples: bool = True
) -> str:
    """The configuration file. ``rules`` are paths of rule files, which may contain a ``*``.

    ``old_samples`` is False for a Prometheus before 2.39, which does not store past steps.
    """
    config: dict[str, Any] = {
        "global": {"scrape_interval": f"{SCRAPE_SECONDS}s", "evaluation_interval": "15s"}
    }
    jobs = [_agents("ray_sentinel", "/metrics", where)]
    if old_samples:
        # Steps come with the times at which they were done.
        config["storage"] = {"tsdb": {"out_of_order_time_window": OUT_OF_ORDER}}
        steps = _agents("ray_sentinel_steps", "/steps", where)
        # A step is the same whichever agent read it: they take over from each other.
        jobs.append({**steps, "metric_relabel_configs": [_DROP_INSTANCE]})
    if files := list(rules):
        config["rule_files"] = files
    return yaml_text({**config, "scrape_configs": [*jobs, _ray(where)]})


_DROP_INSTANCE = {"action": "labeldrop", "regex": "instance"}


def _agents(job: str, path: str, where: TargetDiscovery) -> dict[str, Any]:
    # Whether an agent speaks TLS is in its __scheme__, which /sd and our lists give.
    access = client_access(where.scrape)
    if where.kind == "http":
        found = {"url": where.agents, "refresh_interval": "10s", **access}
        discovery = {"http_sd_configs": [found]}
    else:
        discovery = {"file_sd_configs": [{"files": [where.agents]}]}
    return {
        "job_name": job,
        "metrics_path": path,
        "scrape_interval": f"{SCRAPE_SECONDS}s",
        "scrape_timeout": f"{SCRAPE_SECONDS}s",
        "honor_labels": True,  # our series bring their own host and job
        **access,
        **discovery,
        # /sd names a job of its own for those who use it without a configuration of ours.
        "relabel_configs": [{"target_label": "job", "replacement": job}],
    }


def _ray(where: TargetDiscovery) -> dict[str, Any]:
    job = {"job_name": "ray", "scrape_interval": "10s", **_ray_discovery(where)}
    if where.kind == "file":
        return job  # our own list of Ray's targets gives each its host
    relabel = [_host_of_ip("(.+)", "$1")]
    relabel += [
        _host_of_ip(re.escape(address), host.replace("$", "$$"))
        for address, host in sorted(where.hosts.items())
        if address != host
    ]
    return {**job, "metric_relabel_configs": relabel}


def _ray_discovery(where: TargetDiscovery) -> dict[str, Any]:
    if not where.ray_dashboard:
        return {"file_sd_configs": [{"files": [where.ray]}]}
    found: dict[str, Any] = {"url": where.ray_dashboard.rstrip("/") + RAY_PATH}
    if where.ray_token_file:
        # The dashboard wants it; the nodes' metrics ports do not.
        found["authorization"] = {"credentials_file": where.ray_token_file}
    return {"http_sd_configs": [found]}


def _host_of_ip(pattern: str, host: str) -> dict[str, Any]:
    """Ray's series carry ``ip``, ours ``host``."""
    return {
        "source_labels": ["ip"], "regex": pattern, "target_label": "host", "replacement": host,
    }  # fmt: skip


def client_access(scrape: ScrapeConfig) -> dict[str, Any]:
    """TLS and authentication of a client, by reference to files: a configuration contains no
    secret. Raises ConfigError for settings that do not go together."""
    check_scrape(scrape)
    keys = ("ca_file", "cert_file", "key_file", "server_name", "insecure_skip_verify")
    access: dict[str, Any] = {}
    if tls := {key: value for key in keys if (value := getattr(scrape, key))}:
        access["tls_config"] = tls
    if scrape.username:
        login = {"username": scrape.username, "password_file": scrape.password_file}
        access["basic_auth"] = login
    if scrape.bearer_token_file:
        access["authorization"] = {"credentials_file": scrape.bearer_token_file}
    return access


def check_scrape(scrape: ScrapeConfig) -> None:
    """Raises ConfigError for settings that do not go together, or paths that are not absolute."""
    for one, other in (("username", "password_file"), ("cert_file", "key_file")):
        if bool(getattr(scrape, one)) != bool(getattr(scrape, other)):
            raise ConfigError(f"[scrape] {one} and {other} need each other")
    if scrape.username and scrape.bearer_token_file:
        raise ConfigError("[scrape] username and bearer_token_file exclude each other")
    for key in ("ca_file", "cert_file", "key_file", "password_file", "bearer_token_file"):
        if (path := getattr(scrape, key)) and not path.startswith("/"):
            raise ConfigError(f"[scrape] {key}: {path!r} must be an absolute path")


def scrape_target(url: str) -> str:
    """The scrape target for the metrics at ``url``.

    >>> scrape_target("http://10.0.0.1:9400/metrics"), scrape_target("https://n1:9400/metrics")
    ('10.0.0.1:9400', 'https://n1:9400')
    """
    scheme, _, rest = url.rpartition("://")
    place = rest.partition("/")[0]
    return f"https://{place}" if scheme == "https" else place


def target_groups(targets: Iterable[str], labels: Mapping[str, str]) -> list[dict[str, Any]]:
    """Agents in the format of service discovery. ``https://host:port`` is one that uses TLS, which
    Prometheus takes from the label ``__scheme__``."""
    plain: list[str] = []
    encrypted: list[str] = []
    for target in sorted(targets):
        scheme, _, place = target.rpartition("://")
        (encrypted if scheme == "https" else plain).append(place)
    groups = [{"targets": plain, "labels": dict(labels)}] if plain or not encrypted else []
    if encrypted:
        groups.append({"targets": encrypted, "labels": {**labels, "__scheme__": "https"}})
    return groups


def targets_file(targets: Iterable[str]) -> bytes:
    """The file that lists the agents (file_sd)."""
    return msgspec.json.encode(target_groups(targets, {}))


def ray_targets_file(hosts: Mapping[str, str]) -> bytes:
    """The file that lists Ray's targets: ``host:port`` → host label."""
    return msgspec.json.encode(
        [{"targets": [place], "labels": {"host": host}} for place, host in sorted(hosts.items())]
    )


def pod_monitor(namespace: str = "") -> str:
    """A PodMonitor of the Prometheus operator for clusters that KubeRay created.

    The operator turns our series' ``host`` into ``exported_host`` unless told not to.
    """
    endpoints: list[dict[str, Any]] = [
        {
            "targetPort": 9400,
            "path": path,
            "interval": f"{SCRAPE_SECONDS}s",
            "honorLabels": True,
            "relabelings": [{"targetLabel": "job", "replacement": job}],
        }
        for job, path in (("ray_sentinel", "/metrics"), ("ray_sentinel_steps", "/steps"))
    ]
    # A step is the same whichever pod's agent read it.
    dropped = {"action": "labeldrop", "regex": "instance|pod|container|endpoint"}
    endpoints[1]["metricRelabelings"] = [dropped]
    spec = {
        "selector": {"matchLabels": {"ray.io/is-ray-node": "yes"}},
        "podMetricsEndpoints": endpoints,
    }
    return operator_resource("PodMonitor", namespace, spec)


def operator_resource(kind: str, namespace: str, spec: Mapping[str, Any]) -> str:
    """A resource of the Prometheus operator (v1) as YAML."""
    metadata = {"name": "ray-sentinel"} | ({"namespace": namespace} if namespace else {})
    head = {"apiVersion": "monitoring.coreos.com/v1", "kind": kind, "metadata": metadata}
    return yaml_text({**head, "spec": dict(spec)})
