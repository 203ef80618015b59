""":9400 behind TLS and authentication: real certificates, real passwords, a real Prometheus."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http.client
import json
import os
import shutil
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import bcrypt
import pytest

from ray_sentinel.config import ScrapeConfig
from ray_sentinel.errors import ConfigError, UnreachableError
from ray_sentinel.http import web_access
from ray_sentinel.http.server import Request
from ray_sentinel.model.metrics import Family, Metric
from ray_sentinel.store.prometheus.job import JobPrometheus
from ray_sentinel.store.prometheus.scrape_config import (
    TargetDiscovery,
    scrape_config,
    scrape_target,
    target_groups,
)
from ray_sentinel.store.prometheus.targets import Targets
from ray_sentinel_exporters.prometheus import PrometheusExporter
from tests.support.certificates import Authority
from tests.support.parts import require
from tests.support.scraped import until, values
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

LOAD = Metric("hw_load1", "gauge", "Load.")
PASSWORD, TOKEN = "correct horse", "0123456789abcdef" * 2
COST = 4
WEB = """
tls_server_config: {{cert_file: node.crt, key_file: node.key}}
http_server_config: {{headers: {{X-Frame-Options: deny}}}}
basic_auth_users: {{prom: "{hashed}"}}
bearer_token_file: token
"""


def hash_of(password: str, cost: int = COST) -> str:
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(cost)).decode()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    authority = Authority(tmp_path)
    authority.issue("node", "127.0.0.1")
    (tmp_path / "token").write_text(TOKEN + "\n")
    (tmp_path / "password").write_text(PASSWORD)
    (tmp_path / "web.yml").write_text(WEB.format(hashed=hash_of(PASSWORD)))
    return authority


@contextlib.contextmanager
def serving(file: Path) -> Iterator[PrometheusExporter]:
    options = PrometheusExporter.Options(port=0, web_config_file=str(file))
    exporter = PrometheusExporter("node1", "127.0.0.1", options)
    exporter.start()
    try:
        exporter.publish((Family(LOAD, (LOAD(0.5),)),))
        exporter.add_route(
            "/sd",
            "application/json",
            lambda: json.dumps(target_groups((scrape_target(exporter.url),), {})).encode(),
        )
        yield exporter
    finally:
        exporter.close()


@pytest.fixture
def exporter(authority: Authority) -> Iterator[PrometheusExporter]:
    with serving(authority.folder / "web.yml") as exporter:
        yield exporter


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def get(
    exporter: PrometheusExporter,
    context: ssl.SSLContext | None,
    who: str = "",
    path: str = "/metrics",
) -> tuple[int, dict[str, str], bytes]:
    port = int(exporter.url.split(":")[2].split("/")[0])
    connection = (
        http.client.HTTPSConnection("127.0.0.1", port, timeout=20, context=context)
        if context is not None
        else http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    )
    connection.request("GET", path, headers={"Authorization": who} if who else {})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, body


def test_all_paths_are_behind_it(authority: Authority, exporter: PrometheusExporter) -> None:
    trusted = authority.trusted()
    assert exporter.url.startswith("https://127.0.0.1:")
    for path in ("/metrics", "/steps", "/sd", "/healthz", "/", "/nowhere"):
        for who in ("", "Basic !", "Bearer x", basic("prom", "wrong"), basic("nobody", PASSWORD)):
            status, headers, body = get(exporter, trusted, who, path)
            assert (status, body) == (401, b"Unauthorized\n")
            assert "realm=" in headers["www-authenticate"]
            assert headers["x-frame-options"] == "deny"
        for who in (basic("prom", PASSWORD), f"Bearer {TOKEN}", f"bearer {TOKEN}"):
            assert get(exporter, trusted, who, path)[0] == (404 if path == "/nowhere" else 200)


def test_a_client_certificate_is_asked_for(authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "web.yml").write_text(
        "tls_server_config: {cert_file: node.crt, key_file: node.key, client_ca_file: ca.crt, "
        "client_auth_type: RequireAndVerifyClientCert}\n"
    )
    stranger = Authority(tmp_path / "other").issue("prometheus")
    with serving(tmp_path / "web.yml") as exporter:
        assert get(exporter, authority.trusted(authority.issue("prometheus")))[0] == 200
        for context in (authority.trusted(), authority.trusted(stranger)):
            with pytest.raises((OSError, http.client.HTTPException)):
                get(exporter, context)


def test_a_right_password_is_checked_once(
    authority: Authority, exporter: PrometheusExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks: list[bytes] = []
    real = bcrypt.checkpw
    monkeypatch.setattr(
        bcrypt, "checkpw", lambda given, hashed: checks.append(given) or real(given, hashed)
    )
    for _ in range(50):
        assert get(exporter, authority.trusted(), basic("prom", PASSWORD))[0] == 200
    assert len(checks) == 1
    changed = WEB.format(hashed=hash_of("another"))
    (authority.folder / "web.yml").write_text(changed)
    eventually(
        lambda: get(exporter, authority.trusted(), basic("prom", PASSWORD))[0] == 401,
        "a changed hash makes the old password wrong",
    )


def test_wrong_passwords_take_a_tenth_of_a_core_and_keep_no_scraper_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed = hash_of(PASSWORD, cost=9)
    (tmp_path / "web.yml").write_text(f'basic_auth_users: {{prom: "{hashed}"}}')
    done = threading.Event()
    statuses: list[int] = []

    def guess(exporter: PrometheusExporter, number: int) -> None:
        while not done.is_set():
            who = basic("prom" if number % 2 else f"user{number}", os.urandom(8).hex())
            with contextlib.suppress(OSError, http.client.HTTPException):  # it was closed
                statuses.append(get(exporter, None, who)[0])

    with serving(tmp_path / "web.yml") as exporter:
        who = basic("prom", PASSWORD)
        assert get(exporter, None, who)[0] == 200
        threads = [threading.Thread(target=guess, args=(exporter, n)) for n in range(24)]
        checks = _timed_checks(monkeypatch)
        for thread in threads:
            thread.start()
        begun, slowest = time.monotonic(), 0.0
        while time.monotonic() - begun < 3.0:
            asked = time.monotonic()
            assert get(exporter, None, who)[0] == 200
            slowest = max(slowest, time.monotonic() - asked)
            time.sleep(0.1)
        elapsed = time.monotonic() - begun
        done.set()
        spent = sum(checks)
        exporter.close()
        for thread in threads:
            thread.join(timeout=20)
    assert spent < 0.2 * elapsed, "checks and rests alternate"
    assert slowest < 5.0, "also beside 24 busy threads of this test"
    assert set(statuses) <= {401, 429}
    assert 429 in statuses


def _timed_checks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long each check of a password takes from now on."""
    spent: list[float] = []
    real = bcrypt.checkpw

    def timed(password: bytes, hashed: bytes) -> bool:
        begun = time.thread_time()
        try:
            return real(password, hashed)
        finally:
            spent.append(time.thread_time() - begun)

    monkeypatch.setattr(bcrypt, "checkpw", timed)
    return spent


