"""Whether a token is offered to the cluster, and what is said where it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from ray_sentinel.actors.deployment.cluster import adopt_mode, remedy

HERE, ELSEWHERE = "10.0.0.1:6379", "10.0.0.1:6380"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A machine with nodes of two clusters; one of them asks for tokens."""
    for pid, address, mode in ((10, HERE, "token"), (20, ELSEWHERE, "")):
        folder = tmp_path / str(pid)
        folder.mkdir()
        (folder / "comm").write_text("raylet\n")
        (folder / "cmdline").write_bytes(f"raylet\0--gcs-address={address}\0".encode())
        told = f"RAY_AUTH_MODE={mode}\0" if mode else ""
        (folder / "environ").write_bytes(f"HOME=/root\0{told}".encode())
    return tmp_path


@pytest.mark.parametrize(
    ("target", "environ", "mode"),
    [
        (HERE, {}, "token"),
        (ELSEWHERE, {}, None),
        ("10.0.0.9:6379", {}, None),
        (HERE, {"RAY_AUTH_MODE": "disabled"}, "disabled"),
    ],
)
def test_as_the_node_here_does(
    proc: Path, target: str, environ: dict[str, str], mode: str | None
) -> None:
    adopt_mode(target, environ, proc)
    assert environ.get("RAY_AUTH_MODE") == mode


def test_a_node_that_shows_no_environment(proc: Path) -> None:
    (proc / "10" / "environ").unlink()
    environ: dict[str, str] = {}
    adopt_mode(HERE, environ, proc)
    assert environ == {}


def test_what_to_do() -> None:
    assert "set RAY_AUTH_MODE=token" in remedy({})
    assert "must be the cluster's" in remedy({"RAY_AUTH_MODE": "token"})
