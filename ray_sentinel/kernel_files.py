"""The small files of ``/proc`` and ``/sys``, which come and go and are not all ours to read."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ray_sentinel import regex as re


def kernel_text(path: Path) -> str:
    """The text of such a file, without white space around it; empty if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def kernel_number(path: Path) -> int | None:
    """The number that such a file holds; None if it holds none, or more, or is unreadable."""
    text = kernel_text(path)
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 40 else None


def parse_environ(data: bytes, errors: str = "surrogateescape") -> dict[str, str]:
    """The variables in a ``/proc/<pid>/environ``: NUL-separated, see ``man 5 proc``.

    Of two with one name the first counts, as for getenv(3) and ``os.environ``, and what has no
    name or no ``=`` is none. ``errors`` says how bytes that are not UTF-8 are handled.

    >>> parse_environ(b"RANK=1\\0RANK=2\\0no equals\\0A=b=c\\0")
    {'RANK': '1', 'A': 'b=c'}
    """
    found: dict[str, str] = {}
    for item in data.split(b"\0"):
        name, separator, value = item.partition(b"=")
        if name and separator:
            found.setdefault(name.decode("utf-8", errors), value.decode("utf-8", errors))
    return found


class Mount(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a line of mountinfo that matter here."""

    root: str
    """The directory of the file system that is mounted."""
    point: str
    """Where it is mounted, as a path."""
    kind: str
    """The type of the file system, such as "ext4"."""
    options: frozenset[str]
    """The options of the file system; those of control groups (v1) name controllers."""
    device: str
    """Major and minor number, as ``8:1``."""


def parse_mountinfo(text: str) -> list[Mount]:
    """``/proc/<pid>/mountinfo`` (``man 5 proc_pid_mountinfo``): optional fields end at a ``-``."""
    mounts = []
    for line in text.splitlines():
        before, dash, after = line.partition(" - ")
        left, right = before.split(" "), after.split(" ")
        if dash and len(left) >= 6 and len(right) >= 2:
            mounts.append(
                Mount(
                    root=_unescaped(left[3]),
                    point=_unescaped(left[4]),
                    kind=right[0],
                    options=frozenset(",".join(right[2:3]).split(",")),
                    device=left[2],
                )
            )
    return mounts


def _unescaped(field: str) -> str:
    """Blank, tab, newline and backslash are written as octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found.group(1), 8) & 0xFF), field)


def parse_cgroup(text: str) -> dict[str, str]:
    """``/proc/<pid>/cgroup``: the group's path by controller; version 2 has the controller ``""``.

    Lines that are not ``id:controllers:path`` are left out.
    """
    found: dict[str, str] = {}
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3 and parts[2].startswith("/"):
            for controller in parts[1].split(","):
                found.setdefault(controller, parts[2].removesuffix(" (deleted)"))
    return found


def boot_id(proc: Path = Path("/proc")) -> str:
    """One per boot of a machine: equal for all processes on it. Empty if it cannot be read."""
    return kernel_text(proc / "sys/kernel/random/boot_id")


def yama_scope(proc: Path = Path("/proc")) -> int | None:
    """``kernel.yama.ptrace_scope``: who may trace whom, 0 as ever, 1 ancestors, 2 administrators,
    3 nobody. None if there is no Yama."""
    return kernel_number(proc / "sys/kernel/yama/ptrace_scope")