def test_an_unknown_user_takes_as_long_as_a_known_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "web.yml").write_text(f'basic_auth_users: {{prom: "{hash_of("x", cost=8)}"}}')
    guard = web_access.WebAccess(tmp_path / "web.yml", sleep=lambda _seconds: None)
    against: list[bytes] = []
    real = bcrypt.checkpw

    def noted(password: bytes, hashed: bytes) -> bool:
        against.append(hashed)
        return real(password, hashed)

    monkeypatch.setattr(bcrypt, "checkpw", noted)
    with contextlib.closing(guard):
        for user in ("prom", "nobody"):
            headers = {"authorization": basic(user, "wrong")}
            asked = Request(method="GET", path="/metrics", headers=headers)
            refused = asyncio.run(guard.authenticate(asked))
            assert refused is not None
            assert refused.status == 401
    assert [hashed[:7] for hashed in against] == [b"$2b$08$", b"$2b$08$"]
    assert against[0] != against[1]
    assert real(b"wrong", against[1]) is False


def test_a_renewed_certificate_is_used(authority: Authority, exporter: PrometheusExporter) -> None:
    who = f"Bearer {TOKEN}"
    assert get(exporter, authority.trusted(), who)[0] == 200
    other = Authority(authority.folder / "next")
    pair = other.issue("node", "127.0.0.1")
    # First the certificate alone: the two do not fit, and the old ones stay.
    shutil.copy(pair.cert, authority.folder / "node.crt")
    eventually(lambda: "stays in use" in exporter.problem, "it is said")
    assert get(exporter, authority.trusted(), who)[0] == 200
    shutil.copy(pair.key, authority.folder / "node.key")
    eventually(lambda: not exporter.problem, "the problem is over")
    assert get(exporter, other.trusted(), who)[0] == 200
    with pytest.raises(ssl.SSLCertVerificationError):
        get(exporter, authority.trusted(), who)


