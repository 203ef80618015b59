"""The environment of a process as it is now, read from its memory.

``/proc/<pid>/environ`` shows what a process started with. What it puts into ``os.environ`` later is
only in its memory: Ray Train and many jobs on plain actors set ``RANK`` there. The C library keeps
the present environment behind its symbol ``environ`` (POSIX ``environ(7)``), and CPython's
``os.environ`` writes through to it.

Nothing is stopped, attached or written, and a process that hangs with its memory locked is not
waited for. The kernel allows it to processes that may trace this one (``man 2 ptrace``,
PTRACE_MODE_ATTACH); if it refuses, the result is None.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path

from ray_sentinel import regex as re
from ray_sentinel.bounded import Bounded
from ray_sentinel.progress.discovery.environment import launch_variables
from ray_sentinel.progress.proc.process_memory import MOST_HANGING, PATIENCE

MAX_VARIABLES = 4096
"""Most pointers that are followed: an array that is being changed may have no end."""
MAX_VARIABLE = 4096
"""Most bytes that are read of one variable: a rank's are short."""
MAX_LIBRARIES = 64
"""Most C libraries whose symbols are remembered: containers have their own."""

_LIBC = re.compile(r"/(libc\.so\.6|libc-2\.\d+\.so|ld-musl-[^/]+\.so\.1|libc\.musl-[^/]+\.so\.1)$")
_NAMES = frozenset({b"environ", b"__environ", b"_environ"})
_DYNSYM = 11
"""``SHT_DYNSYM`` of elf(5)."""
_SECTION = struct.Struct("<IIQQQQIIQQ")
"""Elf64_Shdr of elf(5); index 1 is its type, 4 its offset, 5 its size, 6 its link."""
_SYMBOL = struct.Struct("<IBBHQQ")
"""Elf64_Sym of elf(5): name, info, other, section, value, size."""
_POINTER = struct.Struct("<Q")


class LiveEnviron:
    """Reads environments; remembers where each C library keeps them."""

    def __init__(self, proc: Path = Path("/proc"), *, patience: float = PATIENCE) -> None:
        self._proc = proc
        self._bounded: Bounded[int, dict[str, str] | None] = Bounded(patience, MOST_HANGING)
        self._symbols: dict[tuple[int, int], int | None] = {}

    def read(self, pid: int) -> dict[str, str] | None:
        """The launcher's variables in the current environment of ``pid``; None if the kernel
        refuses.

        The environment may change while it is read: a torn variable is left out. None also if the
        process hangs, and its reader with it.
        """
        return self._bounded.run({pid: lambda: self._read(pid)})[0].get(pid)

    def _read(self, pid: int) -> dict[str, str] | None:
        try:
            place = self._place(pid)
            if place is None:
                return None
            memory = os.open(self._proc / str(pid) / "mem", os.O_RDONLY | os.O_CLOEXEC)
        except (OSError, ValueError, struct.error):
            return None
        try:
            return _variables(memory, place)
        except (OSError, struct.error, OverflowError):
            return None
        finally:
            os.close(memory)

    def _place(self, pid: int) -> int | None:
        """The address of ``environ`` in the process."""
        folder = self._proc / str(pid)
        for line in (folder / "maps").read_text(errors="replace").splitlines():
            fields = line.split(None, 5)
            if len(fields) < 6 or not _LIBC.search(fields[5]) or int(fields[2], 16) != 0:
                continue
            base = int(fields[0].partition("-")[0], 16)
            # Through root/, because the process may have another file system.
            offset = self._symbol(folder / "root" / fields[5].lstrip("/"))
            return None if offset is None else base + offset
        return None

    def _symbol(self, library: Path) -> int | None:
        status = library.stat()
        key = (status.st_dev, status.st_ino)
        if key not in self._symbols:
            if len(self._symbols) >= MAX_LIBRARIES:
                self._symbols.clear()
            with (
                open(library, "rb") as file,
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
            ):
                self._symbols[key] = find_symbol(data)
        return self._symbols[key]


def find_symbol(data: bytes | mmap.mmap) -> int | None:
    """The value of ``environ`` in the dynamic symbols of a 64-bit little-endian ELF file.

    None if it has none, or is another kind of file. Raises struct.error if it is truncated.
    """
    if data[:6] != b"\x7fELF\x02\x01":
        return None
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    sections = [_SECTION.unpack_from(data, table + index * size) for index in range(count)]
    # The ELF specification allows one such section; a thousand could be the same large one.
    section = next((section for section in sections if section[1] == _DYNSYM), None)
    if section is None or section[6] >= len(sections):
        return None
    names = sections[section[6]][4]
    for offset in range(section[4], section[4] + section[5], _SYMBOL.size):
        name, _, _, _, value, _ = _SYMBOL.unpack_from(data, offset)
        text = data[names + name : names + name + 10]
        if text.partition(b"\0")[0] in _NAMES:
            return int(value)
    return None


def _variables(memory: int, place: int) -> dict[str, str]:
    (array,) = _POINTER.unpack(os.pread(memory, 8, place))
    whole: list[bytes] = []
    for index in range(MAX_VARIABLES):
        (pointer,) = _POINTER.unpack(os.pread(memory, 8, array + index * 8))
        if not pointer:
            break
        data, end, _ = os.pread(memory, MAX_VARIABLE, pointer).partition(b"\0")
        if end:
            whole.append(data)
    return launch_variables(b"\0".join(whole))
