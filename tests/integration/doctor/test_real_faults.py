"""The doctor on this machine, with the faults really there."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ray_sentinel.clock import FakeClock, SystemClock
from ray_sentinel.doctor.peer_probe import PeerProbe, visit
from tests.support.doctor import Doctor, run_doctor
from tests.support.small_disk import small_disk as mounted

pytestmark = pytest.mark.integration


@pytest.fixture
def doctor() -> Doctor:
    """Runs the command."""
    return run_doctor


def test_a_wrong_interface(doctor: Doctor) -> None:
    code, found = doctor("--only", "interfaces", NCCL_SOCKET_IFNAME="nosuch0")
    assert code == 1
    assert "there is no interface nosuch0" in found["interfaces"][0]["seen"]
    code, found = doctor("--only", "interfaces", GLOO_SOCKET_IFNAME="lo")
    assert (code, found["interfaces"][0]["outcome"]) == (0, "ok")


def test_a_held_port_and_who_holds_it(doctor: Doctor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code, found = doctor("--only", "ports", "--port", str(port))
        assert code == 1
        assert f"pid {os.getpid()}" in found["ports"][0]["seen"]
    code, found = doctor("--only", "ports", "--port", str(port))
    assert (code, found["ports"][0]["outcome"]) == (0, "ok")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    with mounted(tmp_path / "small", "2m") as folder:
        yield folder


def test_a_full_file_system(doctor: Doctor, small: Path) -> None:
    code, found = doctor("--only", "disk", "--checkpoint-dir", str(small))
    assert code == 1
    assert "No space left" in found["disk"][0]["seen"]
    assert "make room" in found["disk"][0]["remedy"]
    assert not list(small.iterdir()), "the test file is removed"


def test_places_that_are_missing_small_and_well(doctor: Doctor, tmp_path: Path) -> None:
    arguments = ("--only", "disk", "--checkpoint-dir", str(tmp_path))
    assert doctor(*arguments, "--need-gib", "0.001")[0] == 0
    code, found = doctor(*arguments, "--need-gib", "1e9")
    assert code == 1
    assert "are needed" in found["disk"][0]["seen"]
    code, found = doctor("--only", "disk", "--checkpoint-dir", str(tmp_path / "none"))
    assert "mkdir -p" in found["disk"][0]["remedy"]


def test_a_clock_that_is_wrong() -> None:
    class Wrong(FakeClock):
        def now(self) -> float:
            return time.time() + 90.0

    meeting = PeerProbe("127.0.0.1", Wrong())
    try:
        seen = visit("a", "b", meeting.address, meeting.port, SystemClock())
    finally:
        meeting.close()
    assert seen.problem == ""
    assert seen.ahead is not None
    assert abs(seen.ahead - 90.0) < 1.0


def test_a_place_where_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert "refused" in visit("a", "b", "127.0.0.1", port, SystemClock()).problem.lower()


ASK_ETCD = ("--only", "etcd", "--rdzv-backend", "etcd-v2", "--rdzv-endpoint")


@contextmanager
def unhealthy_etcd() -> Iterator[int]:
    """What etcd from 3.5 on answers when its disk quota is used up; Debian's, which test_etcd runs,
    is older and gives no reason."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"health": "false", "reason": "ALARM NOSPACE"}).encode()
            self.send_response(503)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def test_the_reason_of_an_etcd_that_is_not_healthy(doctor: Doctor) -> None:
    with unhealthy_etcd() as port:
        code, found = doctor(*ASK_ETCD, f"127.0.0.1:{port}")
    assert code == 1
    assert "NOSPACE" in found["etcd"][0]["seen"]


def test_something_that_is_no_etcd(doctor: Doctor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        code, found = doctor(*ASK_ETCD, f"127.0.0.1:{server.getsockname()[1]}")
    assert code == 1
    assert "not healthy" in found["etcd"][0]["seen"]


def test_a_driver_that_hangs_does_not_hang_the_doctor(doctor: Doctor, tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nsleep 60\n")
    program.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    begun = time.monotonic()
    code, found = doctor("--only", "gpus", "--deadline", "1", PATH=path)
    assert time.monotonic() - begun < 20
    assert code == 1
    assert "did not end within 1 s" in found["gpus"][0]["seen"]


def test_a_user_s_own_check(doctor: Doctor, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "import msgspec\n"
        "from ray_sentinel.doctor.check import Check, failure, ok\n"
        "class Facts(msgspec.Struct):\n"
        "    there: bool\n"
        "class Data(Check[Facts]):\n"
        "    name = 'data'\n"
        "    facts = Facts\n"
        "    def look(self, plan, here):\n"
        "        return Facts(here.environ.get('DATA') == '1')\n"
        "    def judge(self, case):\n"
        "        for host, facts in case.seen.items():\n"
        "            yield ok('there', host) if facts.there else failure('no', 'mount', host)\n"
    )
    arguments = ("--only", "data", "--checks", str(file))
    assert doctor(*arguments, "--env", "DATA=1")[0] == 0
    assert doctor(*arguments)[0] == 1
    file.write_text(file.read_text().replace("here.environ", "here.nonsense"))
    code, found = doctor(*arguments)
    assert (code, found["data"][0]["outcome"]) == (1, "warning")
    assert "the check itself failed: AttributeError" in found["data"][0]["seen"]


@pytest.mark.parametrize(
    "arguments",
    [("--only", "gpu"), ("--env", "X"), ("--port", "0"), ("--checks", "/nowhere.py")],
)
def test_wrong_usage(arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "ray_sentinel.cli.main", "doctor", "--local", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith("ray-sentinel: ")
