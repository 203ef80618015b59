"""The doctor on this machine, with the faults really there."""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ray_sentinel.clock import FakeClock, SystemClock
from ray_sentinel.doctor.meeting import Meeting, visit
from tests.support.small_disk import small_disk as mounted

pytestmark = pytest.mark.integration

Doctor = Callable[..., tuple[int, dict[str, list[dict[str, str]]]]]


@pytest.fixture
def doctor() -> Doctor:
    """Runs the command; (exit code, results by check)."""

    def run(*arguments: str, **environ: str) -> tuple[int, dict[str, list[dict[str, str]]]]:
        ended = subprocess.run(
            [
                sys.executable,
                "-m",
                "ray_sentinel.cli.main",
                "doctor",
                "--local",
                "--json",
                *arguments,
            ],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, **environ},
        )
        found: dict[str, list[dict[str, str]]] = {}
        for result in json.loads(ended.stdout)["results"]:
            found.setdefault(result["check"], []).append(result)
        return ended.returncode, found

    return run


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

    meeting = Meeting("127.0.0.1", Wrong())
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


@contextmanager
def etcd(
    healthy: bool = True,
    keys: tuple[str, ...] = (),
    v2: bool = False,
    old_keys: tuple[str, ...] = (),
) -> Iterator[int]:
    """What etcd 3.5 answers on its client port: health, version, v2 keys, and the v3 gateway."""

    class Handler(BaseHTTPRequestHandler):
        def _send(self, status: int, data: Any) -> None:
            body = json.dumps(data).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            if self.path == "/health":
                if healthy:
                    self._send(200, {"health": "true", "reason": ""})
                else:
                    self._send(503, {"health": "false", "reason": "NOSPACE"})
            elif self.path == "/version":
                self._send(200, {"etcdserver": "3.5.9", "etcdcluster": "3.5.0"})
            elif v2 and self.path.startswith("/v2/keys"):
                prefix = self.path.removeprefix("/v2/keys").partition("?")[0]
                nodes = [{"key": key} for key in old_keys if key.startswith(prefix + "/")]
                if nodes:
                    self._send(200, {"node": {"key": prefix, "dir": True, "nodes": nodes}})
                    return
                self._send(404, {"errorCode": 100, "message": "Key not found"})
            else:
                self._send(404, {"message": "not found"})

        def do_POST(self) -> None:
            question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            start, end = (base64.b64decode(question[name]) for name in ("key", "range_end"))
            found = [key.encode() for key in keys if start <= key.encode() < end]
            kvs = [{"key": base64.b64encode(key).decode()} for key in found]
            self._send(200, {"kvs": kvs, "count": str(len(kvs))})

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def ask_etcd(doctor: Doctor, port: int, *more: str) -> tuple[int, list[dict[str, str]]]:
    code, found = doctor(
        *("--only", "etcd", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "job-7"),
        *("--rdzv-backend", "etcd-v2", *more),
    )
    return code, found["etcd"]


def test_a_dead_etcd_and_a_live_one(doctor: Doctor) -> None:
    with etcd(v2=True) as port:
        code, found = ask_etcd(doctor, port)
        assert (code, found[0]["outcome"]) == (0, "ok")
        assert "3.5.9" in found[0]["seen"]
    code, found = ask_etcd(doctor, port)
    assert code == 1
    assert "not healthy" in found[0]["seen"]
    assert "refused" in found[0]["seen"].lower()


def test_an_etcd_that_is_full(doctor: Doctor) -> None:
    with etcd(healthy=False) as port:
        code, found = ask_etcd(doctor, port)
    assert code == 1
    assert "NOSPACE" in found[0]["seen"]


def test_an_etcd_with_leftovers(doctor: Doctor) -> None:
    path = "/torch/elastic/rendezvous/job-7"
    with etcd(keys=(path, path + "0", "/torch/elasticity", "/other/key"), v2=True) as port:
        code, found = ask_etcd(doctor, port)
    assert code == 1
    assert "holds 1 key of an earlier run" in found[0]["seen"]
    # Not by --prefix: that would also be job-70, which may be running.
    assert f"127.0.0.1:{port} del {path}, or" in found[0]["remedy"]
    with etcd(keys=(path + "/a", path + "/b"), v2=True) as port:
        _, found = ask_etcd(doctor, port)
    assert f"del --prefix {path}/, or" in found[0]["remedy"]
    with etcd(keys=("/torch/elastic/rendezvous/job-70", "/torch/elasticity"), v2=True) as port:
        code, found = ask_etcd(doctor, port)
    assert (code, found[0]["outcome"]) == (1, "warning")
    assert "holds 1 key of other runs" in found[0]["seen"]


def test_an_etcd_with_leftovers_in_its_old_store(doctor: Doctor) -> None:
    with etcd(v2=True, old_keys=("/torchelastic/p2p/run_job-7/rdzv/active_version",)) as port:
        code, found = ask_etcd(doctor, port)
    assert code == 1
    wanted = f"curl -X DELETE 'http://127.0.0.1:{port}/v2/keys/torchelastic/p2p/run_job-7?recursive"
    assert wanted in found[0]["remedy"]


def test_an_etcd_without_the_api_that_torch_needs(doctor: Doctor) -> None:
    with etcd() as port:
        _, found = ask_etcd(doctor, port)
    assert "--enable-v2" in found[-1]["remedy"]


def test_something_that_is_no_etcd(doctor: Doctor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        code, found = ask_etcd(doctor, server.getsockname()[1])
    assert code == 1
    assert "not healthy" in found[0]["seen"]


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
