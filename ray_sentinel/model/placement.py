"""Why something is not placed in a Ray cluster: who holds the missing resources."""

from __future__ import annotations

from typing import Literal

import msgspec

HolderKind = Literal["actor", "task", "placement group"]
NO_AUTOSCALER = "no autoscaler adds nodes"


class ResourceHolder(msgspec.Struct, frozen=True, kw_only=True):
    """An actor, a task or a placed group, or several of a kind, with the resources that nodes gave
    them."""

    kind: HolderKind
    name: str
    """An actor's name or class, a task's function, or a group's name or id."""
    job: str
    """The job's name for people, such as "train_rl-1"."""
    count: int = 1
    """How many of one job have this name."""
    holds: dict[str, float]
    """What all of them hold together."""
    group: str = ""
    """The id of the placed group from which it holds them; empty if it holds them from nodes."""
    bundle: int | None = None
    """The number of the group's bundle, where it requested one."""
    orphan: str = ""
    """Why nobody will end it, such as "detached, and its job is over"; empty where somebody may."""


class PlacedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A placement group that has been placed on nodes."""

    id: str
    name: str = ""
    bundles: tuple[dict[str, float], ...] = ()


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """The control store's answer about what has long been waiting for placement."""

    total_on: dict[str, dict[str, float]] = {}
    """The resources that a node has, used or not, by node id."""
    holders: tuple[ResourceHolder, ...] = ()
    """Who holds resources: orphans first, then those that hold most."""
    in_groups: tuple[ResourceHolder, ...] = ()
    """Who holds the resources of the placed groups in which something waits for room."""
    short_of_memory: tuple[str, ...] = ()
    """The ids of nodes that have room for a call, but none in their object store for its arguments.
    """
    labels_on: dict[str, dict[str, str]] = {}
    """The labels of each node that something requests, by node id."""
    autoscaler: str = ""
    """Why no node is added, such as "no autoscaler adds nodes"; empty where that is not known."""
    beyond: tuple[tuple[dict[str, float], ...], ...] = ()
    """The bundles of each request that no node which the autoscaler may add could hold."""
