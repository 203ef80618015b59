"""A tree that looks like /proc, built process by process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

HZ = os.sysconf("SC_CLK_TCK")


class ProcTree:
    """Writes the files that the kernel would show."""

    def __init__(self, root: Path, uptime: float = 10_000.0) -> None:
        self.root = root
        root.mkdir(exist_ok=True)
        self.uptime(uptime)

    def uptime(self, seconds: float) -> None:
        """Set how long the machine has been up."""
        (self.root / "uptime").write_text(f"{seconds:.2f} 1.00\n")

    def process(
        self,
        pid: int,
        parent: int = 1,
        *arguments: str,
        environ: Mapping[str, str] | None = None,
        exe: str = "/usr/bin/python3.11",
        command: str = "python3.11",
        start: int | None = None,
        state: str = "S",
        cpu: float = 0.0,
        switches: int = 10,
        delay: float = 0.0,
        wchan: str = "0",
        wait_status: int = 0,
    ) -> Path:
        """Make a process, or change it. ``start`` is in clock ticks since boot."""
        folder = self.root / str(pid)
        (folder / "task").mkdir(parents=True, exist_ok=True)
        start = pid * 10 if start is None else start
        (folder / "stat").write_bytes(
            stat_line(pid, command, state, parent, start, cpu, wait_status=wait_status)
        )
        (folder / "cmdline").write_bytes(b"".join(part.encode() + b"\0" for part in arguments))
        variables = {"PATH": "/bin", **(environ or {})}
        (folder / "environ").write_bytes(
            b"".join(f"{name}={value}\0".encode() for name, value in variables.items())
        )
        link = folder / "exe"
        link.unlink(missing_ok=True)
        link.symlink_to(exe)
        (folder / "io").write_text("rchar: 100\nwchar: 20\nsyscr: 1\nread_bytes: 5\n")
        uid, gid = os.geteuid(), os.getegid()
        ids = f"Uid:\t{uid}\t{uid}\t{uid}\t{uid}\nGid:\t{gid}\t{gid}\t{gid}\t{gid}\n"
        (folder / "status").write_text(f"Name:\tx\nTracerPid:\t0\n{ids}")
        (folder / "cgroup").write_text("0::/\n")
        self.thread(pid, pid, state=state, cpu=cpu, switches=switches, delay=delay, wchan=wchan)
        return folder

    def thread(
        self,
        pid: int,
        tid: int,
        *,
        state: str = "S",
        cpu: float = 0.0,
        switches: int = 10,
        delay: float = 0.0,
        wchan: str = "0",
        comm: str = "python3.11",
    ) -> None:
        """Make a thread of a process, or change it."""
        folder = self.root / str(pid) / "task" / str(tid)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "stat").write_bytes(stat_line(tid, "python3.11", state, 1, tid * 10, cpu))
        (folder / "schedstat").write_text(f"{int(cpu * 1e9)} {int(delay * 1e9)} {switches}\n")
        (folder / "wchan").write_text(wchan)
        (folder / "comm").write_text(comm + "\n")

    def remove(self, pid: int) -> None:
        """The process is gone."""
        folder = self.root / str(pid)
        for path in sorted(folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        folder.rmdir()


def stat_line(
    pid: int,
    command: str,
    state: str,
    parent: int,
    start: int,
    cpu: float = 0.0,
    *,
    threads: int = 1,
    pages: int = 100,
    wait_status: int = 0,
) -> bytes:
    """A line of /proc/<pid>/stat with its 52 fields."""
    fields = ["0"] * 50
    fields[0], fields[1] = state, str(parent)
    fields[11] = str(round(cpu * HZ))
    fields[17], fields[19], fields[21] = str(threads), str(start), str(pages)
    fields[49] = str(wait_status)
    return f"{pid} ({command}) {' '.join(fields)}\n".encode()
