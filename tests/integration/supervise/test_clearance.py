"""What an ended attempt still holds, really held."""

from __future__ import annotations

import json
import os
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ray_sentinel.clearance import Clearance
from ray_sentinel.supervise.folder import State

pytestmark = pytest.mark.integration

GONE = State(keeper=2**22 + 1, keeper_start=1)


def test_a_port_that_the_old_attempt_left_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        before = Clearance([], {"MASTER_PORT": port}, "job", "")
        assert before.problem(GONE) == "", "it was held before the run: waiting would not help"
    clear = Clearance([], {"MASTER_PORT": port}, "job", "")
    assert clear.problem(GONE) == ""
    with socket.create_server(("127.0.0.1", int(port))):
        assert clear.problem(GONE) == f"port {port} is still held by pid {os.getpid()}"
    assert clear.problem(GONE) == ""


def test_gpu_memory_that_has_not_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"

    def use(mib: int) -> None:
        program.write_text(
            "#!/bin/sh\ncat <<END\n<nvidia_smi_log><gpu><uuid>GPU-1</uuid><product_name>H100"
            f"</product_name><fb_memory_usage><used>{mib} MiB</used></fb_memory_usage></gpu>"
            "</nvidia_smi_log>\nEND\n"
        )
        program.chmod(0o755)

    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    use(20_000)
    clear = Clearance([], {}, "job", "")
    assert clear.problem(GONE) == "", "what others used before the run is theirs"
    use(60_000)
    assert "H100 GPU-1 has 39.1 GiB more in use" in clear.problem(GONE)
    use(20_500)
    assert clear.problem(GONE) == ""


def test_ranks_that_still_run_on_other_nodes() -> None:
    ranks = [
        {"rank": 0, "state": "exited"},
        {"rank": 3, "state": "running", "host": "n2", "pid": 7},
    ]
    jobs: list[dict[str, Any]] = [{"job": "job", "ended": False, "ranks": ranks}]

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(jobs).encode())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        page = f"http://127.0.0.1:{server.server_address[1]}"
        assert "rank 3 of the old attempt still runs on n2" in Clearance(
            [], {}, "job", page
        ).problem(GONE)
        assert Clearance([], {}, "another", page).problem(GONE) == ""
        jobs[0]["ended"] = True
        assert Clearance([], {}, "job", page).problem(GONE) == ""
    finally:
        server.shutdown()
        server.server_close()
    assert Clearance([], {}, "job", page).problem(GONE) == "", "nobody answers"
