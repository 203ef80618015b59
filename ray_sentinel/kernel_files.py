"""The small files of ``/proc`` and ``/sys``, which come and go and are not all ours to read."""

from __future__ import annotations

from pathlib import Path


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


def boot_id(proc: Path = Path("/proc")) -> str:
    """One per boot of a machine: equal for all processes on it. Empty if it cannot be read."""
    return kernel_text(proc / "sys/kernel/random/boot_id")


def yama_scope(proc: Path = Path("/proc")) -> int | None:
    """``kernel.yama.ptrace_scope``: who may trace whom, 0 as ever, 1 ancestors, 2 administrators,
    3 nobody. None if there is no Yama."""
    return kernel_number(proc / "sys/kernel/yama/ptrace_scope")