@pytest.mark.parametrize("text", ["basic_auth_users: {", "tls_server_config: {}", "", None])
def test_a_file_that_is_spoilt_lets_nobody_in(
    authority: Authority, exporter: PrometheusExporter, text: str | None
) -> None:
    file = authority.folder / "web.yml"
    if text is None:
        file.unlink()
    else:
        file.write_text(text)
    eventually(lambda: str(file) in exporter.problem, "it is said")
    assert get(exporter, authority.trusted())[0] == 401
    assert get(exporter, authority.trusted(), f"Bearer {TOKEN}")[0] == 200


def test_a_wrong_file_serves_nothing(tmp_path: Path) -> None:
    (tmp_path / "web.yml").write_text("basic_auth_user: {}")
    for file, said in (
        (str(tmp_path / "web.yml"), "there is no such key"),
        ("web.yml", "absolute"),
    ):
        options = PrometheusExporter.Options(port=0, web_config_file=file)
        with pytest.raises(ConfigError, match=said):
            PrometheusExporter("n", "127.0.0.1", options).start()


def scrapes(folder: Path) -> list[ScrapeConfig]:
    """The configurations of a scraper: one with a password, one with a token."""
    ca = str(folder / "ca.crt")
    return [
        ScrapeConfig(ca_file=ca, username="prom", password_file=str(folder / "password")),
        ScrapeConfig(ca_file=ca, bearer_token_file=str(folder / "token")),
    ]


@pytest.mark.parametrize("way", [0, 1], ids=["password", "token"])
def test_a_real_prometheus_scrapes_it(
    authority: Authority, exporter: PrometheusExporter, tmp_path: Path, way: int
) -> None:
    scrape = scrapes(tmp_path)[way]
    sd = exporter.url.replace("/metrics", "/sd")
    agents = Targets(sd, scrape).poll()
    assert agents == (scrape_target(exporter.url),)
    job = JobPrometheus(tmp_path / "job", binary=require("prometheus"), scrape=scrape)
    try:
        job.step(agents, {})
        until(job.ready, "it answers")
        step = lambda: job.step(agents, {})  # noqa: E731
        until(lambda: values(job.url, 'up{job="ray_sentinel"}[1m]'), "a scrape", step)
        until(lambda: values(job.url, 'hw_load1{host="node1"}[1m]'), "gauges", step)
        assert {value for _, value in values(job.url, "up[1m]")} == {1.0}
        written = b"".join(path.read_bytes() for path in (tmp_path / "job").glob("*.*"))
        assert PASSWORD.encode() not in written
        assert TOKEN.encode() not in written
    finally:
        job.close()


def test_the_configuration_for_a_prometheus_of_ones_own_is_valid(
    authority: Authority, exporter: PrometheusExporter, tmp_path: Path
) -> None:
    sd = exporter.url.replace("/metrics", "/sd")
    for scrape in (*scrapes(tmp_path), ScrapeConfig(insecure_skip_verify=True, server_name="a'b")):
        where = TargetDiscovery(kind="http", agents=sd, ray="/tmp/ray.json", scrape=scrape)
        (tmp_path / "prometheus.yml").write_text(scrape_config(where))
        command = [require("promtool"), "check", "config", str(tmp_path / "prometheus.yml")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_takes_our_file_for_an_exporters(authority: Authority, tmp_path: Path) -> None:
    plain = WEB.format(hashed=hash_of(PASSWORD)).replace("bearer_token_file: token\n", "")
    (tmp_path / "web.yml").write_text(plain)
    command = [require("promtool"), "check", "web-config", str(tmp_path / "web.yml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_without_the_right_settings_nothing_is_learned(
    exporter: PrometheusExporter, tmp_path: Path
) -> None:
    sd = exporter.url.replace("/metrics", "/sd")
    with pytest.raises(UnreachableError, match="certificate"):
        Targets(sd)
    with pytest.raises(UnreachableError, match="401"):
        Targets(sd, ScrapeConfig(ca_file=str(tmp_path / "ca.crt")))
    for wrong in (
        ScrapeConfig(username="prom"),
        ScrapeConfig(cert_file="/x"),
        ScrapeConfig(username="a", password_file="/b", bearer_token_file="/c"),
        ScrapeConfig(ca_file="relative"),
        ScrapeConfig(ca_file="/nowhere.crt"),
    ):
        with pytest.raises(ConfigError, match=r"\[scrape\]"):
            Targets(sd, wrong)
