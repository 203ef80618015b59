"""This node's runtime environments, asked of a server in the place of Ray's agent."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from ray.core.generated import runtime_env_agent_pb2

from ray_sentinel.actors.agent.runtime_env import RuntimeEnvAgentAddress, RuntimeEnvironments
from ray_sentinel.model.runtime_env import environment_key

BUILT = '{"pip": {"packages": ["torch"]}, "env_vars": {"TOKEN": "secret"}}'
READY = '{"pip": {"packages": ["numpy"]}}'
FAILED = '{"pip": {"packages": ["nosuch"]}}'
LOG = (
    "2026-11-26 09:51:54,743\tINFO runtime_env_agent.py:543 -- Creating runtime env: "
    f"{BUILT} with timeout 600 seconds.\n"
)


def reply() -> bytes:
    told = runtime_env_agent_pb2.GetRuntimeEnvsInfoReply()
    add = told.runtime_env_states.add
    add(runtime_env="{}", ref_cnt=3)
    add(runtime_env=BUILT, ref_cnt=1)
    add(runtime_env=READY, ref_cnt=1, success=True, creation_time_ms=41_000)
    add(runtime_env=FAILED, success=False, error="ERROR: No matching distribution")
    return bytes(told.SerializeToString())


@contextmanager
def answering(answer: Callable[[bytes], tuple[int, bytes]]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            status, body = answer(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/get_runtime_envs_info"
    finally:
        server.shutdown()
        server.server_close()


def environments(url: str, logs: Path) -> RuntimeEnvironments:
    address = RuntimeEnvAgentAddress(url=url) if url else None
    return RuntimeEnvironments("node1", 0, lambda: address, lambda: logs)


def test_what_is_being_built_since_when_and_how_long_others_took(tmp_path: Path) -> None:
    (tmp_path / "runtime_env_agent.log").write_text(LOG)
    (tmp_path / "runtime_env_setup-01000000.log").write_text("Collecting torch\n")
    asked: list[bytes] = []

    def answer(data: bytes) -> tuple[int, bytes]:
        asked.append(data)
        return 200, reply()

    with answering(answer) as url:
        found = environments(url, tmp_path).poll()
    assert runtime_env_agent_pb2.GetRuntimeEnvsInfoRequest.FromString(asked[0]).limit == 1000
    (build,) = found.building
    assert (build.key, build.what) == (environment_key(BUILT), "pip: torch")
    assert build.since is not None
    assert found.made == {environment_key(READY): 41.0}
    assert (found.answers, found.line, found.problem) == (True, "Collecting torch", "")
    assert found.moves is None, "no process of the raylet's agent is seen"


def test_an_agent_that_does_not_answer_leaves_its_log(tmp_path: Path) -> None:
    (tmp_path / "runtime_env_agent.log").write_text(LOG)
    ended = threading.Event()

    def late(data: bytes) -> tuple[int, bytes]:
        ended.wait(30.0)
        return 200, reply()

    with answering(late) as url:
        found = environments(url, tmp_path).poll()
        ended.set()
    assert not found.answers
    assert [build.what for build in found.building] == ["pip: torch"]


def test_a_bad_answer_costs_the_fact_alone(tmp_path: Path) -> None:
    (tmp_path / "runtime_env_agent.log").write_text(LOG)
    answers = [(500, b"no"), (401, b"Unauthorized"), (200, b"\xff" * 99), (200, bytes(5 << 20))]
    for status, body in answers:
        with answering(lambda data, status=status, body=body: (status, body)) as url:  # type: ignore[misc]
            found = environments(url, tmp_path).poll()
        assert (found.building, found.answers) == ((), True)
        assert found.problem
    assert environments("http://127.0.0.1:9/", tmp_path / "gone").poll().problem
    assert "port" in environments("", tmp_path).poll().problem
