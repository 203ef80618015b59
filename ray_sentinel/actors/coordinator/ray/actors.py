"""The actors that Ray runs, grouped into possible jobs: for ranks that never attached.

Ray's control store is queried, which needs no dashboard. It is queried rarely if its answers are
large.
"""

from __future__ import annotations

import logging
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.actors.names import NAMESPACE
from ray_sentinel.progress.discovery.ray_workers import RayWorker

log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
"""Least seconds between two questions; ten times that where Ray does not answer."""
MOST_RUNS = 4096
"""Most runs of Ray Train whose attempts are counted: those that were seen last."""
MAX_SHARE = 0.02
"""Largest share of the coordinator's time that is spent on asking."""

TRAIN_WORKERS = frozenset({"RayTrainWorker", "_RayTrainWorker"})

_BUNDLE = re.compile(r"_group_(\d+)_[0-9a-f]{16,}$")
_NUMBER = re.compile(r"(\d+)\D*$")
_WITH_VALUE = frozenset({"-W", "-X"})
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_INTERPRETER = re.compile(r"^(python|pypy)[\d.]*$")


class Actor(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of Ray's table of actors, as far as we use it."""

    id: str
    kind: str
    """The name of its class."""
    job: str
    """Ray's id of the job, in hex."""
    owner: str
    """The address of the process that made it."""
    node: str
    pid: int
    started: float = 0.0
    name: str = ""
    group: str = ""
    """Its placement group's id, in hex; empty if it has none."""
    bundle: int | None = None
    alive: bool = True


class RayActors:
    """Queries Ray from time to time. ``poll`` is called by one thread, ``on`` by any."""

    def __init__(
        self,
        ask: Callable[[bool], tuple[list[Actor], dict[str, str]]] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``ask(everything)`` returns the actors, only those that live unless ``everything``, and
        the jobs' command lines by Ray's job id."""
        self._ask = ask or known_actors
        self._monotonic = monotonic
        self._due = 0.0
        self._attempts = TrainRunAttempts()
        # No earlier coordinator has used such a version.
        self._version = time.time_ns()
        self._by_node: dict[str, tuple[RayWorker, ...]] = {}
        self._asked = False
        self._failed = False

    def poll(self) -> None:
        """Query Ray, if it is time."""
        begun = self._monotonic()
        if begun < self._due:
            return
        try:
            # The first query includes the dead, so that a restarted coordinator counts the attempts
            # as the previous one did.
            actors, entrypoints = self._ask(not self._asked)
        except (RuntimeError, AttributeError, ImportError, ValueError, TypeError) as error:
            # The store is away, or this version of Ray keeps its table elsewhere.
            if not self._failed:
                log.warning("Ray does not tell its actors: %s", error)
            self._failed = True
            self._due = begun + 10 * LOOK_SECONDS
            return
        self._failed, self._asked = False, True
        by_node = workers(actors, entrypoints, self._attempts)
        if by_node != self._by_node:
            self._by_node = by_node
            self._version += 1
        ended = self._monotonic()
        self._due = ended + max(LOOK_SECONDS, (ended - begun) / MAX_SHARE)

    def on(self, node_id: str, version: int) -> tuple[int, tuple[RayWorker, ...] | None]:
        """The newest version and the node's workers; None if ``version`` is the newest."""
        if version == self._version:
            return version, None
        return self._version, self._by_node.get(node_id, ())


class TrainRunAttempts:
    """Counts how often Ray Train started a run's workers: it takes a new placement group each
    time, and one controller owns them all."""

    def __init__(self) -> None:
        self.groups: dict[tuple[str, str, str], list[str]] = {}

    def of(self, actor: Actor) -> int:
        """How often the actor's worker group was started before; 0 for actors that are not
        Train's."""
        if not actor.group or actor.kind not in TRAIN_WORKERS:
            return 0
        key = (actor.job, actor.owner, actor.kind)
        known = self.groups[key] = self.groups.pop(key, [])
        while len(self.groups) > MOST_RUNS:
            del self.groups[next(iter(self.groups))]
        if actor.group not in known:
            known.append(actor.group)
        return known.index(actor.group)


def workers(
    actors: Iterable[Actor], entrypoints: Mapping[str, str], attempts: TrainRunAttempts
) -> dict[str, tuple[RayWorker, ...]]:
    """The actors' processes by node id, grouped by class, owner and attempt."""
    groups: dict[tuple[str, str, str, int], list[Actor]] = defaultdict(list)
    for actor in sorted(actors, key=lambda actor: actor.started):
        if actor.pid and actor.node:
            key = (actor.job, actor.owner, actor.kind, attempts.of(actor))
            if actor.alive:
                groups[key].append(actor)
    found: dict[str, list[RayWorker]] = defaultdict(list)
    for (job, _, kind, attempt), members in groups.items():
        name = f"{job_name(entrypoints.get(job, ''), job)}.{kind}"
        for order, actor in enumerate(in_order(members)):
            found[actor.node].append(
                RayWorker(
                    pid=actor.pid, group=name, attempt=attempt, order=order, size=len(members)
                )
            )
    return {node: tuple(sorted(some, key=lambda w: w.pid)) for node, some in found.items()}


def in_order(actors: list[Actor]) -> list[Actor]:
    """Sorted by bundle, or else by the last number in their names, or else by start: the first of
    these that is different for all of them."""
    by_name = [
        match and int(match[1]) for actor in actors for match in [_NUMBER.search(actor.name)]
    ]
    for keys in ([actor.bundle for actor in actors], by_name):
        if None not in keys and len(set(keys)) == len(actors):
            return [actor for _, actor in sorted(zip(keys, actors, strict=True), key=_first)]
    return sorted(actors, key=lambda actor: (actor.started, actor.id))


def _first(pair: tuple[Any, Actor]) -> Any:
    return pair[0]


def job_name(entrypoint: str, job: str) -> str:
    """The name of a Ray job; ``job`` is Ray's id of it, in hex.

    >>> job_name("python train_rl.py", "02000000")
    'train_rl-2'
    """
    return f"{script(entrypoint)}-{_number(job)}"


def script(entrypoint: str) -> str:
    """The name of a driver: its script without folders and suffix.

    >>> script("/usr/bin/python3.11 -u /data/train_llama.py --lr 3"), script("python -m pkg.train")
    ('train_llama', 'pkg.train')
    >>> script("env HF_TOKEN=... python train.py")
    'train'
    """
    words = entrypoint.split()
    while words and (words[0] == "env" or _VARIABLE.match(words[0])):
        del words[0]
    if not words:
        return "job"
    if not _INTERPRETER.match(os.path.basename(words[0])):
        return os.path.basename(words[0]).removesuffix(".py") or "job"
    index = 1
    while index < len(words) and words[index].startswith("-"):
        if words[index] == "-c":
            return "job"
        index += 2 if words[index] in _WITH_VALUE else 1
    return os.path.basename(words[index]).removesuffix(".py") if index < len(words) else "job"


def _number(job: str) -> int:
    """The number that Ray's job id contains, little-endian (``JobID::FromInt``)."""
    try:
        return int.from_bytes(bytes.fromhex(job), "little")
    except ValueError:
        return 0


def known_actors(everything: bool = False) -> tuple[list[Actor], dict[str, str]]:
    """The actors, from Ray's control store. Raises RuntimeError and the like if it cannot be
    queried."""
    from ray._private import state
    from ray.core.generated import gcs_pb2

    accessor = state.state._connect_and_get_accessor()
    found = []
    for data in accessor.get_actor_table(None, None if everything else "ALIVE"):
        entry = gcs_pb2.ActorTableData.FromString(data)
        if entry.ray_namespace != NAMESPACE:
            found.append(_actor(entry, entry.state == gcs_pb2.ActorTableData.ALIVE))
    entrypoints = {job["JobID"]: job.get("Entrypoint", "") for job in state.jobs()} if found else {}
    return found, entrypoints


def _actor(entry: Any, alive: bool) -> Actor:
    bundles = {
        int(match[1]) for name in entry.required_resources if (match := _BUNDLE.search(name))
    }
    return Actor(
        id=entry.actor_id.hex(),
        kind=entry.class_name,
        job=entry.job_id.hex(),
        owner=f"{entry.owner_address.ip_address}:{entry.owner_address.port}",
        node=entry.address.node_id.hex(),
        pid=entry.pid,
        started=float(entry.start_time),
        name=entry.name,
        group=entry.placement_group_id.hex(),
        bundle=bundles.pop() if len(bundles) == 1 else None,
        alive=alive,
    )
