"""The agent's side of Ray: its node, the way to the coordinator, the cluster, its main thread.

Nothing else in ``agent/`` knows Ray: a ``NodeMonitor`` is given what it needs of it.
"""

from __future__ import annotations

import _thread
import logging
import os
import signal
import time
from functools import partial
from types import FrameType

import msgspec
import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError

from ray_sentinel.actors.agent.node_monitor import NodeMonitor
from ray_sentinel.actors.agent.runtime_env import RuntimeEnvAgentAddress
from ray_sentinel.actors.coordinator.ray.cluster_state import ClusterReader
from ray_sentinel.actors.deployment.environment import forget_identity
from ray_sentinel.actors.hosts import as_node, ray_nodes
from ray_sentinel.actors.logs import write_logs
from ray_sentinel.actors.loops import Loop
from ray_sentinel.actors.messages import AgentReport, Receipt, unpack
from ray_sentinel.actors.names import COORDINATOR, NAMESPACE, relay_name
from ray_sentinel.actors.ray_api import last_line
from ray_sentinel.actors.raylets import end_with_raylet
from ray_sentinel.actors.report_deltas import DeltaSender
from ray_sentinel.actors.storage import DeploymentStorage
from ray_sentinel.config import Config, safe_name
from ray_sentinel.kernel_files import boot_id
from ray_sentinel.model.identity import Node
from ray_sentinel.private_files import be_private
from ray_sentinel.progress.rank.own_process import pid_namespace

log = logging.getLogger(__name__)


def started_monitor(config: bytes) -> NodeMonitor:
    """The running monitor of the node on which this actor runs; ``config`` is a ``Config`` in JSON.

    The process ends with the node's raylet. Raises LookupError if Ray does not list the node.
    """
    be_private()
    forget_identity()
    settings = msgspec.json.decode(config, type=Config)
    node = this_node()
    storage = DeploymentStorage(settings)
    logs = storage.folder("logs")
    log_problem = write_logs(logs / safe_name(node.host) if logs else None, "agent")
    monitor = NodeMonitor(
        node,
        settings,
        storage,
        CoordinatorLink().send,
        partial(ray_metrics_url, node.id),
        log_problem=log_problem,
        cluster=ClusterReader(ray.get_runtime_context().gcs_address).read if node.is_head else None,
        runtime_env_agent=partial(runtime_env_agent, node.id),
    )
    monitor.start()
    end_with_raylet(monitor.close)
    log.info("agent started on %s (%s), pid %d", node.host, node.id, os.getpid())
    return monitor


# Where this process is: its Ray node, and the machine under it.


def this_node() -> Node:
    """The Ray node on which this actor runs, with the machine's boot id and PID namespace.

    Raises LookupError if Ray does not list it, which happens while the node dies.
    """
    nodes = ray_nodes(ray.nodes())
    node = nodes.get(ray.get_runtime_context().get_node_id())
    if node is None:
        raise LookupError("Ray does not list this node")
    return msgspec.structs.replace(
        as_node(node, nodes.values()), boot_id=boot_id(), pid_namespace=pid_namespace()
    )


def ray_metrics_url(node_id: str) -> str:
    """Where a Ray node serves its own metrics; "" if Ray does not tell, or it serves none."""
    node = ray_nodes(ray.nodes()).get(node_id)
    if node is None or node.metrics_port <= 0:
        return ""
    return f"http://{node.address}:{node.metrics_port}/metrics"


def runtime_env_agent(node_id: str) -> RuntimeEnvAgentAddress | None:
    """Where a Ray node's own agent says which runtime environments it builds, with the token that
    it wants; None if Ray does not tell."""
    try:
        from ray._private.authentication import http_token_authentication as tokens

        headers = tokens.get_auth_headers_if_auth_enabled({})
    except (ImportError, AttributeError):
        headers = {}  # this version of Ray has no tokens
    node = ray_nodes(ray.nodes()).get(node_id)
    if node is None or not node.environments_port:
        return None
    url = f"http://{node.address}:{node.environments_port}/get_runtime_envs_info"
    return RuntimeEnvAgentAddress(url=url, headers=headers)


