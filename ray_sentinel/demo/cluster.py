"""A Ray cluster of three nodes on this machine, each with an address of its own."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import random
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import Any

from ray_sentinel import process
from ray_sentinel.errors import SentinelError

ADDRESSES = ("127.0.0.2", "127.0.0.3")
FIRST_GUEST = 4
PORTS = (22_000, 32_000)
GUEST_SECONDS = 30.0
"""Seconds that a Ray node may take to join, and to end by itself."""


def free_port() -> int:
    """A port on loopback that nobody holds, and that the kernel gives to nobody by itself."""
    dice = random.SystemRandom()
    while True:
        port = dice.randrange(*PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Machines:
    """The cluster: ``addresses`` are those of its three nodes, the head first."""

    def __init__(self, ray: Any, cluster: Any, client_port: int, dashboard_port: int) -> None:
        self.ray = ray
        self._cluster = cluster
        self.gcs_address = str(cluster.address)
        self.client_address = f"ray://127.0.0.1:{client_port}"
        """Where Ray Client is served, if it is."""
        self.dashboard_url = f"http://127.0.0.1:{dashboard_port}"
        """Address of the dashboard, if there is one."""
        self._guests = 0
        nodes = sorted(ray.nodes(), key=lambda node: node["NodeManagerAddress"] in ADDRESSES)
        self.addresses: list[str] = [node["NodeManagerAddress"] for node in nodes]

    @contextlib.contextmanager
    def guest(self, resources: Mapping[str, float] | None = None, store: int = 0) -> Iterator[str]:
        """One more node for a while; yields its address. Any thread may call.

        It has ``resources`` of its own, and an object store of ``store`` bytes (Ray's choice if
        0). Raises SentinelError if the node does not come up.
        """
        address = f"127.0.0.{FIRST_GUEST + self._guests}"
        self._guests += 1
        command = process.python_module("ray.scripts.scripts", "start", "--block", "--num-cpus=1")
        command += [f"--address={self._cluster.address}", f"--node-ip-address={address}"]
        command += ["--disable-usage-stats"]
        if resources:
            command.append(f"--resources={json.dumps(dict(resources))}")
        if store:
            command.append(f"--object-store-memory={store}")
        child = process.spawn(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            self._wait_for(address)
            yield address
        finally:
            process.end(child, grace=GUEST_SECONDS)

    def _wait_for(self, address: str) -> None:
        deadline = time.monotonic() + GUEST_SECONDS
        while not any(n["Alive"] and n["NodeManagerAddress"] == address for n in self.ray.nodes()):
            if time.monotonic() > deadline:
                raise SentinelError(f"the node {address} did not join within {GUEST_SECONDS:g} s")
            time.sleep(0.2)


@contextlib.contextmanager
def start_machines(
    addresses: tuple[str, ...] = ADDRESSES, *, client: bool = False, dashboard: bool = False
) -> Iterator[Machines]:
    """Start the cluster (a head, and a node on each of ``addresses``), connect to it, and end it.

    Its head serves Ray Client, and has a dashboard, only if asked to: each costs processes. Nobody
    configures an autoscaler, or prints what workers print.

    The user's own Ray clusters are left alone: this one has ports and a session of its own.
    """
    # Ray prints where its dashboard is and warns of what does not matter here.
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.pop("RAY_ADDRESS", None)
    import ray
    from ray.cluster_utils import Cluster

    quiet = {"logging_level": logging.ERROR, "log_to_driver": False, "configure_logging": True}
    with contextlib.ExitStack() as undo:
        folder = undo.enter_context(_own_folder())
        head: dict[str, Any] = {"num_cpus": 2, "temp_dir": folder, "include_dashboard": dashboard}
        head |= {"no_monitor": True, "include_log_monitor": False}
        head["dashboard_port"] = free_port()
        client_port = free_port() if client else 0
        if client:
            head["ray_client_server_port"] = client_port
        logging.getLogger("ray").setLevel(logging.ERROR)
        cluster = Cluster(initialize_head=True, head_node_args=head)
        undo.callback(cluster.shutdown)
        undo.callback(ray.shutdown)
        for address in addresses:
            cluster.add_node(num_cpus=2, node_ip_address=address, temp_dir=folder)
        ray.init(address=cluster.address, namespace="demo", **quiet)
        yield Machines(ray, cluster, client_port, head["dashboard_port"])


@contextlib.contextmanager
def _own_folder() -> Iterator[str]:
    """A folder for a cluster: in Ray's usual one the note of the user's own would be overwritten.

    It is short, because the paths of Unix sockets in it may have 107 characters only.
    """
    folder = tempfile.mkdtemp(prefix="rs")
    # ``Cluster`` leaves its note in the usual folder all the same, which may be another user's.
    usual = os.environ.get("RAY_TMPDIR")
    os.environ["RAY_TMPDIR"] = folder
    try:
        os.mkdir(os.path.join(folder, "ray"))
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if usual is None:
            os.environ.pop("RAY_TMPDIR", None)
        else:
            os.environ["RAY_TMPDIR"] = usual
