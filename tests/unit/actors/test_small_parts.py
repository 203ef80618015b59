"""Hosts, idle nodes, storage, health, environment, finding a cluster."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from ray_sentinel.actors.coordinator import fleet
from ray_sentinel.actors.coordinator.executor import limited, raylet_answers
from ray_sentinel.actors.deployment import cluster, environment
from ray_sentinel.actors.hosts import RayNode, host_label, ray_nodes
from ray_sentinel.actors.storage import DeploymentStorage
from ray_sentinel.config import AgentConfig, Config, absolute
from ray_sentinel.config import CaptureConfig as CaptureTable
from ray_sentinel.engine.actions import Capture
from ray_sentinel.errors import UnreachableError
from ray_sentinel.model.identity import ProcessId, Rank, RankId
from tests.support.incidents import an_incident


def node(node_id: str, host: str, *, alive: bool = True) -> RayNode:
    return RayNode(id=node_id, hostname=host, address=f"10.0.0.{node_id}", alive=alive)


def test_a_dead_node_does_not_take_the_name_away() -> None:
    one = node("1", "gpu-1.cluster.local")
    assert host_label(one, [one, node("2", "gpu-1", alive=False)]) == "gpu-1"
    assert host_label(one, [one, node("2", "gpu-1")]) == "10.0.0.1"


def test_a_node_without_a_name_has_its_address() -> None:
    assert host_label(node("1", ""), [node("1", "")]) == "10.0.0.1"


def test_ray_nodes_reads_what_old_versions_leave_out() -> None:
    found = ray_nodes([{"NodeID": "a", "Alive": True}])["a"]
    assert found.alive
    assert not found.is_head
    assert found.death_reason == 0


def test_a_node_is_left_when_idle_free_and_not_the_head() -> None:
    seconds = {"head": 700.0, "busy": 700.0, "free": 700.0, "young": 10.0}
    free = {"head", "free", "young"}
    assert fleet.to_release(seconds, free, {"head"}, 600.0) == {"free"}
    assert fleet.to_release(seconds, free, {"head"}, 0.0) == frozenset()


def test_our_own_group_is_no_work() -> None:
    total = {"a": {"CPU": 8.0, "node:10.0.0.1": 1.0, "bundle_group_0_x": 1000.0}}
    available = {"a": {"CPU": 8.0, "node:10.0.0.1": 0.999}}
    assert fleet.unused(total, available) == {"a"}


def test_an_autoscaler_is_seen(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7/cmdline").write_bytes(b"python\0monitor.py\0--logs-dir=/x\0")
    assert not fleet.autoscales({}, tmp_path)
    (tmp_path / "7/cmdline").write_bytes(b"python\0monitor.py\0--autoscaling-config=/c.yaml\0")
    assert fleet.autoscales({}, tmp_path)
    assert fleet.autoscales({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, tmp_path)


def test_storage_falls_back_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    blocked = tmp_path / "file"
    blocked.write_text("")
    storage = DeploymentStorage(Config(log_dir=str(blocked / "below"), job="j"), {})
    assert storage.root == tmp_path / f"ray_sentinel-{os.getuid()}" / "j"
    assert str(blocked / "below") in storage.notes[0]
    assert "RAY_SENTINEL_LOG_DIR" in storage.notes[0]


def test_a_deployment_that_fell_back_stays_there_until_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its event log is there: a coordinator that Ray starts again would else forget all."""
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    wanted = tmp_path / "wanted"
    wanted.write_text("")
    config = Config(log_dir=str(wanted), job="j")
    fell_back = DeploymentStorage(config, {}, deployment="d")
    assert fell_back.root == tmp_path / f"ray_sentinel-{os.getuid()}" / "j"
    assert "until `ray-sentinel down` and `up`" in fell_back.notes[-1]
    assert "until the agent is restarted" in DeploymentStorage(config, {}).notes[-1]
    events = fell_back.folder("events")
    assert events is not None
    (events / "d").mkdir()
    wanted.unlink()

    again = DeploymentStorage(config, {}, deployment="d")
    assert again.root == fell_back.root
    assert again.folder("events") == events
    assert "now it can: `ray-sentinel down` and `up`" in again.notes[0]
    assert DeploymentStorage(config, {}, deployment="next").root == wanted
    assert DeploymentStorage(config, {}).root == wanted, "an agent, which has no past"
    (wanted / "events" / "d").mkdir(parents=True)
    assert DeploymentStorage(config, {}, deployment="d").root == wanted, "where it began"


