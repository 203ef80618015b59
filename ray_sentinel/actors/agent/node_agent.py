"""What an agent does when it is asked; what it does by itself is its ``NodeMonitor``'s."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import ray
from ray.exceptions import GetTimeoutError, RayError

from ray_sentinel.actors.agent.node_monitor import NodeMonitor
from ray_sentinel.actors.coordinator.control_store import ControlStore, unanswered
from ray_sentinel.actors.deployment.environment import forget_identity
from ray_sentinel.actors.error_text import last_line
from ray_sentinel.actors.hosts import as_node, ray_nodes
from ray_sentinel.actors.logs import write_logs
from ray_sentinel.actors.loops import Loop
from ray_sentinel.actors.messages import (
    AgentReport,
    CaptureRequest,
    DumpRequest,
    OutputRequest,
    Outputs,
    Receipt,
    pack_masked,
    unpack,
)
from ray_sentinel.actors.names import COORDINATOR, NAMESPACE
from ray_sentinel.actors.orphaned import end_with_raylet
from ray_sentinel.actors.session import session_logs
from ray_sentinel.actors.storage import DeploymentStorage
from ray_sentinel.capture.ras import poll_ranks
from ray_sentinel.config import Config, safe_name
from ray_sentinel.inspection.node import view_node
from ray_sentinel.kernel_files import boot_id
from ray_sentinel.model.health import NodeView
from ray_sentinel.model.identity import Node, Rank
from ray_sentinel.model.ray_cluster import RayCluster
from ray_sentinel.private_files import be_private

# Where this process is: its Ray node, and the machine under it.


def this_node(proc: Path = Path("/proc")) -> Node:
    """The Ray node that this actor runs on, with the machine's boot id and PID namespace.

    Raises LookupError if Ray does not list it, which happens while the node dies.
    """
    nodes = ray_nodes(ray.nodes())
    node = nodes.get(ray.get_runtime_context().get_node_id())
    if node is None:
        raise LookupError("Ray does not list this node")
    known = as_node(node, nodes.values())
    return Node(
        id=known.id,
        host=known.host,
        address=known.address,
        is_head=known.is_head,
        boot_id=boot_id(proc),
        pid_namespace=(proc / "self/ns/pid").stat().st_ino,
    )


def ray_metrics_url(node_id: str) -> str:
    """Where a Ray node serves its own metrics; "" where Ray does not tell."""
    for entry in ray.nodes():
        if entry["NodeID"] == node_id and (port := entry.get("MetricsExportPort")):
            return f"http://{entry['NodeManagerAddress']}:{port}/metrics"
    return ""


# The agent's way to the coordinator: by name, so that it outlives the coordinator's death.

ANSWER_SECONDS = 5.0
"""For the coordinator to acknowledge a report; it is sent again after that."""


class CoordinatorLink:
    """One report at a time. Used by one thread."""

    def __init__(self) -> None:
        self._handle: ray.actor.ActorHandle | None = None
        self._silent = False

    def send(self, report: AgentReport) -> Receipt | None:
        """Report, and wait for the receipt; None where there is no coordinator just now."""
        try:
            if self._handle is None:
                self._handle = ray.get_actor(COORDINATOR, namespace=NAMESPACE)
            answer = ray.get(
                self._handle.report.remote(pack_masked(report)), timeout=ANSWER_SECONDS
            )
        except (RayError, ValueError, GetTimeoutError) as error:
            # Restarting, or for good: it is looked up by name again.
            self._handle = None
            if not self._silent:
                log.warning("the coordinator does not answer: %s", last_line(error))
            self._silent = True
            return None
        if self._silent:
            log.info("the coordinator answers again")
        self._silent = False
        return unpack(answer, Receipt)


# The head's agent asks Ray for the whole cluster, for the collectors that want to know: their own
# processes are light because none of them imports ray.

LOOK_SECONDS = 10.0
"""Between two questions: capacities and dead actors change slowly."""


class ClusterLook:
    """Asks now and then, on a thread of its own; ``tell`` is called there."""

    def __init__(self, tell: Callable[[RayCluster], None]) -> None:
        self._tell = tell
        self._store: ControlStore | None = None
        self._loop = Loop(LOOK_SECONDS, self._look, name="ray-sentinel-cluster")

    def close(self) -> None:
        """Ask no more."""
        self._loop.stop()

    def _look(self) -> None:
        try:
            if self._store is None:
                self._store = ControlStore.of_this_process()
            found = self._store.cluster()
        except (RuntimeError, ImportError, AttributeError, TypeError, ValueError) as error:
            self._store, found = None, unanswered(error)
        self._tell(found)


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
