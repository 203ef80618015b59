"""A short-lived process that talks to Ray on behalf of one that must not: ``up``, a call of the
coordinator, or a survey of the cluster.

Reads its input from stdin and prints one line of JSON: ``{"ok": true, ...}`` or
``{"ok": false, "error": ...}``. Run by ``background.ask_helper``, not by people.
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from ray_sentinel.actors.deployment import cluster, deploy
from ray_sentinel.actors.messages import AgentInfo
from ray_sentinel.config import Config
from ray_sentinel.errors import SentinelError
from ray_sentinel.model.status import Status
from ray_sentinel.progress.proc.process_memory import memory_file

WATCHED_SECONDS = 40.0
"""Seconds to wait for all nodes to be watched before the others are named: on a busy host, Ray
takes long to start an agent."""


def main() -> int:
    """Run one request."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("up", "call", "survey"))
    parser.add_argument("--address", default="")
    parser.add_argument("--method", default="")
    parser.add_argument("--checkpoints", type=Path)
    args = parser.parse_args()
    data = sys.stdin.buffer.read()
    try:
        answer = {"up": _up, "call": _call, "survey": _survey}[args.what](args, data)
    except SentinelError as error:
        answer = {"ok": False, "error": str(error)}
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0 if answer["ok"] else 1


def _up(args: argparse.Namespace, data: bytes) -> dict[str, Any]:
    config = msgspec.json.decode(data, type=Config)
    with cluster.connect(args.address, ship=True) as ray:
        deployed = deploy.ensure(ray, config)
        node_id = ray.get_runtime_context().get_node_id()
        deploy.ask(ray, deployed.coordinator, "recall", node_id)
        left = wait_until_watched(ray, deployed.coordinator, WATCHED_SECONDS).unwatched
        return {
            "ok": True,
            "witness": _witness(ray, deployed.coordinator, node_id),
            "unwatched": [f"{node.host}: {node.reason}" for node in left],
        }


def _witness(ray: Any, coordinator: Any, node_id: str) -> int:
    """The pid of this node's agent; 0 if it cannot be seen from here (another container)."""
    raw = deploy.ask(ray, coordinator, "agents")
    for agent in msgspec.msgpack.decode(raw, type=tuple[AgentInfo, ...]):
        if agent.node_id == node_id:
            title = memory_file(agent.pid, "cmdline") or b""
            return agent.pid if title.startswith(b"ray::Agent") else 0
    return 0


def wait_until_watched(ray: Any, coordinator: Any, seconds: float) -> Status:
    """Poll the status until all nodes are watched, for at most ``seconds``."""
    deadline = time.monotonic() + seconds
    while True:
        raw = deploy.ask(ray, coordinator, "status")
        status = msgspec.msgpack.decode(raw, type=Status)
        if (status.nodes and not status.unwatched) or time.monotonic() > deadline:
            return status
        time.sleep(0.1)


def _call(args: argparse.Namespace, data: bytes) -> dict[str, Any]:
    arguments = json.loads(data or b"[]")
    with cluster.connect(args.address) as ray:
        return _answered(deploy.ask(ray, deploy.find(ray), args.method, *arguments))


def _survey(args: argparse.Namespace, _: bytes) -> dict[str, Any]:
    # Imported here: nothing else that a helper does needs it.
    from ray_sentinel.actors.coordinator.survey import survey

    with cluster.connect(args.address) as ray:
        return _answered(msgspec.msgpack.encode(survey(ray, args.checkpoints)))


def _answered(raw: bytes) -> dict[str, Any]:
    return {"ok": True, "data": base64.b64encode(raw).decode("ascii")}


if __name__ == "__main__":
    sys.exit(main())
