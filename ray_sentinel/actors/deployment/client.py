"""Asking the coordinator from a training process, with Ray where it is up and without it else."""

from __future__ import annotations

import base64
import json
import sys
from typing import Any, TypeVar

import msgspec

from ray_sentinel.actors.deployment import deploy
from ray_sentinel.actors.deployment.background import ask_helper
from ray_sentinel.errors import UnreachableError

T = TypeVar("T")


def call(address: str, method: str, kind: type[T], *arguments: Any) -> T:
    """Call a coordinator's method, and decode the answer. Raises UnreachableError."""
    ray: Any = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        raw = deploy.ask(ray, deploy.find(ray), method, *arguments)
    else:
        raw = _through_helper(address, method, arguments)
    return msgspec.msgpack.decode(raw, type=kind)


def _through_helper(address: str, method: str, arguments: tuple[Any, ...]) -> bytes:
    answer = ask_helper(["call", "--method", method], address, json.dumps(arguments).encode())
    if not answer.get("ok"):
        raise UnreachableError(str(answer.get("error", "the coordinator does not answer")))
    return base64.b64decode(answer["data"])