def test_storage_without_any_place_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(blocked))
    storage = DeploymentStorage(Config(log_dir=str(blocked)), {})
    assert storage.root is None
    assert storage.folder("incidents") is None
    assert "memory only" in storage.notes[-1]


def test_storage_warns_of_a_folder_that_goes_with_the_pod(tmp_path: Path) -> None:
    storage = DeploymentStorage(Config(log_dir=str(tmp_path)), {"KUBERNETES_SERVICE_HOST": "1"})
    same = tmp_path.stat().st_dev == Path("/").stat().st_dev
    assert any("goes with the pod" in note for note in storage.notes) is same


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


def test_our_actors_are_no_ranks() -> None:
    theirs = {"RANK": "3", "SLURM_STEP_ID": "1", "NCCL_DEBUG": "INFO", "HOME": "/h"}
    blank = environment.actor_variables(theirs)
    assert {"RANK", "WORLD_SIZE", "MASTER_ADDR", "SLURM_STEP_ID", "NCCL_DEBUG"} <= set(blank)
    assert {name for name, value in blank.items() if value} == {
        "RAY_SENTINEL_ROLE",
        "RAY_worker_niceness",
        "RAY_task_events_report_interval_ms",
        "RAY_event_stats",
    }
    assert "HOME" not in blank
    environment.forget_identity(theirs)
    assert theirs == {"HOME": "/h"}


def test_a_helper_imports_what_its_caller_can() -> None:
    given = {"RANK": "3", "RAY_JOB_CONFIG_JSON_ENV_VAR": "{}", "PATH": "/bin"}
    found = environment.helper_variables(given, ["", "/a", "/b", "/a", "relative"])
    assert found == {"PATH": "/bin", "PYTHONPATH": "/a:/b"}


def raylet(proc: Path, pid: int, parent: int, address: str) -> None:
    folder = proc / str(pid)
    folder.mkdir()
    comm = "raylet" if address else "python"
    (folder / "comm").write_text(comm + "\n")
    (folder / "cmdline").write_bytes(f"{comm}\0--gcs-address={address}\0".encode())
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


def test_a_raylet_that_refuses_is_dead_and_one_without_a_port_unknown() -> None:
    assert raylet_answers("127.0.0.1", 9)[0] is False
    assert raylet_answers("127.0.0.1", 0)[0] is None


def a_rank(number: int) -> Rank:
    return Rank(id=RankId("j", 0, number), process=ProcessId("h", number + 1), node="n")


def test_no_more_processes_are_paused_than_allowed() -> None:
    ranks = [a_rank(number) for number in range(4)]
    asked = Capture(incident=an_incident(), suspects=tuple(ranks[:2]), waiters=tuple(ranks[2:]))
    cut = limited(asked, 3)
    assert cut.suspects == tuple(ranks[:2])
    assert cut.waiters == (ranks[2],)
    assert cut.others == (ranks[3],)


def test_relative_paths_mean_the_callers_folder() -> None:
    given = Config(log_dir="logs", agent=AgentConfig(plugin_dir="~/p"), capture=CaptureTable())
    found = absolute(given, Path("/home/me"))
    assert found.log_dir == "/home/me/logs"
    assert found.agent.plugin_dir == "~/p"
    assert found.capture.output_dir == ""
    assert absolute(found, Path("/elsewhere")) == found
