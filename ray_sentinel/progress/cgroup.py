"""A process's control groups, and whether they are frozen (container pause, ``scontrol suspend``).

Version 1 keeps ``freezer.state`` in the freezer hierarchy, version 2 ``cgroup.events`` with a line
``frozen 1`` (``Documentation/admin-guide/cgroup-v2.rst``). Inside a container the group's path may
not be visible; then the kernel function that the tasks wait in still tells.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

FROZEN_IN = frozenset({"__refrigerator", "refrigerator", "do_freezer_trap"})
"""Kernel functions in which frozen tasks wait."""


def parse_cgroup(text: str) -> dict[str, str]:
    """``/proc/<pid>/cgroup``: the group's path by controller; version 2 has the controller ``""``.

    Lines that are not ``id:controllers:path`` are left out.
    """
    found: dict[str, str] = {}
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3 and parts[2].startswith("/"):
            for controller in parts[1].split(","):
                found.setdefault(controller, parts[2])
    return found


def parse_mounts(text: str, controller: str = "freezer") -> dict[str, str]:
    """``/proc/self/mounts``: where the controller's hierarchy is, and version 2's, under ``""``."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        parts = line.split()
        if len(parts) < 4:
            continue
        if parts[2] == "cgroup2":
            found.setdefault("", parts[1])
        elif parts[2] == "cgroup" and controller in parts[3].split(","):
            found.setdefault(controller, parts[1])
    return found


def groups_of(
    pid: int | str, controller: str, proc: Path = Path("/proc"), root: Path = Path("/")
) -> Iterator[Path]:
    """The folders of the process's group and of all above it, in the controller's hierarchy and in
    version 2's, as far as they are to be seen: in a container the top one may be its own."""
    mounts = parse_mounts(_text(proc / "self/mounts") or "", controller)
    groups = parse_cgroup(_text(proc / str(pid) / "cgroup") or "")
    for name, mount in mounts.items():
        top = root / mount.lstrip("/")
        inside = PurePosixPath(groups.get(name, "/").lstrip("/"))
        for folder in (inside, *inside.parents):
            if ".." not in folder.parts and (top / folder).is_dir():
                yield top / folder


class Freezer:
    """Answers for many processes; the mounts are read once."""

    def __init__(self, proc: Path = Path("/proc"), root: Path = Path("/")) -> None:
        self._proc, self._root = proc, root
        self._mounts = parse_mounts(_text(proc / "self/mounts") or "")

    def is_frozen(self, pid: int, wchan: str = "") -> bool:
        """Whether the process is frozen now; False where nothing can be read."""
        if wchan in FROZEN_IN:
            return True
        text = _text(self._proc / str(pid) / "cgroup")
        groups = parse_cgroup(text) if text is not None else {}
        for controller, file, word in (
            ("freezer", "freezer.state", "FROZEN"),
            ("", "cgroup.events", "frozen 1"),
        ):
            mount, group = self._mounts.get(controller), groups.get(controller)
            if mount is None or group is None or ".." in group.split("/"):
                continue
            state = _text(self._root / mount.lstrip("/") / group.lstrip("/") / file)
            if state is not None and word in state.splitlines():
                return True
        return False


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return None
