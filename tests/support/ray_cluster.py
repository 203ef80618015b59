"""A real Ray cluster of several nodes on this machine, each with an address of its own."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ray_sentinel.actors.messages import AgentInfo
from ray_sentinel.config import absolute, load
from ray_sentinel.model.status import Status
from tests.support.living import descendants
from tests.support.waiting import eventually

T = TypeVar("T")

ADDRESSES = ("127.0.0.2", "127.0.0.3")
STARTS = 3
"""Ray gives a node 30 s to appear; a cluster that does not come up is begun anew."""
UP_SECONDS = 90.0
"""For the agents to report, however much else is started on the machine."""


class RayCluster:
    """Its own processes, its own ports; no other cluster on the machine is touched.

    It has no dashboard, and nothing that prints workers' output on drivers' terminals (but see
    ``printing``): each costs processes.
    """

    def __init__(
        self,
        head_cpus: int = 1,
        addresses: tuple[str, ...] = ADDRESSES,
        client_port: int = 0,
        autoscaler: bool = False,
    ) -> None:
        """With ``client_port`` the head also serves Ray Client there; with ``autoscaler`` Ray's
        monitor tells what the autoscaler does."""
        self.port = 20_000 + os.getpid() % 10_000
        head: dict[str, Any] = {
            "num_cpus": head_cpus,
            "include_dashboard": False,
            "include_log_monitor": False,
            "no_monitor": not autoscaler,
        }
        if client_port:
            head["ray_client_server_port"] = client_port
        for attempts_left in reversed(range(STARTS)):
            try:
                self._start(head, addresses)
                return
            except Exception as error:  # Ray raises no other for a node that took too long
                self.stop()
                if not attempts_left or "timed out" not in str(error).lower():
                    raise

    def _start(self, head: dict[str, Any], addresses: tuple[str, ...]) -> None:
        from ray.cluster_utils import Cluster

        logging.getLogger("ray").setLevel(logging.ERROR)
        self._cluster = Cluster()
        self._nodes: dict[str, Any] = {}
        with contextlib.redirect_stderr(io.StringIO()):
            self._cluster.add_node(**head)
        self.address = str(self._cluster.address)
        for address in addresses:
            self.add(address)

    def add(self, address: str, **more: Any) -> None:
        """One more node; ``more`` is for Ray."""
        with contextlib.redirect_stderr(io.StringIO()):
            self._nodes[address] = self._cluster.add_node(
                num_cpus=2, node_ip_address=address, **more
            )

    @contextlib.contextmanager
    def printing(self) -> Iterator[None]:
        """Drivers print what their workers print, for which a process of Ray's reads all logs."""
        head = self._cluster.head_node
        head.start_log_monitor()
        try:
            yield
        finally:
            head.kill_log_monitor()

    def remove(self, address: str) -> None:
        """Kill a node, without a word to the cluster."""
        self._cluster.remove_node(self._nodes.pop(address), allow_graceful=False)

    def retire(self, address: str) -> None:
        """The same, and wait until Ray knows: until then it would place actors there."""
        self.remove(address)
        with self.connected() as ray:
            eventually(lambda: address not in _living(ray), f"Ray takes {address} for dead", 60.0)

    @property
    def control_store_pid(self) -> int:
        """The process of Ray's control store (GCS)."""
        (server,) = self._cluster.head_node.all_processes["gcs_server"]
        return int(server.process.pid)

    def lose_control_store(self) -> None:
        """Kill Ray's control store (GCS), by SIGKILL."""
        self._cluster.head_node.kill_gcs_server()

    def restore_control_store(self) -> None:
        """Start it again, at its old address."""
        with contextlib.redirect_stderr(io.StringIO()):
            self._cluster.head_node.start_gcs_server()

    def stop(self) -> None:
        """End all nodes."""
        self._cluster.shutdown()

    @contextlib.contextmanager
    def connected(self) -> Iterator[Any]:
        """As a job of ours; yields ray."""
        from ray_sentinel.actors.deployment import cluster

        with cluster.connect(self.address) as ray:
            yield ray

    def environ(self, **more: str) -> dict[str, str]:
        """For processes that belong to this cluster."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("RAY_SENT")}
        # Not the usual port: a demo, or somebody's own cluster, may run beside the tests.
        port = {"RAY_SENTINEL_AGENT__PORT": str(self.port)}
        return {**kept, "RAY_ADDRESS": self.address, **port, **more}

    def run(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        """One command of ours to its end."""
        return subprocess.run(
            [sys.executable, "-m", "ray_sentinel.cli.main", *arguments],
            capture_output=True,
            text=True,
            timeout=150,
            env=self.environ(**more),
            check=False,
        )

    @contextlib.contextmanager
    def driver(self, script: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """A script that is the driver of a job; killed in the end."""
        with subprocess.Popen(
            [sys.executable, "-W", "ignore", str(script), *arguments],
            env=self.environ(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def up(self, log_dir: Path, **more: str) -> None:
        """Watch the cluster, and fail where a node is not: as the command does, whose imports
        take twice as long, unless this process is a driver already."""
        if _is_driver():
            self.up_by_command(log_dir, **more)
            return
        from ray_sentinel.actors.deployment import cluster, deploy
        from ray_sentinel.actors.deployment.helper import wait_until_watched

        told = load(environ=self.environ(**more), overrides={"log_dir": str(log_dir)})
        with cluster.connect(self.address, ship=True) as ray:
            deployed = deploy.ensure(ray, absolute(told, Path.cwd()))
            status = wait_until_watched(ray, deployed.coordinator, UP_SECONDS)
        assert status.nodes
        assert status.unwatched == ()

    def up_by_command(self, log_dir: Path, **more: str) -> None:
        """The same without that this process joins the cluster."""
        patiently = ("--timeout", str(UP_SECONDS))
        ended = self.run("up", "--log-dir", str(log_dir), *patiently, "--json", **more)
        assert ended.returncode == 0, ended.stdout + ended.stderr

    def down(self) -> None:
        """Stop watching, and fail where something is left: as the command does."""
        from ray_sentinel.actors.deployment import deploy

        with self._joined() as ray:
            assert deploy.down(ray) == []

    def end_left_actors(self) -> None:
        """End those of Ray Train that outlive its drivers, and look around for as long as the
        cluster lives: one that has a name, and one that has none."""
        from ray_sentinel.actors.names import NAMESPACE

        with self._joined() as ray:
            for one in ray.util.list_named_actors(all_namespaces=True):
                if one["namespace"] != NAMESPACE:
                    with contextlib.suppress(ValueError):  # it has just ended
                        ray.kill(ray.get_actor(one["name"], one["namespace"]))
        for pid in descendants(os.getpid()):
            with contextlib.suppress(OSError):
                if b"ray::PlacementGroupCleaner" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)

    @contextlib.contextmanager
    def _joined(self) -> Iterator[Any]:
        """By the connection that this process has, or by one of its own."""
        with contextlib.nullcontext() if _is_driver() else self.connected():
            yield sys.modules["ray"]


def _is_driver() -> bool:
    """Whether this process has joined a cluster, and can join none as another job."""
    ray: Any = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def _living(ray: Any) -> set[str]:
    return {node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}


class Watched:
    """Asks the coordinator through one connection."""

    def __init__(self, ray: Any, log: Path = Path()) -> None:
        """With ``log`` the folder where it writes, for tests that read there."""
        self.ray, self.log = ray, log

    def ask(self, method: str, kind: type[T], *arguments: Any) -> T:
        """A method's decoded answer."""
        from ray_sentinel.actors.deployment import deploy

        handle = deploy.find(self.ray)
        raw = deploy.ask(self.ray, handle, method, *arguments, seconds=30.0)
        return msgspec.msgpack.decode(raw, type=kind)

    def status(self) -> Status:
        return self.ask("status", Status)

    def agents(self) -> dict[str, AgentInfo]:
        """By address."""
        found = self.ask("agents", tuple[AgentInfo, ...])
        return {agent.address: agent for agent in found}
