"""Memory of the agent's own cgroup, v1, v2 and both at once.

Sources: ``man 7 cgroups``, and cgroup-v2.rst and cgroup-v1/memory.rst of the kernel's manual.
Where a cgroup's files lie follows from two tables: ``/proc/self/cgroup`` gives the path inside a
hierarchy, ``/proc/self/mountinfo`` gives where that hierarchy is mounted and which of its
directories is the root of the mount. In a container with a cgroup namespace both are ``/``; without
one, both may be ``/docker/<id>``; on a host only the first is long.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import msgspec

from ray_sentinel.api import Metric, Sample
from ray_sentinel.kernel_files import Mount, parse_cgroup, parse_mountinfo
from ray_sentinel_plugins._files import Files, counter
from ray_sentinel_plugins._host.kernel import parse_values

USED = Metric(
    "hw_cgroup_mem_used_bytes",
    "gauge",
    "Memory of the agent's cgroup, or of the nearest above it that has a limit.",
)
LIMIT = Metric("hw_cgroup_mem_limit_bytes", "gauge", "Its limit; absent where there is none.")
OOM_KILLS = Metric(
    "hw_cgroup_oom_kills_total", "counter", "Processes of the agent's cgroup killed for memory."
)
KILLS = {"oom_kill": OOM_KILLS}
METRICS = (USED, LIMIT, OOM_KILLS)

V1_LIMIT, V2_LIMIT = "memory.limit_in_bytes", "memory.max"
UNLIMITED = 1 << 62
"""Bytes from which on a limit counts as none: v1 writes "no limit" as the largest multiple of the
page size below 2^63."""


class Cgroup(msgspec.Struct, frozen=True):
    """A cgroup's folder, and that of the highest one that is seen from here."""

    folder: Path
    top: Path


def read(files: Files, proc: Path, sys: Path) -> Iterator[Sample]:
    """All samples of this subject; none if the agent's cgroup cannot be found."""
    membership = files.text(proc / "self/cgroup")
    if not membership:
        # A captured tree may lack it. The root of all cgroups has no such file in v2: where it is,
        # the tree is a container's view, whose top is its own.
        if not files.live and files.is_file(sys / "fs/cgroup/memory.current"):
            yield from _read_v2(files, sys / "fs/cgroup")
        return
    groups = parse_cgroup(membership)
    v1, v2 = groups.get("memory"), groups.get("")
    if v1 is None and v2 is None:
        files.complain(proc / "self/cgroup", "names no cgroup that counts memory")
    mounts = parse_mountinfo(files.text(proc / "self/mountinfo") or "")
    unified = sys / "fs/cgroup"
    if v2 is not None and not files.is_file(unified / "cgroup.controllers"):
        unified /= "unified"
    # With both hierarchies in use the memory controller is in one of them: v1 if it is named there.
    for path, mounted, fallback, limit, read_group in (
        (v1, _mounted(mounts, "cgroup", "memory"), sys / "fs/cgroup/memory", V1_LIMIT, _read_v1),
        (v2, _mounted(mounts, "cgroup2", ""), unified, V2_LIMIT, _read_v2),
    ):
        for folder in _folders(files, path, mounted, fallback, sys) if path is not None else ():
            samples = list(read_group(files, _bounded(files, folder, limit)))
            if samples:
                yield from samples
                return


def _bounded(files: Files, own: Cgroup, limit: str) -> Path:
    """The cgroup that bounds the agent's memory: its own or the nearest above it that has a limit;
    its own where none has.

    Slurm limits a job and its steps, and the tasks in them, of which the agent is one, not
    themselves. What counts against a limit is what all that is below it uses.
    """
    if not files.is_folder(own.folder):
        return own.folder
    for folder in (own.folder, *own.folder.parents):
        if folder != own.top and own.top not in folder.parents:
            break
        line = files.line(folder / limit)
        number = counter(line) if line is not None else None
        if number is not None and number < UNLIMITED:
            return folder
    return own.folder


def _read_v1(files: Files, folder: Path) -> Iterator[Sample]:
    yield from files.counted(folder / "memory.usage_in_bytes", USED)
    limit = files.count(folder / V1_LIMIT)
    if limit is not None and limit < UNLIMITED:
        yield LIMIT(limit)
    yield from files.samples(folder / "memory.oom_control", parse_values, KILLS)


def _read_v2(files: Files, folder: Path) -> Iterator[Sample]:
    yield from files.counted(folder / "memory.current", USED)
    line = files.line(folder / V2_LIMIT)
    if line is not None and line != "max":
        limit = counter(line)
        if limit is None:
            files.complain(folder / V2_LIMIT, "is neither a number nor max")
        else:
            yield LIMIT(limit)
    yield from files.samples(folder / "memory.events", parse_values, KILLS)


def _mounted(mounts: list[Mount], kind: str, controller: str) -> list[Mount]:
    return [
        mount
        for mount in mounts
        if mount.kind == kind and (not controller or controller in mount.options)
    ]


def _folders(
    files: Files, path: str, mounts: list[Mount], fallback: Path, sys: Path
) -> Iterator[Cgroup]:
    for mount in mounts:
        inside = below(path, mount.root)
        if inside is not None and mount.point.startswith("/sys/"):
            top = sys / mount.point.removeprefix("/sys/")
            yield Cgroup(top / inside, top)
    if not mounts and (inside := below(path, "/")) is not None:
        # A tree without mountinfo: a path that is not there lies above the root of the mount.
        own = fallback / inside if files.is_folder(fallback / inside) else fallback
        yield Cgroup(own, fallback)


def below(path: str, root: str) -> str | None:
    """``path`` as seen from ``root``, or None if it lies outside.

    A cgroup outside the namespace shows as ``/../other``: it has no place below any mount.

    >>> below("/docker/f00/job", "/docker/f00"), below("/../x", "/"), below("/a", "/b")
    ('job', None, None)
    """
    if ".." in PurePosixPath(path).parts:
        return None
    try:
        return str(PurePosixPath(path).relative_to(root))
    except ValueError:
        return None
