"""A cluster that asks for tokens, as ``ray start`` makes one where it finds a token."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ray_sentinel.actors.deployment.cluster import answers
from tests.support.living import alive, descendants
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

NODE = "127.0.0.7"
STARTS = 3
"""Ray gives a node 30 s to appear; one that does not is begun anew."""


class TokenCluster:
    """One node, started by the command line with a home of its own."""

    def __init__(self, folder: Path) -> None:
        with socket.create_server((NODE, 0)) as probe:
            self.address = f"{NODE}:{probe.getsockname()[1]}"
        self.folder = folder
        (folder / "owner" / ".ray").mkdir(parents=True)
        (folder / "owner" / ".ray" / "auth_token").write_text(secrets.token_hex(16))
        start = ["start", "--head", "--block", "--port", self.address.rpartition(":")[2]]
        start += ["--node-ip-address", NODE, "--num-cpus", "1", "--include-dashboard", "false"]
        start += ["--temp-dir", str(folder / "ray")]
        with open(folder / "ray.log", "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "ray.scripts.scripts", *start],
                env=self.environ("owner"),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def is_up(self) -> bool:
        """Whether it has come up in the end; not where Ray has waited for too long."""

        def told() -> str:
            log = (self.folder / "ray.log").read_text()
            return log if "Ray runtime started" in log or self.process.poll() is not None else ""

        log = eventually(told, "the node is there", 90.0)
        up = self.process.poll() is None
        assert up or "timed out during startup" in log, log
        return up

    def environ(self, home: str) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
        return {
            **kept,
            "HOME": str(self.folder / home),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_SENTINEL_AGENT__PORT": str(21_000 + os.getpid() % 9_000),
        }

    def command(self, home: str, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "ray_sentinel.cli.main", *arguments, "--address", self.address],
            capture_output=True,
            text=True,
            timeout=120,
            env={**self.environ(home), **more},
            check=False,
        )

    def close(self) -> None:
        if self.process.poll() is not None:
            return
        below = descendants(self.process.pid)
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=30)
        finally:
            for pid in filter(alive, [self.process.pid, *below]):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def cluster() -> Iterator[TokenCluster]:
    for attempts_left in reversed(range(STARTS)):
        # Not in pytest's own folder: the path of Ray's sockets may have 107 bytes.
        with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
            started = TokenCluster(Path(folder))
            try:
                if started.is_up():
                    yield started
                    return
                assert attempts_left, (started.folder / "ray.log").read_text()
            finally:
                started.close()


def test_who_has_the_token_needs_no_variable(cluster: TokenCluster) -> None:
    assert answers(cluster.address) == ""
    up = cluster.command("owner", "up", "--log-dir", str(cluster.folder / "log"))
    assert up.returncode == 0, up.stdout + up.stderr
    status = cluster.command("owner", "status", "--json")
    assert status.returncode == 0, status.stderr
    refused = cluster.command("owner", "status", RAY_AUTH_MODE="disabled")
    assert refused.returncode == 3
    assert "set RAY_AUTH_MODE=token" in refused.stderr
    (cluster.folder / "stranger").mkdir()
    refused = cluster.command("stranger", "status")
    assert refused.returncode == 3
    assert "no authentication token was found" in refused.stderr
    assert cluster.command("owner", "down").returncode == 0
