"""A Ray cluster of three nodes on this machine, each with an address of its own."""

from __future__ import annotations

import contextlib
import io
import logging
import os
from collections.abc import Iterator
from typing import Any

ADDRESSES = ("127.0.0.2", "127.0.0.3")


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
    with contextlib.redirect_stderr(io.StringIO()):
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    try:
        for address in ADDRESSES:
            cluster.add_node(num_cpus=2, node_ip_address=address)
        ray.init(address=cluster.address, namespace="demo", **quiet)
        nodes = sorted(ray.nodes(), key=lambda node: node["NodeManagerAddress"] in ADDRESSES)
        yield ray, [node["NodeManagerAddress"] for node in nodes]
    finally:
        ray.shutdown()
        cluster.shutdown()
