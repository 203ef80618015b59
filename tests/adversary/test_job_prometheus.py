"""What another user of the machine can do to a job's Prometheus: ask it, and nothing else."""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from ray_sentinel.store.prometheus.job import JobPrometheus
from tests.support.other_user import as_nobody
from tests.support.parts import require
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

# One series ("planted" 1) as a WriteRequest of remote write 1.0, in a Snappy block of one literal.
_SERIES = (
    b"\x0a\x25\x0a\x13\x0a\x08__name__\x12\x07planted\x12\x0e\x09\x00\x00\x00\x00\x00\x00\xf0\x3f"
    b"\x10\x80\x80\x01"
)
WRITE = bytes([len(_SERIES), (len(_SERIES) - 1) << 2]) + _SERIES


@pytest.fixture
def job(tmp_path: Path) -> Iterator[JobPrometheus]:
    server = JobPrometheus(tmp_path / "prometheus", binary=require("prometheus"))
    try:
        server.step((), {})
        eventually(server.ready, "it answers")
        yield server
    finally:
        server.close()


def post(url: str, data: bytes = b"", **headers: str) -> int:
    """The status that a POST is answered with."""
    request = urllib.request.Request(url, data, headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_another_user_can_write_nothing(job: JobPrometheus) -> None:
    snappy = {"Content-Encoding": "snappy", "Content-Type": "application/x-protobuf"}
    refused = as_nobody(post, f"{job.url}/api/v1/write", WRITE, **snappy)
    assert refused == 404
    otlp = as_nobody(post, f"{job.url}/api/v1/otlp/v1/metrics", b"", **snappy)
    assert otlp in (404, 405)
    with urllib.request.urlopen(f"{job.url}/api/v1/query?query=planted", timeout=10) as answer:
        assert b'"result":[]' in answer.read()


@pytest.mark.parametrize(
    "path",
    [
        "/-/quit",
        "/-/reload",
        "/api/v1/admin/tsdb/delete_series?match[]=up",
        "/api/v1/admin/tsdb/snapshot",
        "/api/v1/admin/tsdb/clean_tombstones",
    ],
)
def test_another_user_can_order_nothing(job: JobPrometheus, path: str) -> None:
    assert as_nobody(post, job.url + path) >= 400, "refused"
    assert job.pid is not None
    os.kill(job.pid, 0)
    assert job.ready()


def test_it_listens_on_loopback_only(job: JobPrometheus) -> None:
    listening = [
        connection.laddr.ip
        for connection in psutil.Process(job.pid).net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    ]
    assert listening == ["127.0.0.1"]
