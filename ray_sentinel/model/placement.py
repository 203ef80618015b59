"""Why something is not placed in a Ray cluster: who holds the missing resources."""

from __future__ import annotations

from typing import Literal

import msgspec

HolderKind = Literal["actor", "task", "placement group"]
NO_AUTOSCALER = "no autoscaler adds nodes"


class ResourceHolder(msgspec.Struct, frozen=True, kw_only=True):
    """An actor, a task or a placed group, or several of a kind, with the resources of nodes that
    they were given."""

    kind: HolderKind
    name: str
    """Of an actor its name or class, of a task that of its function, of a group its name or id."""
    job: str
    """As people know it: "train_rl-1"."""
    count: int = 1
    """So many of one job have this name."""
    holds: dict[str, float]
    """All of them together."""
    group: str = ""
    """The id of the placed group of which it holds them; empty of nodes."""
    bundle: int | None = None
    """The number of the group's bundle, where it asked for one."""
    orphan: str = ""
    """Why nobody will end it: "detached, and its job is over"; empty where somebody may."""


class PlacedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A placement group that has been placed on nodes."""

    id: str
    name: str = ""
    bundles: tuple[dict[str, float], ...] = ()


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """The control store's answer about what has not been placed for long."""

    total_on: dict[str, dict[str, float]] = {}
    """By node id: the resources that a node has, used or not."""
    holders: tuple[ResourceHolder, ...] = ()
    """Orphans first, then those that hold most."""
    in_groups: tuple[ResourceHolder, ...] = ()
    """Who holds the resources of the placed groups in which something waits for room."""
    labels_on: dict[str, dict[str, str]] = {}
    """By node id, of each node: those of its labels that something asks for."""
    autoscaler: str = ""
    """Why no node is added: "no autoscaler adds nodes"; empty where that is not known."""
    beyond: tuple[tuple[dict[str, float], ...], ...] = ()
    """The bundles of each thing that is asked for and that no node could hold which the autoscaler
    may add."""
