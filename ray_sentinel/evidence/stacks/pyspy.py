"""py-spy's text: ``py-spy dump``, with and without ``--native`` and ``--locals``.

The layout is that of py-spy's ``src/dump.rs``::

    Process 4711: python train.py
    Python v3.11.7 (/usr/bin/python3.11)

    Thread 4711 (active+gil): "MainThread"
        all_reduce (torch/distributed/distributed_c10d.py:3252)
        c10d::Work::wait (libtorch_cpu.so)
            Arguments:
                tensor: <Tensor at 0x7f>

Older versions write the pthread id in hexadecimal instead of the kernel's thread id. Some scripts
print frames as ``path:line function``; both are read.
"""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from ray_sentinel.evidence.stacks import text as tx
from ray_sentinel.evidence.stacks.problems import explain_output
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.stacks import Frame, StackTrace, ThreadStack

_PROCESS = re.compile(r"^\s*Process (\d+): ?(.*)$")
_VERSION = re.compile(r"^\s*Python v\d")
_THREAD = re.compile(r"^(\s*)Thread (0x[0-9A-Fa-f]+|\d+)(?: \(([^()\"]*)\))?(?:: \"?(.*?)\"?)?:?$")
_PLACE_FIRST = re.compile(r"^(\S+?):(\d+) (\S.*)$")


def looks_like(text: str) -> bool:
    """Whether ``text`` begins as py-spy's text does."""
    for line in tx.lines(text[:20_000]):
        if _PROCESS.match(line) or _VERSION.match(line):
            return True
        header = _THREAD.match(line)
        if header and header.group(3) is not None and _status(header.group(3)) is not None:
            return True
    return False


def parse(text: str, process: ProcessId, at: float = 0.0) -> tuple[StackTrace, ...]:
    """One trace a process named in ``text`` (py-spy prints several with ``--subprocesses``).

    A pid in the text stands over ``process.pid`` only where that is 0 or where there are several.
    """
    found = [_section(part, process, at) for part in _sections(text)]
    if len(found) > 1:
        return tuple(found)
    only = found[0]
    if process.pid:
        only = msgspec.structs.replace(only, process=process, threads=_main_of(only, process.pid))
    return (only,)


def _sections(text: str) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    seen = False
    for line in tx.lines(text):
        # A frame can not look like this: it ends with its place in parentheses.
        if _PROCESS.match(line) and not line.startswith("        "):
            if seen:
                parts.append([])
            seen = True
        parts[-1].append(line)
    return parts


def _section(lines: list[str], process: ProcessId, at: float) -> StackTrace:
    threads: list[ThreadStack] = []
    header: re.Match[str] | None = None
    body: list[str] = []
    pid, command, strange = process.pid, "", []
    for line in lines:
        if match := _THREAD.match(line):
            if header:
                threads.append(_thread(header, body))
            header, body = match, []
        elif header:
            body.append(line)
        elif match := _PROCESS.match(line):
            pid, command = tx.number(match.group(1)), match.group(2)
        elif line.strip() and not _VERSION.match(line):
            strange.append(line.strip())
    if header:
        threads.append(_thread(header, body))
    native = any(frame.native for thread in threads for frame in thread.frames)
    trace = StackTrace(
        process=ProcessId(process.host, pid, process.start if pid == process.pid else 0),
        tool="py-spy-native" if native else "py-spy",
        at=at,
        threads=tuple(threads),
        error=_error(threads, lines, strange),
        command=command,
    )
    return msgspec.structs.replace(trace, threads=_main_of(trace, pid))


def _error(threads: list[ThreadStack], lines: list[str], strange: list[str]) -> str:
    if any(thread.frames for thread in threads):
        empty = sum(1 for thread in threads if not thread.frames)
        return f"{empty} of {len(threads)} threads have no frames" if empty else ""
    whole = "\n".join(strange or lines)
    if threads:
        return f"{len(threads)} threads, but not one frame that can be read: is the file cut off?"
    return explain_output("py-spy", whole)


def _thread(header: re.Match[str], body: list[str]) -> ThreadStack:
    ident, status, name = header.group(2), header.group(3) or "", header.group(4) or ""
    base = len(header.group(1))
    active = _status(status)
    if active and ident.startswith(("0x", "0X")):
        # Without the kernel's thread id py-spy cannot ask for the state, and says "active".
        active = None
    return ThreadStack(
        tid=None if ident.startswith(("0x", "0X")) else tx.number(ident),
        name=name,
        frames=_frames("\n".join(body), base),
        main=name == "MainThread",
        active=active,
        # py-spy says "+gil" of active threads only: an idle one may hold it all the same.
        holds_gil=True if "+gil" in status else (False if active else None),
    )


def _status(status: str) -> bool | None:
    if status.startswith("active"):
        return True
    return False if status.startswith("idle") else None


@lru_cache(maxsize=16_384)
def _frames(body: str, base: int) -> tuple[Frame, ...]:
    """The frames of one thread; equal blocks, as ranks of one job have them, are read once."""
    found = []
    for line in body.split("\n"):
        stripped = line.lstrip()
        # Arguments and local variables stand four columns further in.
        if not stripped or len(line) - len(stripped) >= base + 8:
            continue
        if frame := read_frame(stripped):
            found.append(frame)
    return tx.shared(found)


def read_frame(line: str) -> Frame | None:
    """A frame from ``function (file:line)``, ``function (object)`` or ``file:line function``."""
    if line.endswith(")") and (cut := line.rfind(" (")) > 0:
        function, place = line[:cut].rstrip(), line[cut + 2 : -1]
        file, colon, after = place.rpartition(":")
        if colon and after.isascii() and after.isdigit():
            number = tx.number(after)
        else:
            file, number = place, 0
        return tx.frame(function, file, number, tx.is_native(file, number)) if file else None
    if match := _PLACE_FIRST.match(line):
        file, number = match.group(1), tx.number(match.group(2))
        return tx.frame(match.group(3), file, number, tx.is_native(file, number))
    return None


def _main_of(trace: StackTrace, pid: int) -> tuple[ThreadStack, ...]:
    """The threads, with the main one marked where its id or its outermost frame shows it."""
    threads = trace.threads
    if any(thread.main for thread in threads):
        return threads
    chosen = next((i for i, t in enumerate(threads) if pid and t.tid == pid), None)
    if chosen is None:
        chosen = next((i for i, t in enumerate(threads) if runs_module(t.frames)), None)
    return tuple(
        msgspec.structs.replace(thread, main=True) if i == chosen else thread
        for i, thread in enumerate(threads)
    )


def runs_module(frames: tuple[Frame, ...]) -> bool:
    """Whether the outermost Python frame is a module's body, as only the main thread's is."""
    outermost = next((frame for frame in reversed(frames) if not frame.native), None)
    return outermost is not None and outermost.function == "<module>"
