"""Which format and coding a scraper gets, and what the server takes for a request."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_sentinel.errors import ConfigError, UnreachableError
from ray_sentinel.http.address import check_private
from ray_sentinel.http.negotiation import accepts_gzip, wants_openmetrics
from ray_sentinel.http.server import BadRequestError, parse

PROMETHEUS_2 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,*/*;q=0.2"
)


@pytest.mark.parametrize(
    ("accept", "openmetrics"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain", False),
        (PROMETHEUS_2, True),
        (PROMETHEUS_3, True),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text;q=0,text/plain", False),
        ("application/openmetrics-text;q=0.3,text/plain;q=0.5", False),
        ("application/openmetrics-text;version=0.0.1", False),
        ("text/html,application/xhtml+xml;q=0.9,*/*;q=0.8", False),
    ],
)
def test_accept(accept: str, openmetrics: bool) -> None:
    assert wants_openmetrics(accept) is openmetrics


@pytest.mark.parametrize(
    ("header", "gzip"),
    [
        ("", False),
        ("gzip", True),
        ("br, GZIP;q=0.5", True),
        ("gzip;q=0", False),
        ("identity", False),
        ("gzip;q=0.000, deflate", False),
    ],
)
def test_accept_encoding(header: str, gzip: bool) -> None:
    assert accepts_gzip(header) is gzip


@given(st.text())
def test_no_header_is_too_strange(header: str) -> None:
    wants_openmetrics(header)
    accepts_gzip(header)


def test_requests() -> None:
    request, keep = parse(b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\nACCEPT:  */* \r\n\r\n")
    assert (request.method, request.path, request.headers["accept"]) == ("GET", "/metrics", "*/*")
    assert keep
    assert not parse(b"GET / HTTP/1.0\r\n\r\n")[1]
    assert not parse(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")[1]
    assert parse(b"GET http://proxied:9400/metrics HTTP/1.1\r\n\r\n")[0].path == "/metrics"


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\r\n\r\n", 400),
        (b"GET /\r\n\r\n", 400),
        (b"GET / HTTP/2\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n folded: x\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 413),
    ],
)
def test_what_is_no_request(head: bytes, status: int) -> None:
    with pytest.raises(BadRequestError) as caught:
        parse(head)
    assert caught.value.status == status


@given(st.binary())
def test_no_bytes_are_too_strange(head: bytes) -> None:
    try:
        parse(head)
    except BadRequestError:
        pass


@pytest.mark.parametrize("address", ["127.0.0.2", "10.1.2.3", "192.168.0.1", "fd00::1", "::1"])
def test_private_addresses(address: str) -> None:
    assert check_private(address, public=False) == address


@pytest.mark.parametrize("address", ["8.8.8.8", "2001:4860:4860::8888", "0.0.0.0", "::"])
def test_public_addresses_are_refused_unless_told(address: str) -> None:
    with pytest.raises(ConfigError, match="public = true"):
        check_private(address, public=False)
    assert check_private(address, public=True) == address


def test_an_address_that_nobody_knows() -> None:
    with pytest.raises(UnreachableError, match="no such address"):
        check_private("not an address", public=False)
