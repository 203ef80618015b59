"""Finding the cluster from the command lines of raylets."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from ray_sentinel.api import Skip
from ray_sentinel_plugins._files import Files
from ray_sentinel_plugins._raylets import Raylet, any_raylet, own_raylet, parse_raylet
from ray_sentinel_plugins.ray_cluster import RayCollector

# As Ray 2.60 starts it, shortened.
COMMAND = (
    "/venv/lib/python3.11/site-packages/ray/core/src/ray/raylet/raylet",
    "--raylet_socket_name=/tmp/ray/session_1/sockets/raylet",
    "--node_ip_address=192.0.2.2",
    "--log_dir=/tmp/ray/session_1/logs",
    "--static_resource_list=node:192.0.2.2,1.0,node:__internal_head__,1.0,CPU,2",
    "--gcs-address=192.0.2.2:40279",
    "--stdout_filepath=/tmp/ray/session_1/logs/raylet.out",
)


def process(proc: Path, pid: int, parent: int, *command: str) -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    (folder / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in command))
    (folder / "stat").write_text(f"{pid} (a) b (c) S {parent} 1 1 0 -1\n")


@pytest.fixture
def files() -> Files:
    return Files(logging.getLogger("test"))


def test_the_raylet_above_is_ours_whatever_else_runs(tmp_path: Path, files: Files) -> None:
    process(tmp_path, 1, 0, "/sbin/init")
    process(tmp_path, 10, 1, *COMMAND, "--head")
    process(tmp_path, 20, 1, *(word.replace("40279", "555") for word in COMMAND))
    process(tmp_path, 30, 20, "ray::Agent")
    process(tmp_path, 40, 30, "python", "-m", "collector")
    process(tmp_path, 50, 1, "bash")
    assert own_raylet(files, tmp_path, 40) == Raylet(
        "192.0.2.2:555", False, "/tmp/ray/session_1/logs/raylet.out"
    )
    assert own_raylet(files, tmp_path, 50) is None
    assert own_raylet(files, tmp_path, 4711) is None
    found = any_raylet(files, tmp_path)
    assert found is not None
    assert (found.address, found.is_head) == ("192.0.2.2:40279", True)


@pytest.mark.parametrize(
    "command",
    [b"", b"raylet", b"\xff\0", b"python\0--gcs-address=a:1\0", b"raylet\0--gcs-address="],
)
def test_what_is_no_raylet(command: bytes) -> None:
    assert parse_raylet(command) is None


def test_a_circle_of_parents_ends(tmp_path: Path, files: Files) -> None:
    process(tmp_path, 5, 6, "a")
    process(tmp_path, 6, 5, "b")
    assert own_raylet(files, tmp_path, 5) is None


def test_nothing_to_ask(tmp_path: Path, context) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(Skip, match="captured tree"):
        RayCollector(context(tmp_path))
