"""What an agent does when it is asked; what it does by itself is its ``NodeMonitor``'s."""

from __future__ import annotations

import logging
import os
from functools import partial

import msgspec

from ray_sentinel.actors.agent.cluster_look import ClusterLook
from ray_sentinel.actors.agent.coordinator_link import CoordinatorLink
from ray_sentinel.actors.agent.node_monitor import NodeMonitor
from ray_sentinel.actors.agent.place import ray_metrics_url, this_node
from ray_sentinel.actors.deployment.environment import forget_identity
from ray_sentinel.actors.logs import write_logs
from ray_sentinel.actors.messages import (
    CaptureRequest,
    DumpRequest,
    OutputRequest,
    Outputs,
    pack_masked,
    unpack,
)
from ray_sentinel.actors.orphaned import end_with_raylet
from ray_sentinel.actors.session import session_logs
from ray_sentinel.actors.storage import DeploymentStorage
from ray_sentinel.capture.ras import poll_ranks
from ray_sentinel.config import Config, safe_name
from ray_sentinel.inspection.node import view_node
from ray_sentinel.model.health import NodeView
from ray_sentinel.model.identity import Rank
from ray_sentinel.private_files import be_private

log = logging.getLogger(__name__)


class NodeAgent:
    """Behind ``agent.Agent``, whose methods say what each answer is."""

    def __init__(self, config: bytes) -> None:
        be_private()
        forget_identity()
        settings = msgspec.json.decode(config, type=Config)
        node = this_node()
        storage = DeploymentStorage(settings)
        logs = storage.folder("logs")
        written = write_logs(logs / safe_name(node.host) if logs else None, "agent")
        self._station = NodeMonitor(
            node,
            settings,
            storage,
            CoordinatorLink().send,
            partial(ray_metrics_url, node.id),
            lambda: written.problem,
        )
        self._cluster = ClusterLook(self._station.runner.set_cluster) if node.is_head else None
        self._station.start()
        self._orphaned = end_with_raylet(self.close)
        log.info("agent started on %s (%s), pid %d", node.host, node.id, os.getpid())

    def ping(self) -> int:
        """The process id: proof of life."""
        return os.getpid()

    def sample(self, ranks: bytes) -> bytes:
        """One round of harmless stacks of some ranks: ``Sampled``."""
        wanted = unpack(ranks, tuple[Rank, ...])
        return pack_masked(self._station.evidence.sample(wanted))

    def flight_recorder(self, request: bytes) -> bytes:
        """The flight recorders of some ranks, a ``DumpRequest``: ``Dumps``."""
        wanted = unpack(request, DumpRequest)
        return pack_masked(self._station.evidence.dumps.gather(wanted))

    def rank_output(self, request: bytes) -> bytes:
        """What some ranks wrote last, an ``OutputRequest``: ``Outputs``."""
        wanted = unpack(request, OutputRequest)
        found = self._station.evidence.outputs.gather(wanted.ranks, wanted.most_bytes)
        return pack_masked(Outputs(found=found))

    def nccl_ras(self, ranks: bytes) -> bytes:
        """What NCCL's RAS service says, asked from here for some ranks: ``RasPolls``."""
        wanted = unpack(ranks, tuple[Rank, ...])
        setting = self._station.config.nccl_ras.poll
        return pack_masked(poll_ranks(wanted, setting))

    def capture(self, request: bytes) -> bytes:
        """All tools against some ranks, a ``CaptureRequest``: ``Captured``."""
        wanted = unpack(request, CaptureRequest)
        return pack_masked(self._station.evidence.capture(wanted))

    def inspect(self) -> bytes:
        """This node looked at now: a ``NodeView``."""
        return pack_masked(self._view())

    def _view(self) -> NodeView:
        node = self._station.node
        return view_node(
            host=node.host, node_id=node.id, address=node.address, session=session_logs()
        )

    def install_plugin(self, name: str, data: bytes) -> str:
        """Put a collector's file on this node; where it lies. Raises InputError."""
        return str(self._station.runner.install_plugin(name, data))

    def close(self) -> list[str]:
        """End what was started here; returns what could not be ended."""
        if self._cluster is not None:
            self._cluster.close()
        return self._station.close()
