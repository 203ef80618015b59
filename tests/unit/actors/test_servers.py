"""Asking an engine for its load, over real HTTP on loopback."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from ray_sentinel.actors.agent import servers
from ray_sentinel.actors.agent.servers import ServerPoll
from ray_sentinel.actors.metrics import key_samples
from ray_sentinel.model.identity import ProcessId, Rank, RankId
from ray_sentinel.progress.discovery.front_end import metrics_url
from tests.support.samples import series_key

JOB = "vllm-123"
TEXT = "vllm:num_requests_running 2\nvllm:num_requests_waiting 5\nvllm:prompt_tokens_total 9\n"


def engine_rank(job: str = JOB, role: str = "engine", command: str = "VLLM::Worker_TP0") -> Rank:
    return Rank(
        id=RankId(job, 0, 0),
        process=ProcessId("h", os.getpid(), 1),
        node="n",
        role=role,
        source="title",
        command=command,
    )


class Server:
    """Answers ``/metrics`` with ``text``."""

    def __init__(self) -> None:
        outer, self.text, self.status = self, TEXT, 200
        self.may_end = threading.Event()
        self.may_end.set()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(outer.status)
                self.end_headers()
                while not outer.may_end.wait(0.02):
                    self.wfile.write(b"#")
                self.wfile.write(outer.text.encode())

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/metrics"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.may_end.set()
    running.http.shutdown()
    running.http.server_close()


@pytest.fixture
def polling(server: Server, monkeypatch: pytest.MonkeyPatch) -> ServerPoll:
    """Asks only when told to."""
    monkeypatch.setattr(servers, "Loop", lambda *_, **__: None)
    found = ServerPoll(
        lambda: server.url, lambda pid, engine: server.url if engine == "vllm" else ""
    )
    found.watch([engine_rank()], False)
    return found


def test_its_load_is_served(polling: ServerPoll) -> None:
    polling.poll()
    assert key_samples(polling.families()) == {
        series_key(f'server_requests{{job="{JOB}",state="running"}}'): 2.0,
        series_key(f'server_requests{{job="{JOB}",state="waiting"}}'): 5.0,
        series_key(f'server_tokens_total{{job="{JOB}",kind="prompt"}}'): 9.0,
    }
    (up,) = (family for family in polling.families() if family.metric is servers.UP)
    assert [sample.value for sample in up.samples] == [1.0]


@pytest.mark.parametrize(("text", "status"), [("no metrics", 200), (TEXT, 500)])
def test_one_that_does_not_tell_is_down_and_is_asked_again(
    polling: ServerPoll, server: Server, text: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "SEARCH_SECONDS", 0.0)
    server.text, server.status = text, status
    polling.poll()
    (family,) = polling.families()
    assert (family.metric, family.samples[0].value) == (servers.UP, 0.0)
    server.text, server.status = TEXT, 200
    polling.poll()
    assert len(polling.families()) == 3


def test_an_answer_that_trickles_in_is_waited_for_no_longer_than_others(
    polling: ServerPoll, server: Server
) -> None:
    polling.asked.seconds = 0.2
    server.may_end.clear()
    polling.poll()
    server.may_end.set()
    (family,) = polling.families()
    assert (family.metric, family.samples[0].value) == (servers.UP, 0.0)


def test_old_answers_and_engines_that_have_gone_are_not_served(
    polling: ServerPoll, monkeypatch: pytest.MonkeyPatch
) -> None:
    polling.poll()
    with monkeypatch.context() as patch:
        patch.setattr(servers, "STALE_SECONDS", -1.0)
        assert polling.families() == ()
    assert polling.families()
    polling.watch([], False)
    polling.poll()
    assert polling.families() == ()


def test_only_engines_found_by_title_are_asked(polling: ServerPoll) -> None:
    other = engine_rank("sglang-9", command="sglang::scheduler_TP0")
    polling.watch([engine_rank(role="trainer"), other], False)
    polling.poll()
    assert polling.families() == ()


def test_an_engine_is_known_whatever_its_job_is_called(polling: ServerPoll) -> None:
    polling.watch([engine_rank("slurm-12.0")], False)
    polling.poll()
    assert polling.families()


def test_the_port_of_a_process_above_that_listens_on_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    child = (
        "import socket, subprocess, sys\n"
        "s = socket.create_server(('127.0.0.1', int(sys.argv[2])))\n"
        "p = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE)\n"
        "print(p.pid, flush=True)\n"
        "input()\n"
        "p.communicate()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", child, "--port", str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as front:
        assert front.stdout is not None
        rank = int(front.stdout.readline())
        assert metrics_url(rank, "sglang") == f"http://127.0.0.1:{port}/metrics"
        assert metrics_url(os.getpid(), "sglang") == "", "its children's port is not its own"
        front.communicate("\n", timeout=30)
    assert metrics_url(rank, "sglang") == ""
