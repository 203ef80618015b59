"""``ray-sentinel up`` with something in its way: a taken port, a folder that cannot be written, a
wrong configuration, a node that does not have the package."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.ray_cluster import RayCluster, Watched
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration


HIDE = '''
"""A node without our package: what is installed of it cannot be found, what Ray ships can."""
import sys
from importlib.machinery import PathFinder

sys.path[:] = [entry for entry in sys.path if entry not in {hidden!r}]

class Hide(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name == "msgspec" and path is None:
            path = [entry for entry in sys.path if "site-packages" not in entry]
        return PathFinder.find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Hide
'''


ODD = "127.0.0.6"
"""The node that does not have the package."""


@pytest.fixture(scope="class")
def hindered(
    ray_cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Watched, int]]:
    """Watched, though somebody else has the port of one node, and another node has no package; and
    that port."""
    folder = tmp_path_factory.mktemp("hindered")
    with contextlib.ExitStack() as undo:
        add_without_package(ray_cluster, folder)
        undo.callback(ray_cluster.retire, ODD)
        other = undo.enter_context(socket.socket())
        other.bind(("127.0.0.3", 0))
        other.listen()
        port = other.getsockname()[1]
        ray_cluster.up(folder / "log", RAY_SENTINEL_AGENT__PORT=str(port))
        undo.callback(ray_cluster.down)
        yield Watched(undo.enter_context(ray_cluster.connected())), port


def add_without_package(cluster: RayCluster, folder: Path) -> None:
    root = Path(__file__).parents[3]
    hidden = [str(root), str(root / "plugins"), str(root / "exporters")]
    (folder / "sitecustomize.py").write_text(HIDE.format(hidden=hidden))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder))
        code = "import ray_sentinel"
        bare = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, cwd="/", check=False, timeout=30
        )
        assert bare.returncode != 0, "the package must be hidden for this test to mean anything"
        cluster.add(ODD)


class TestHindered:
    def test_a_taken_port(self, hindered: tuple[Watched, int]) -> None:
        watched, port = hindered
        status = watched.status()
        (url,) = [node.metrics_url for node in status.nodes if node.address == "127.0.0.3"]
        assert url.startswith("http://127.0.0.3:")
        assert f":{port}/" not in url
        assert any(f"port {port} of 127.0.0.3 is taken" in note for note in status.notes)

    def test_a_node_without_the_package_is_watched_all_the_same(
        self, hindered: tuple[Watched, int]
    ) -> None:
        watched, _ = hindered
        status = watched.status()
        assert ODD in {node.address for node in status.nodes}
        assert not status.unwatched

        def collecting() -> Any:
            (node,) = [n for n in watched.status().nodes if n.address == ODD]
            return [c for c in node.collectors if c.name == "host" and c.success]

        eventually(collecting, "its collectors were shipped with their entry points")


def test_a_log_folder_that_cannot_be_written(ray_cluster: RayCluster, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    try:
        ended = ray_cluster.run("up", "--log-dir", str(blocked / "below"), "--json")
        assert ended.returncode == 0, ended.stderr
        told = json.loads(ended.stdout)
        assert any(str(blocked / "below") in note for note in told["notes"])
        assert told["log_dir"] not in ("", str(blocked / "below"))
    finally:
        ray_cluster.down()


def test_wrong_configuration_is_refused_before_anything_is_made(
    ray_cluster: RayCluster, tmp_path: Path
) -> None:
    file = tmp_path / "sentinel.toml"
    file.write_text("[hang]\nsilence_secs = 3\n")
    ended = ray_cluster.run("up", "--config", str(file), "--json")
    assert ended.returncode == 2
    error = json.loads(ended.stdout)["error"]
    assert str(file) in error
    assert "silence_seconds" in error
    assert ray_cluster.run("status", "--json").returncode == 3


def test_metrics_of_a_public_address_are_not_served() -> None:
    from ray_sentinel.actors.agent.exporting import Exporting
    from ray_sentinel.config import Config

    exporting = Exporting(Config(), "h", "8.8.8.8")
    assert exporting.url == ""
    assert any("public" in note for note in exporting.notes)
