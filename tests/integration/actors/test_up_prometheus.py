"""`ray-sentinel up --prometheus` on a real cluster of three nodes."""

from __future__ import annotations

import json
import os
import signal
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import bcrypt
import pytest

from ray_sentinel.config import ScrapeConfig
from ray_sentinel.store.prometheus.readonly import read_only_prometheus
from ray_sentinel.store.prometheus.targets import Targets
from ray_sentinel.store.prometheus.tsdb import lock_holder
from tests.support.certificates import Authority
from tests.support.parts import require
from tests.support.ray_cluster import RayCluster, Watched
from tests.support.scraped import values
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.timeout(420)]

SECONDS = 120.0


def labels(url: str, query: str, name: str) -> set[str]:
    """The values of a label among the series of a query; none before Prometheus listens."""
    path = f"{url}/api/v1/query?" + urllib.parse.urlencode({"query": query})
    try:
        with urllib.request.urlopen(path, timeout=10) as answer:
            found: list[Any] = json.load(answer)["data"]["result"]
    except urllib.error.URLError as error:
        if isinstance(error.reason, ConnectionRefusedError):
            return set()
        raise
    return {series["metric"].get(name, "") for series in found}


def test_it_watches_all_of_a_cluster_and_ends_with_it(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    log_dir = tmp_path / "log"
    done = ray_cluster.run(
        "up", "--log-dir", str(log_dir), "--prometheus", require("prometheus"), "--json"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    data = log_dir / "prometheus" / "data"
    try:
        with ray_cluster.connected() as ray:
            watched = Watched(ray)
            eventually(lambda: watched.status().prometheus, "it is in the status", SECONDS)
            url = watched.status().prometheus
            hosts = {node.host for node in watched.status().nodes}
            eventually(
                lambda: labels(url, "hw_load1", "host") == hosts, "all agents are scraped", SECONDS
            )
            eventually(
                lambda: labels(url, 'up{job="ray"} == 1', "host") == hosts,
                "Ray's own metrics of all nodes, by our names of hosts",
                SECONDS,
            )
            assert "" not in labels(url, '{job="ray",__name__=~"ray_.+"}', "host")
            first = lock_holder(data / "lock")
            assert first > 0
            os.kill(first, signal.SIGKILL)
            eventually(
                lambda: any("was restarted 1 times" in note for note in watched.status().notes),
                "its restart is in the status",
                SECONDS,
            )
            eventually(
                lambda: lock_holder(data / "lock") not in (0, first), "it is there again", SECONDS
            )
    finally:
        ray_cluster.down()
    eventually(lambda: lock_holder(data / "lock") == 0, "it ended", SECONDS)
    with read_only_prometheus(data, binary=require("prometheus")) as (viewed, _, _):
        assert values(viewed, "hw_load1[30m]")
    said = "".join(path.read_text() for path in (log_dir / "logs").rglob("*coordinator*"))
    assert f"(pid {first}) ended with status -9" in said


def test_it_reads_agents_that_ask_for_tls_and_a_password(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    with ray_cluster.connected() as ray:
        addresses = [node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]]
    authority = Authority(tmp_path)
    authority.issue("node", *addresses)
    hashed = bcrypt.hashpw(b"correct horse", bcrypt.gensalt(4)).decode()
    (tmp_path / "password").write_text("correct horse\n")
    (tmp_path / "web.yml").write_text(
        "tls_server_config: {cert_file: node.crt, key_file: node.key}\n"
        f'basic_auth_users: {{prom: "{hashed}"}}\n'
    )
    scrape = {"CA_FILE": "ca.crt", "PASSWORD_FILE": "password"}
    environ = {f"RAY_SENTINEL_SCRAPE__{key}": str(tmp_path / name) for key, name in scrape.items()}
    environ |= {
        "RAY_SENTINEL_SCRAPE__USERNAME": "prom",
        "RAY_SENTINEL_AGENT__WEB_CONFIG_FILE": str(tmp_path / "web.yml"),
    }
    up = ("up", "--log-dir", str(tmp_path / "log"), "--prometheus", require("prometheus"))
    done = ray_cluster.run(*up, **environ)
    try:
        assert done.returncode == 0, done.stdout + done.stderr
        with ray_cluster.connected() as ray:
            watched = Watched(ray)
            eventually(lambda: watched.status().prometheus, "it is in the status", SECONDS)
            status = watched.status()
            assert {node.metrics_url.partition(":")[0] for node in status.nodes} == {"https"}
            hosts = {node.host for node in status.nodes}
            eventually(
                lambda: labels(status.prometheus, "hw_load1", "host") == hosts,
                "all agents are scraped",
                SECONDS,
            )
            known = {str(node.metrics_url.removesuffix("/metrics")) for node in status.nodes}
            scrape_all = ScrapeConfig(
                ca_file=environ["RAY_SENTINEL_SCRAPE__CA_FILE"],
                username="prom",
                password_file=environ["RAY_SENTINEL_SCRAPE__PASSWORD_FILE"],
            )
            for url in known:
                assert set(Targets(f"{url}/sd", scrape_all).poll()) == known
    finally:
        ray_cluster.down()
