"""What an ended attempt still holds, really held."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from ray_sentinel.cleanup_check import CleanupCheck
from ray_sentinel.supervise.run_folder import State
from ray_sentinel.watched_page import WatchedPage
from tests.support.coordinator_page import Page, a_job, a_rank

pytestmark = pytest.mark.integration

GONE = State(keeper=2**22 + 1, keeper_start=1)


def test_a_port_that_the_old_attempt_left_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        before = CleanupCheck([], {"MASTER_PORT": port}, lambda: "job", None)
        assert before.problem(GONE) == "", "it was held before the run: waiting would not help"
    clear = CleanupCheck([], {"MASTER_PORT": port}, lambda: "job", None)
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
    clear = CleanupCheck([], {}, lambda: "job", None)
    assert clear.problem(GONE) == "", "what others used before the run is theirs"
    use(60_000)
    assert "H100 GPU-1 has 39.1 GiB more in use" in clear.problem(GONE)
    use(20_500)
    assert clear.problem(GONE) == ""


def test_ranks_that_still_run_on_other_nodes(page: Page) -> None:
    ranks = (a_rank(0, "exited"), a_rank(3))
    page.answer = [a_job("job", *ranks)]
    clear = CleanupCheck([], {}, lambda: "job", page.watched())
    assert "rank 3 of the old attempt still runs on n2" in clear.problem(GONE)
    assert CleanupCheck([], {}, lambda: "another", page.watched()).problem(GONE) == ""
    page.answer = [a_job("job", *ranks, ended=True)]
    assert clear.problem(GONE) == ""


def test_nobody_who_could_tell_of_other_nodes() -> None:
    nobody = WatchedPage("http://127.0.0.1:9/?token=" + "x" * 43)
    assert CleanupCheck([], {}, lambda: "job", nobody).problem(GONE) == ""