# The agent's way to the coordinator: by name, so that it outlives the coordinator's death.

ANSWER_SECONDS = 5.0
"""Seconds that the coordinator has to acknowledge a report; after that it is sent again."""


RELAY_AGAIN_SECONDS = 10.0
"""Seconds for which a relay that did not answer is left alone."""


class CoordinatorLink:
    """Sends one report at a time, by way of a relay if the last receipt names one. Used by one
    thread."""

    def __init__(self) -> None:
        self._handle: ray.actor.ActorHandle | None = None
        self._silent = False
        self._deltas = DeltaSender()
        self._relay: ray.actor.ActorHandle | None = None
        self._relay_node = ""
        self._relay_at = 0.0
        """When a relay may be used again (monotonic)."""

    def send(self, report: AgentReport) -> Receipt | None:
        """Report, and wait for the receipt; None if there is no coordinator just now."""
        urgent = bool(report.snapshot.exits)
        message = self._deltas.message(report)
        try:
            while message:
                answer = self._by_relay(message, urgent=urgent)
                if not answer:
                    if self._handle is None:
                        self._handle = ray.get_actor(COORDINATOR, namespace=NAMESPACE)
                    answer = ray.get(self._handle.report.remote(message), timeout=ANSWER_SECONDS)
                receipt = unpack(answer, Receipt)
                message = self._deltas.answered(receipt)
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
        if receipt.relay != self._relay_node:
            self._relay_node, self._relay, self._relay_at = receipt.relay, None, 0.0
        return receipt

    def _by_relay(self, data: bytes, *, urgent: bool) -> bytes:
        """The receipt; empty if there is no relay, or none that answers. Raises RayTaskError if the
        relay answers and the coordinator does not answer it: to ask the coordinator directly would
        only double its work."""
        if not self._relay_node or time.monotonic() < self._relay_at:
            return b""
        try:
            if self._relay is None:
                self._relay = ray.get_actor(relay_name(self._relay_node), namespace=NAMESPACE)
            answer: bytes = ray.get(self._relay.report.remote(data, urgent), timeout=ANSWER_SECONDS)
        except RayTaskError:
            raise
        except (RayError, ValueError, GetTimeoutError) as error:
            log.warning("the relay does not answer: %s", last_line(error))
            self._relay, self._relay_at = None, time.monotonic() + RELAY_AGAIN_SECONDS
            return b""
        return answer


# The main thread of a Ray worker waits for calls, and every 10 ms looks whether a signal has come
# (``CheckSignals`` of Ray's core worker; a running cluster cannot be told another interval). In an
# otherwise idle actor this is nearly all of its CPU time, 0.6 to 0.8 % of a core on every node.
# Ray's check runs Python's signal handlers, and a handler that sleeps, with the GIL released, is as
# good as a longer interval: calls wait for it, other threads do not.

REST_SECONDS = 0.185
"""Seconds of one rest; a call may have to wait this much longer."""
ROUND_SECONDS = 0.2
"""Seconds from the start of one rest to the next. What remains between rests is longer than Ray's
interval, so that every call is noticed."""
NUMBER = signal.SIGALRM
"""The signal whose handler rests. It is never sent: only the interpreter is told that it came."""


def rest_between_calls() -> Loop:
    """Make the calling thread, which must be the main one, rest from now on, until the loop that is
    returned is stopped.

    Raises ValueError on another thread.
    """
    signal.signal(NUMBER, _Rest())
    return Loop(ROUND_SECONDS, partial(_thread.interrupt_main, NUMBER), name="ray-sentinel-rest")


class _Rest:
    def __init__(self) -> None:
        self._resting = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self._resting:
            return  # the next came early: no rest within a rest
        self._resting = True
        try:
            time.sleep(REST_SECONDS)
        finally:
            self._resting = False
