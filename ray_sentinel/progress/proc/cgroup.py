"""A process's control groups, and whether they are frozen (container pause, ``scontrol suspend``).

Version 1 keeps ``freezer.state`` in the freezer hierarchy, version 2 ``cgroup.events`` with a line
``frozen 1`` (``Documentation/admin-guide/cgroup-v2.rst``). Inside a container the group's path may
not be visible; then the kernel function that the tasks wait in still shows it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from ray_sentinel.kernel_files import kernel_text, parse_cgroup, parse_mountinfo

FROZEN_IN = frozenset({"__refrigerator", "refrigerator", "do_freezer_trap"})
"""Kernel functions in which frozen tasks wait."""
_FROZEN = {"freezer": ("freezer.state", "FROZEN"), "": ("cgroup.events", "frozen 1")}
"""A group's file, and its line where the group is frozen, by controller."""


def cgroup_mounts(mountinfo: str, controller: str = "freezer") -> dict[str, str]:
    """Where the controller's hierarchy is mounted, and version 2's, under ``""``."""
    found: dict[str, str] = {}
    for mount in parse_mountinfo(mountinfo):
        if mount.kind == "cgroup2":
            found.setdefault("", mount.point)
        elif mount.kind == "cgroup" and controller in mount.options:
            found.setdefault(controller, mount.point)
    return found


class ControlGroups:
    """Where the folders of control groups are; the mounts are read once."""

    def __init__(self, controller: str, proc: Path = Path("/proc"), root: Path = Path("/")) -> None:
        self._proc, self._root = proc, root
        self._mounts = cgroup_mounts(kernel_text(proc / "self/mountinfo"), controller)

    def of(self, pid: int | str) -> Iterator[tuple[str, Path, PurePosixPath]]:
        """The folders of its groups in the controller's hierarchy and in version 2's (under
        ``""``): the mount point, and the process's group below it."""
        groups = parse_cgroup(kernel_text(self._proc / str(pid) / "cgroup"))
        for name, mount in self._mounts.items():
            group = PurePosixPath(groups.get(name, "..").lstrip("/"))
            if ".." not in group.parts:
                yield name, self._root / mount.lstrip("/"), group

    def up(self, pid: int | str) -> Iterator[Path]:
        """The folders of its groups and of all groups above them, as far as they are visible: in a
        container the top one may be its own."""
        for _, top, group in self.of(pid):
            yield from filter(Path.is_dir, (top / folder for folder in (group, *group.parents)))


def is_frozen(groups: ControlGroups, pid: int, wchan: str = "") -> bool:
    """Whether the process is frozen now, by the ``groups`` of the freezer; False if nothing can be
    read."""
    if wchan in FROZEN_IN:
        return True
    for controller, top, group in groups.of(pid):
        file, word = _FROZEN[controller]
        if word in kernel_text(top / group / file).splitlines():
            return True
    return False
