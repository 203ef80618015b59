"""Makes sure that the cluster is watched, from many callers at once; and removes everything."""

from __future__ import annotations

import base64
import json
import sys
import time
import uuid
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any, TypeVar

import msgspec

from ray_sentinel.actors.deployment.background import ask_helper
from ray_sentinel.actors.hosts import HEAD_RESOURCE
from ray_sentinel.actors.messages import Description
from ray_sentinel.actors.names import AGENT_PREFIX, COORDINATOR, NAMESPACE, PROTOCOL, RELAY_PREFIX
from ray_sentinel.actors.ray_api import actor_called, last_line, our_actors
from ray_sentinel.config import Config, to_json
from ray_sentinel.errors import SentinelError, UnreachableError
from ray_sentinel.http.access import new_secret

T = TypeVar("T")

START_SECONDS = 60.0
"""Seconds that a coordinator has to be there and to answer for the first time."""
ANSWER_SECONDS = 10.0
"""Seconds for which a call of the coordinator is repeated while it is not there."""
GONE_SECONDS = 30.0
"""Seconds that our actors have to be gone after they were ended."""


class GoneError(UnreachableError):
    """The coordinator has ended, or could not start."""


class Deployed(msgspec.Struct, frozen=True, kw_only=True):
    """The result of ``ensure``."""

    coordinator: Any
    description: Description
    created: bool


def find(ray: Any) -> Any:
    """The coordinator's handle. Raises UnreachableError if this cluster has none."""
    if (handle := actor_called(ray, COORDINATOR)) is not None:
        return handle
    raise UnreachableError(
        "this Ray cluster is not watched: run `ray-sentinel up`, or call ray_sentinel.attach() in "
        "a training"
    )


def ask(ray: Any, handle: Any, method: str, *args: Any, seconds: float = ANSWER_SECONDS) -> Any:
    """Call a coordinator's method and wait; it may be restarting, so the call is repeated for
    ``seconds``.

    Raises UnreachableError if it does not answer in that time.
    """
    from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayActorError, RayTaskError

    deadline = time.monotonic() + seconds
    while True:
        try:
            left = max(0.1, deadline - time.monotonic())
            return ray.get(getattr(handle, method).remote(*args), timeout=left)
        except GetTimeoutError:
            raise UnreachableError(
                f"the coordinator did not answer {method}() within {seconds:.0f} s"
            ) from None
        except ActorUnavailableError as error:
            if time.monotonic() + 0.2 >= deadline:
                raise UnreachableError(f"the coordinator is restarting: {error}") from None
            time.sleep(0.2)
        except RayTaskError as error:
            if isinstance(error.cause, SentinelError):
                raise error.cause from None
            raise
        except RayActorError as error:
            raise GoneError(f"the coordinator is gone: {last_line(error)}") from None


def page_link(ray: Any, handle: Any) -> str:
    """The page's link with its token; empty if there is no page. Raises UnreachableError."""
    return msgspec.msgpack.decode(ask(ray, handle, "page_link"), type=str)


def call(address: str, method: str, kind: type[T], *arguments: Any) -> T:
    """Call a coordinator's method from a training process, and decode the answer: with Ray if it is
    initialised in the process, or else by a helper. Raises UnreachableError."""
    ray: Any = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        raw = ask(ray, find(ray), method, *arguments)
    else:
        asked = json.dumps(arguments).encode()
        raw = through_helper(["call", "--method", method], address, asked)
    return msgspec.msgpack.decode(raw, type=kind)


def through_helper(arguments: list[str], address: str, data: bytes = b"") -> bytes:
    """What a helper with these arguments, and ``data`` as its input, has been answered. Raises
    UnreachableError."""
    answer = ask_helper(arguments, address, data)
    if not answer.get("ok"):
        raise UnreachableError(str(answer.get("error", "the coordinator does not answer")))
    return base64.b64decode(answer["data"])


