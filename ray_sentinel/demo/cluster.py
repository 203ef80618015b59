"""A Ray cluster of three nodes on this machine, each with an address of its own."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from typing import Any

ADDRESSES = ("127.0.0.2", "127.0.0.3")


def free_port() -> int:
    """A port on loopback that nobody holds now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def three_nodes() -> Iterator[tuple[Any, list[str]]]:
    """Start it, connect to it, and end it; yields ray and the nodes' addresses, the head first.

    The user's own Ray clusters are left alone: this one has ports and a session of its own.
    """
    # Ray prints where its dashboard is and warns of what does not matter here.
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.pop("RAY_ADDRESS", None)
    import ray
    from ray.cluster_utils import Cluster

    quiet = {"logging_level": logging.ERROR, "log_to_driver": False, "configure_logging": True}
    # A folder of its own: in Ray's usual one the note of the user's cluster would be overwritten.
    # It is short, because the paths of Unix sockets in it may have 107 characters only.
    folder = tempfile.mkdtemp(prefix="rs")
    head: dict[str, Any] = {"num_cpus": 2, "temp_dir": folder, "include_dashboard": False}
    head["dashboard_port"] = free_port()
    logging.getLogger("ray").setLevel(logging.ERROR)
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        for address in ADDRESSES:
            cluster.add_node(num_cpus=2, node_ip_address=address, temp_dir=folder)
        ray.init(address=cluster.address, namespace="demo", **quiet)
        nodes = sorted(ray.nodes(), key=lambda node: node["NodeManagerAddress"] in ADDRESSES)
        yield ray, [node["NodeManagerAddress"] for node in nodes]
    finally:
        ray.shutdown()
        cluster.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
