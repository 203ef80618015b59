"""Which cluster is meant, and what is said where none answers."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from ray_sentinel.actors.deployment import cluster
from ray_sentinel.errors import UnreachableError
from ray_sentinel.trusted_path import TRUSTED_UIDS_VARIABLE


def raylet(proc: Path, pid: int, parent: int, address: str, user: int | None = None) -> None:
    folder = proc / str(pid)
    folder.mkdir()
    comm = "raylet" if address else "python"
    (folder / "comm").write_text(comm + "\n")
    (folder / "cmdline").write_bytes(f"{comm}\0--gcs-address={address}\0".encode())
    users = "\t".join([str(os.geteuid() if user is None else user)] * 4)
    (folder / "status").write_text(f"Name:\t{comm}\nUid:\t{users}\nGid:\t{users}\n")
    rest = " ".join(["0"] * 40)
    (folder / "stat").write_text(f"{pid} ({comm}) S {parent} {rest}")


def test_clusters_are_tried_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proc = tmp_path / "proc"
    proc.mkdir()
    raylet(proc, 10, 1, "10.0.0.1:6379")
    raylet(proc, 11, 10, "")
    raylet(proc, 12, 1, "10.0.0.2:6379")
    (tmp_path / "ray_current_cluster").write_text("10.0.0.3:6379\n")
    monkeypatch.setattr("os.getpid", lambda: 11)
    found = [address for address, _ in cluster.candidates("", {}, proc, tmp_path)]
    assert found == ["10.0.0.1:6379", "10.0.0.3:6379", "10.0.0.2:6379"]
    named = cluster.candidates("", {"RAY_ADDRESS": "x:1"}, proc, tmp_path)
    assert named == [("x:1", "RAY_ADDRESS")]
    assert cluster.candidates("y:2", {"RAY_ADDRESS": "x:1"}, proc, tmp_path)[0][0] == "y:2"


def test_a_cluster_of_somebody_else_must_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proc = tmp_path / "proc"
    proc.mkdir()
    raylet(proc, 12, 1, "10.0.0.2:6379", user=4321)
    assert cluster.candidates("", {}, proc, tmp_path) == []
    monkeypatch.setenv(TRUSTED_UIDS_VARIABLE, "4321")
    assert [name for name, _ in cluster.candidates("", {}, proc, tmp_path)] == ["10.0.0.2:6379"]


def test_an_address_behind_a_link_or_a_pipe_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    current, other = tmp_path / "ray_current_cluster", tmp_path / "other"
    other.write_text("10.0.0.3:6379")
    current.symlink_to(other)
    assert cluster.candidates("", {}, tmp_path / "proc", tmp_path) == []
    current.unlink()
    os.mkfifo(current)
    assert cluster.candidates("", {}, tmp_path / "proc", tmp_path) == []


class ClientServer:
    """Ray, whose client server fails to start the first ``failures`` times."""

    def __init__(self, failures: int, why: str) -> None:
        self.failures, self.why, self.asked = failures, why, 0

    def init(self, **options: object) -> None:
        self.asked += 1
        if self.asked <= self.failures:
            raise ConnectionAbortedError(f"Initialization failure from server:\n{self.why}")


def test_a_client_server_that_fails_to_start_is_asked_again() -> None:
    why = "RuntimeError: Starting Ray client server failed. See ray_client_server_23000.err"
    ray = ClientServer(2, why)
    cluster.join(ray, "ray://h:1", None)
    assert ray.asked == 3
    for ray, asked in ((ClientServer(9, why), 3), (ClientServer(9, "wrong version"), 1)):
        with pytest.raises(UnreachableError, match="cannot be joined"):
            cluster.join(ray, "ray://h:1", None)
        assert ray.asked == asked


def test_a_cluster_that_is_not_there_is_said_at_once() -> None:
    with (
        pytest.raises(UnreachableError, match=r"127\.0\.0\.1:9 \(as asked for\)"),
        cluster.connect("127.0.0.1:9"),
    ):
        pass


@pytest.mark.parametrize(
    "address", ["local", "host", "host:port", "http://h:1", "h:99999", "h:\u00b2", "a\x1b:1"]
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(UnreachableError, match="no Ray cluster answers"), cluster.connect(address):
        pass


def test_where_nothing_listens_it_is_said_in_words_with_the_remedy() -> None:
    with pytest.raises(UnreachableError) as failed, cluster.connect("127.0.0.1:9"):
        pass
    said = str(failed.value)
    assert "127.0.0.1:9 (as asked for): nothing listens there" in said
    assert "Remedy: start one with `ray start --head`" in said
    assert "Errno" not in said


def test_what_accepts_but_is_not_ray_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        assert "within 0 s" in cluster.answers(address, 0.05)


def test_the_dashboards_address_names_no_cluster(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "ray_current_cluster").write_text("10.0.0.3:6379")
    environ = {"RAY_ADDRESS": "http://127.0.0.1:8265"}
    found = cluster.candidates("", environ, tmp_path / "proc", tmp_path)
    assert found == [("10.0.0.3:6379", str(tmp_path / "ray_current_cluster"))]


def test_a_machine_without_a_node_of_ray_s_is_said_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where a control store was started anew, and Ray has ended its nodes."""
    monkeypatch.setattr(cluster, "RAYLET_SECONDS", 0.0)
    monkeypatch.setattr(cluster, "raylets", dict)
    with pytest.raises(UnreachableError, match="no raylet runs on this machine"):
        cluster.await_raylet("10.0.0.1:6379")
    cluster.await_raylet("ray://10.0.0.1:10001")
    monkeypatch.setattr(cluster, "raylets", lambda: {7: "10.0.0.1:6379"})
    cluster.await_raylet("head.example:6380")


def test_ray_prints_nothing_amid_what_a_command_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from ray._private import worker

    monkeypatch.setattr(worker, "print_to_stdstream", print)
    worker.print_to_stdstream("a node has died")
    assert "a node has died" in capsys.readouterr().out
    cluster.silence_ray()
    worker.print_to_stdstream({"lines": ["a node has died"], "is_err": False}, ignore_prefix=False)
    assert capsys.readouterr().out == ""
