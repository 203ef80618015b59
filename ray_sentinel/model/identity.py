"""Identities of nodes, processes and ranks."""

from __future__ import annotations

import msgspec


class ProcessId(msgspec.Struct, frozen=True, order=True):
    """One process on one host, distinguished from a later one with the same pid.

    ``start`` is field 22 of ``/proc/<pid>/stat``: clock ticks since boot.
    """

    host: str
    pid: int
    start: int = 0


class RankId(msgspec.Struct, frozen=True, order=True):
    """A rank of one attempt of one job. ``attempt`` counts restarts from 0."""

    job: str
    attempt: int
    rank: int


class Rank(msgspec.Struct, frozen=True, kw_only=True):
    """A training process, and where its identity comes from."""

    id: RankId
    process: ProcessId
    node: str
    """Ray's node id, in hex."""
    address: str = ""
    """The node's Ray address; what is shown where several nodes share one host name."""
    local_rank: int | None = None
    world_size: int | None = None
    gpus: tuple[str, ...] = ()
    """The GPUs that the process was given, as in CUDA_VISIBLE_DEVICES: indices or UUIDs."""
    role: str = ""
    """Such as "trainer" or "engine", set where one job has ranks of several kinds."""
    source: str = "environ"
    """How it was found: "record" (it attached), "environ", "ray" or "title"."""
    command: str = ""


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A Ray node as its agent sees it."""

    id: str
    host: str
    """The label on every series: the short host name, or the address where nodes share one."""
    address: str
    boot_id: str = ""
    """The content of ``/proc/sys/kernel/random/boot_id``: equal for agents on one machine."""
    pid_namespace: int = 0
    """Inode of ``/proc/self/ns/pid``; agents with the same boot id and namespace see the same
    processes."""
    is_head: bool = False