def ensure(ray: Any, config: Config) -> Deployed:
    """Have exactly one coordinator in this cluster; it takes care of the agents.

    Safe from any number of processes at once: Ray lets one of them make the named actor, and the
    others find it. Raises ConfigError if the rules' settings are wrong, SentinelError when the
    coordinator cannot be started or speaks another protocol.
    """
    # Imported here, because it is a third of what a command imports of ours, and other callers do
    # not need it.
    from ray_sentinel.engine.engine import Engine

    Engine(config)  # raises what the coordinator would, to the caller, who can fix it
    deadline = time.monotonic() + START_SECONDS
    created = False
    while True:
        if (handle := actor_called(ray, COORDINATOR)) is None:
            handle = _create(ray, config)
            created = handle is not None or created
        if handle is not None:
            left = max(1.0, deadline - time.monotonic())
            try:
                raw = ask(ray, handle, "describe", seconds=left)
                break
            except GoneError:
                # It was taken down while we found it; one that we made ourselves cannot start.
                if created or time.monotonic() > deadline:
                    raise
        elif time.monotonic() > deadline:
            raise UnreachableError("the coordinator's name is taken, but nobody answers to it")
        time.sleep(0.1)
    description = msgspec.msgpack.decode(raw, type=Description)
    if description.protocol != PROTOCOL:
        raise SentinelError(
            f"the cluster is watched by ray_sentinel {description.version}, whose protocol is "
            f"{description.protocol} and ours {PROTOCOL}: run `ray-sentinel down` with that "
            "version, or install it here"
        )
    return Deployed(coordinator=handle, description=description, created=created)


def _create(ray: Any, config: Config) -> Any:
    """Create the coordinator; None if somebody else was faster."""
    from ray_sentinel.actors.coordinator.actor import Coordinator

    options: dict[str, Any] = {
        "name": COORDINATOR,
        "namespace": NAMESPACE,
        "lifetime": "detached",
        "num_cpus": 0,
        "max_restarts": -1,
        "max_task_retries": 0,
        # A report a second from each node would fill Ray's table of tasks, which is the job's.
        "enable_task_events": False,
        # Given, so that a placement group around the caller does not capture it.
        "scheduling_strategy": "DEFAULT",
    }
    if HEAD_RESOURCE in ray.cluster_resources():
        options["resources"] = {HEAD_RESOURCE: 0.001}
    try:
        return (
            ray.remote(Coordinator)
            .options(**options)
            # The secret too: Ray makes a killed actor again with the same arguments.
            .remote(to_json(config), new_deployment(), new_secret())
        )
    except ValueError:
        return None


def new_deployment() -> str:
    """A name for the new deployment: a restarted coordinator recovers only its own past."""
    return f"{datetime.now(timezone.utc):%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:6]}"


def down(ray: Any, tell: Callable[[str], None] = lambda _: None) -> list[str]:
    """Remove coordinator, agents, their children and the placement groups.

    Returns what is still there after ``GONE_SECONDS`` (nothing, unless a process hangs in the
    kernel); ``tell`` is called with what is being done.
    """
    from ray_sentinel.actors.deployment import placement

    if (coordinator := actor_called(ray, COORDINATOR)) is None:
        tell("there is no coordinator")
    else:
        # The coordinator ends first, so that it does not bring back what is removed.
        _ask_to_close(ray, {"coordinator": coordinator})
        ray.kill(coordinator, no_restart=True)
        tell("the coordinator has ended")
    deadline = time.monotonic() + GONE_SECONDS
    stuck: list[str] = []
    while True:
        names = our_actors(ray)
        for name in names:
            if name.startswith(RELAY_PREFIX) and (relay := actor_called(ray, name)):
                ray.kill(relay, no_restart=True)
        agents = {name: actor_called(ray, name) for name in names if name.startswith(AGENT_PREFIX)}
        stuck += _ask_to_close(ray, {name: handle for name, handle in agents.items() if handle})
        groups = placement.groups()
        for node_id in {name.removeprefix(AGENT_PREFIX) for name in agents} | groups.keys():
            placement.drop(node_id, groups)
        if COORDINATOR in names and (again := actor_called(ray, COORDINATOR)):
            ray.kill(again, no_restart=True)
        left = _left(ray)
        if not left or time.monotonic() > deadline:
            return [*left, *stuck]
        time.sleep(0.1)


def _left(ray: Any) -> list[str]:
    from ray_sentinel.actors.deployment import placement

    return [
        *(f"actor {name}" for name in our_actors(ray)),
        *(f"placement group of node {key}" for key in placement.groups()),
    ]


def _ask_to_close(ray: Any, handles: dict[str, Any]) -> list[str]:
    """Let actors end their children; returns the children that could not be ended."""
    from ray.exceptions import RayError

    refs = {name: handle.close.remote() for name, handle in handles.items()}
    ray.wait(list(refs.values()), num_returns=len(refs), timeout=5.0) if refs else None
    stuck: list[str] = []
    for ref in refs.values():
        try:
            stuck += ray.get(ref, timeout=0)
        except (RayError, TimeoutError):
            # It died, or never started: its children have gone with it.
            continue
    return stuck
