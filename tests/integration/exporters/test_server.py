"""The server of :9400 under real sockets: many, slow and hostile clients."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import logging
import socket
import threading
from collections.abc import Iterator

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)

from ray_sentinel.clock import FakeClock
from ray_sentinel.errors import UnreachableError
from ray_sentinel.http import server
from ray_sentinel.model.metrics import Family, Metric
from ray_sentinel_exporters.prometheus import PrometheusExporter

pytestmark = pytest.mark.integration

BYTES = Metric("hw_net_rx_bytes_total", "counter", "Bytes.", ("device",))
LOSS = Metric("tb_loss", "gauge", "Loss.")
ANY_PORT = PrometheusExporter.Options(port=0)


def families(count: int, value: float = 1.0) -> tuple[Family, ...]:
    return (Family(BYTES, tuple(BYTES(value, f"eth{i}") for i in range(count))),)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def exporter(clock: FakeClock) -> Iterator[PrometheusExporter]:
    exporter = PrometheusExporter("node1", "127.0.0.1", ANY_PORT, clock)
    exporter.start()
    exporter.publish(families(100))
    yield exporter
    exporter.close()


def place(exporter: PrometheusExporter) -> tuple[str, int]:
    host, port = exporter.url.removeprefix("http://").removesuffix("/metrics").split(":")
    return host, int(port)


def get(
    exporter: PrometheusExporter, path: str = "/metrics", method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(*place(exporter), timeout=10)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, headers=named)
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response.status, {k.lower(): v for k, v in response.getheaders()}, body


def raw(exporter: PrometheusExporter, data: bytes) -> bytes:
    with socket.create_connection(place(exporter), timeout=10) as connection:
        answer = b""
        with contextlib.suppress(OSError):  # it may be cut at any moment
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while chunk := connection.recv(65536):
                answer += chunk
        return answer


def test_text_by_default(exporter: PrometheusExporter) -> None:
    status, headers, body = get(exporter)
    assert status == 200
    assert headers["content-type"].startswith("text/plain; version=0.0.4")
    assert body.count(b'\nhw_net_rx_bytes_total{host="node1",device="eth') == 100


def test_openmetrics_when_asked(exporter: PrometheusExporter) -> None:
    _, headers, body = get(exporter, Accept="application/openmetrics-text;version=1.0.0")
    assert headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    (family,) = parse_openmetrics(body.decode())
    assert (family.name, family.type, len(family.samples)) == ("hw_net_rx_bytes", "counter", 100)


def test_gzip_where_accepted_and_always_what_was_published_last(
    exporter: PrometheusExporter,
) -> None:
    for value in (1.0, 2.0, 3.0):
        exporter.publish(families(10, value))
        _, headers, packed = get(exporter, Accept_Encoding="gzip")
        _, plain_headers, plain = get(exporter)
        assert headers["content-encoding"] == "gzip"
        assert "content-encoding" not in plain_headers
        assert gzip.decompress(packed) == plain
        assert f"}} {value}\n".encode() in plain


def test_samples_with_a_time_are_served_apart(exporter: PrometheusExporter) -> None:
    exporter.publish((Family(LOSS, (LOSS(0.5, timestamp=1700000000.0), LOSS(0.4))),))
    assert get(exporter)[2].endswith(b'tb_loss{host="node1"} 0.4\n')
    assert get(exporter, "/steps")[2].endswith(b'tb_loss{host="node1"} 0.5 1700000000000\n')


def test_it_is_known_when_a_prometheus_took_the_steps(
    exporter: PrometheusExporter, clock: FakeClock
) -> None:
    scrape = {"X_Prometheus_Scrape_Timeout_Seconds": "5"}
    get(exporter, "/metrics", **scrape)
    get(exporter, "/steps")
    assert exporter.handed_on is None, "somebody only looked"
    clock.advance(3.0)
    assert get(exporter, "/steps", **scrape)[0] == 200
    assert exporter.handed_on == clock.monotonic()
    clock.advance(1000.0)
    assert get(exporter, "/steps", **scrape)[0] == 503
    assert exporter.handed_on == clock.monotonic() - 1000.0


def test_health_and_metrics_say_when_collection_stands_still(
    exporter: PrometheusExporter, clock: FakeClock
) -> None:
    assert get(exporter, "/healthz")[::2] == (200, b"ok\n")
    clock.advance(121)
    assert get(exporter, "/healthz")[0] == 503
    status, _, body = get(exporter)
    assert status == 503
    assert b"hw_net" not in body
    exporter.publish(families(1))
    assert get(exporter)[0] == 200


def test_nothing_is_served_before_the_first_collection() -> None:
    exporter = PrometheusExporter("node1", "127.0.0.1", ANY_PORT)
    exporter.start()
    try:
        assert get(exporter)[0] == 503
        assert get(exporter, "/healthz")[0] == 503
    finally:
        exporter.close()


def test_routes_of_the_agent(exporter: PrometheusExporter) -> None:
    exporter.add_route("/sd", "application/json", lambda: b"[]")
    exporter.add_route("/bad", "text/plain", lambda: bytes(1 // 0))
    assert get(exporter, "/sd")[::2] == (200, b"[]")
    assert get(exporter, "/bad")[0] == 500
    assert b"/sd" in get(exporter, "/")[2]
    assert get(exporter)[0] == 200


def test_a_taken_port_gives_the_next_and_is_said(
    exporter: PrometheusExporter, caplog: pytest.LogCaptureFixture
) -> None:
    _, port = place(exporter)
    with caplog.at_level(logging.WARNING):
        other = PrometheusExporter("n", "127.0.0.1", PrometheusExporter.Options(port=port))
        other.start()
    try:
        assert place(other)[1] > port
        assert f"port {port} of 127.0.0.1 is taken" in caplog.text
        assert get(other, "/")[0] == 200
    finally:
        other.close()


def test_one_port_on_each_address(exporter: PrometheusExporter) -> None:
    _, port = place(exporter)
    other = PrometheusExporter("n", "127.0.0.2", PrometheusExporter.Options(port=port))
    other.start()
    try:
        assert other.url == f"http://127.0.0.2:{port}/metrics"
    finally:
        other.close()


def test_an_address_of_another_machine_is_refused() -> None:
    exporter = PrometheusExporter("n", "10.255.255.1", ANY_PORT)
    with pytest.raises(UnreachableError, match="cannot listen on"):
        exporter.start()


def test_head_and_other_methods(exporter: PrometheusExporter) -> None:
    status, headers, body = get(exporter, method="HEAD")
    assert (status, body) == (200, b"")
    assert int(headers["content-length"]) > 1000
    assert get(exporter, method="DELETE")[0] == 405
    assert get(exporter, "/nowhere")[0] == 404


def test_a_connection_is_kept(exporter: PrometheusExporter) -> None:
    connection = http.client.HTTPConnection(*place(exporter), timeout=10)
    for _ in range(5):
        connection.request("GET", "/metrics")
        assert len(connection.getresponse().read()) > 1000
    first = connection.sock.getsockname()
    connection.request("GET", "/metrics")
    connection.getresponse().read()
    assert connection.sock.getsockname() == first
    connection.close()


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 10_000 + b"\r\n", b"431"),
        (b"G" * 1_000_000, b"431"),
        (b"\x16\x03\x01\x00\xa5\x01\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/3\r\n\r\n", b"400"),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 10\r\n\r\n0123456789", b"413"),
        (b"GET /metrics HTTP/1.1\r\n", b""),
        (b"", b""),
    ],
)
def test_garbage_is_answered_or_cut_and_hurts_nobody(
    exporter: PrometheusExporter, data: bytes, status: bytes
) -> None:
    # A client that still sends when it is cut off may lose the answer.
    assert raw(exporter, data)[9:12] in {status, b""}
    assert get(exporter)[0] == 200


@pytest.fixture
def slow(exporter: PrometheusExporter) -> Iterator[dict[str, list[socket.socket]]]:
    """Clients that say nothing, say half of it, or never read."""
    exporter.publish(families(20_000))
    clients = {
        kind: [socket.create_connection(place(exporter), timeout=20) for _ in range(20)]
        for kind in ("silent", "partial", "deaf")
    }
    for connection in clients["partial"]:
        connection.sendall(b"GET /metr")
    for connection in clients["deaf"]:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n" * 10)
    yield clients
    for connections in clients.values():
        for connection in connections:
            connection.close()


def test_slow_clients_hold_up_nobody(
    exporter: PrometheusExporter, slow: dict[str, list[socket.socket]]
) -> None:
    # They may stay for as long as a request may take, which is longer than we wait here.
    assert server.REQUEST_SECONDS >= 10
    for _ in range(5):
        assert get(exporter)[0] == 200


def test_slow_clients_are_cut(
    exporter: PrometheusExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "REQUEST_SECONDS", 0.2)
    silent = socket.create_connection(place(exporter), timeout=20)
    partial = socket.create_connection(place(exporter), timeout=20)
    partial.sendall(b"GET /metr")
    for connection in (silent, partial):
        assert connection.recv(100) == b""
        connection.close()


def test_more_connections_than_allowed_do_not_keep_a_scraper_out(
    exporter: PrometheusExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 20)
    idle = [socket.create_connection(place(exporter), timeout=10) for _ in range(100)]
    assert get(exporter)[0] == 200
    assert idle[0].recv(1) == b""  # the one that idled longest was cut
    for connection in idle:
        connection.close()


def test_requests_that_are_never_whole_do_not_keep_a_scraper_out(
    exporter: PrometheusExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 20)

    def begun() -> socket.socket:
        connection = socket.create_connection(place(exporter), timeout=10)
        connection.sendall(b"GET /metr")
        return connection

    slow = [begun() for _ in range(20)]
    assert get(exporter)[0] == 200
    with socket.create_connection(place(exporter), timeout=10) as scraper:
        slow += [begun() for _ in range(10)]
        assert get(exporter)[0] == 200
        scraper.sendall(b"GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n")
        assert scraper.recv(100).startswith(b"HTTP/1.1 200")
    for connection in slow:
        connection.close()


def test_many_scrapers_at_once_while_publishing(exporter: PrometheusExporter) -> None:
    failures: list[object] = []

    def scrape(openmetrics: bool, packed: bool) -> None:
        headers = {"Accept_Encoding": "gzip" if packed else "identity"}
        if openmetrics:
            headers["Accept"] = "application/openmetrics-text"
        for _ in range(20):
            status, _, body = get(exporter, **headers)
            text = gzip.decompress(body) if packed else body
            values = {line.rsplit(b" ", 1)[1] for line in text.split(b"\n") if line[:2] == b"hw"}
            if status != 200 or len(values) != 1:
                failures.append((status, values))

    threads = [
        threading.Thread(target=scrape, args=(bool(i & 1), bool(i & 2)), daemon=True)
        for i in range(12)
    ]
    for thread in threads:
        thread.start()
    value = 0.0
    while any(thread.is_alive() for thread in threads):
        value += 1.0
        exporter.publish(families(200, value))
    assert failures == []


def test_closes_and_frees_the_port(exporter: PrometheusExporter) -> None:
    host, port = place(exporter)
    held = socket.create_connection((host, port), timeout=10)
    exporter.close()
    assert held.recv(1) == b""
    with pytest.raises(OSError):
        socket.create_connection((host, port), timeout=1)
    again = PrometheusExporter("n", host, PrometheusExporter.Options(port=port))
    again.start()
    assert place(again) == (host, port)
    again.close()
