"""A process whose memory lock is held: whoever reads its environment waits in the kernel.

As it is behind a thread that hangs in a driver. Here a reader of ``/proc/<pid>/mem`` waits, with
the lock held, for a page of a file whose file system does not answer; the process itself waits to
map another page; and the kernel lets no further reader past who waits to write.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.support.hanging_disk import HangingDisk
from tests.support.waiting import eventually

PROGRAM = """
import mmap, os, sys
page = mmap.mmap(os.open(sys.argv[1], os.O_RDONLY), mmap.PAGESIZE, prot=mmap.PROT_READ)
place = [line for line in open("/proc/self/maps") if sys.argv[1] in line][0].split("-")[0]
if len(sys.argv) > 2:
    os.setresuid(*[int(sys.argv[2])] * 3)
print(place, flush=True)
sys.stdin.readline()
mmap.mmap(-1, 1 << 24)
sys.stdin.readline()
"""
READER = """
import os, sys
memory, place = os.open(f"/proc/{sys.argv[1]}/mem", os.O_RDONLY), int(sys.argv[2], 16)
os.write(1, b"now\\n")
os.pread(memory, 1, place)
"""


@contextlib.contextmanager
def locked_memory(
    disk: HangingDisk, environ: Mapping[str, str], user: int | None = None
) -> Iterator[subprocess.Popen[str]]:
    """While the block runs, and ``disk`` does not answer. ``user`` is whose process it is, if it is
    not ours."""
    (disk.behind / "page").write_bytes(b"\0" * 4096)
    whose = [] if user is None else [str(user)]
    with contextlib.ExitStack() as ends:
        child = ends.enter_context(
            subprocess.Popen(
                [sys.executable, "-c", PROGRAM, str(disk.path / "page"), *whose],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=dict(environ),
            )
        )
        ends.callback(child.kill)
        assert child.stdin is not None
        assert child.stdout is not None
        place = child.stdout.readline().strip()
        disk.hang()
        reader = ends.enter_context(
            subprocess.Popen(
                [sys.executable, "-c", READER, str(child.pid), place], stdout=subprocess.PIPE
            )
        )
        ends.callback(reader.kill)
        # First of all: who waits for the disk cannot be killed.
        ends.callback(disk.answer)
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"now\n"
        # FUSE waits in either state, by what it was asked for.
        eventually(lambda: _state(reader.pid) in "DS", "the reader waits for the page", 20.0)
        child.stdin.write("\n")
        child.stdin.flush()
        eventually(lambda: _state(child.pid) == "D", "the process waits for its memory lock", 20.0)
        yield child


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def reads_hang(pid: int, name: str = "environ") -> bool:
    """Whether a read of that file does not return: the process is as it should be."""
    try:
        subprocess.run(["cat", f"/proc/{pid}/{name}"], capture_output=True, timeout=0.5)
    except subprocess.TimeoutExpired:
        return True
    return False
