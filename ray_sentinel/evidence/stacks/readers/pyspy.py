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

from functools import lru_cache

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.evidence.stacks.readers import text as tx
from ray_sentinel.evidence.stacks.readers.problems import explain_output
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.stacks import Frame, StackTrace, ThreadStack

_HEADER = re.compile(
    # Frames are indented and end with their place in parentheses: no frame looks like this.
    r"^[ \t]{0,7}Process (?P<pid>\d+): ?(?P<command>.*)$"
    # People who post a dump blank out the id, and drop a colon.
    r"|^(?P<indent>[ \t]*)Thread"
    r"(?: (?P<ident>0x[0-9A-Fa-f]+(?:\.\.\.|…)?|\d+|<\w+>)(?: \((?P<status>[^()\"\n]*)\))?"
    r"| \((?P<bare>(?:active|idle)[^()\"\n]*)\))"
    r"(?:(?:: \"?| \")(?P<name>.*?)\"?)?:?$",
    re.MULTILINE,
)
_VERSION = re.compile(r"^[ \t]*Python v\d", re.MULTILINE)
_ADDRESS = re.compile(r"^([ \t]+)0x[0-9A-Fa-f]+(?= \()", re.MULTILINE)
_PLACE_FIRST = re.compile(r"^(\S+?):(\d+) (\S.*)$")
# Where the output of another tool begins.
_OTHER_TOOL = re.compile(r"#\d+ |\[<[0-9a-f]+>\] |\((?:cuda-)?gdb\)|\$ ")
# What people write behind a frame that they post: "<- stuck here".
_REMARK = re.compile(r"(?<=\))\s+(?:<-|←|#|//).*")

_KEPT = 16_384
"""Most characters of a thread's text whose frames are remembered; a longer text is read each
time."""


def looks_like(text: str) -> bool:
    """Whether ``text`` contains py-spy's text."""
    if _VERSION.search(text):
        return True
    headers = _HEADER.finditer(text)
    return any(found["pid"] or _status(_state_of(found)) is not None for found in headers)


def parse(text: str, process: ProcessId, at: float = 0.0) -> tuple[StackTrace, ...]:
    """One trace for each process named in ``text`` (py-spy prints several with ``--subprocesses``).

    A pid in the text overrides ``process.pid`` only if that is 0 or the text has several.
    """
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    # The addresses of code without a name differ between processes and mean nothing.
    text = _ADDRESS.sub(r"\1??", text)
    parts = _sections(text)
    # Each part begins at its first header, the first one at the text's front.
    starts = [0, *(headers[0].start() for headers in parts[1:]), len(text)]
    found = [
        _section(text, headers, process, at, slice(start, end))
        for headers, start, end in zip(parts, starts[:-1], starts[1:], strict=True)
    ]
    if len(found) > 1:
        return tuple(found)
    only = found[0]
    if process.pid:
        only = msgspec.structs.replace(only, process=process, threads=_main_of(only, process.pid))
    return (only,)


def _sections(text: str) -> list[list[re.Match[str]]]:
    """The headers of each process; of an unnamed one where the text begins in the middle."""
    parts: list[list[re.Match[str]]] = [[]]
    for header in _HEADER.finditer(text):
        if header["pid"] and any(known["pid"] for known in parts[-1]):
            parts.append([])
        parts[-1].append(header)
    return parts


def _section(
    text: str, headers: list[re.Match[str]], process: ProcessId, at: float, own: slice
) -> StackTrace:
    """The trace of one process, described by ``text[own]``."""
    pid, command = process.pid, ""
    threads: list[ThreadStack] = []
    for index, header in enumerate(headers):
        if header["pid"]:
            pid, command = tx.number(header["pid"]), header["command"][: tx.MAX_LINE]
            continue
        # The last thread of one process ends where the next process begins.
        end = headers[index + 1].start() if index + 1 < len(headers) else own.stop
        threads.append(_thread(header, text[header.end() : end]))
    native = any(frame.native for thread in threads for frame in thread.frames)
    trace = StackTrace(
        process=ProcessId(process.host, pid, process.start if pid == process.pid else 0),
        tool="py-spy-native" if native else "py-spy",
        at=at,
        threads=tuple(threads),
        error=_error(threads, text[own]),
        command=command,
    )
    return msgspec.structs.replace(trace, threads=_main_of(trace, pid))


def _error(threads: list[ThreadStack], text: str) -> str:
    if any(thread.frames for thread in threads):
        empty = sum(1 for thread in threads if not thread.frames)
        return f"{empty} of {len(threads)} threads have no frames" if empty else ""
    if threads:
        return f"{len(threads)} threads, but not one frame that can be read: is the file cut off?"
    lines = tx.lines(text[:20_000])
    strange = [line for line in lines if line and not _HEADER.match(line)]
    return explain_output("py-spy", "\n".join(strange) or text)


def _thread(header: re.Match[str], body: str) -> ThreadStack:
    ident, status, name = header["ident"] or "", _state_of(header), header["name"] or ""
    active = _status(status)
    if active and ident.startswith(("0x", "0X")):
        # Without the kernel's thread id py-spy cannot ask for the state, and says "active".
        active = None
    return ThreadStack(
        tid=None if ident.startswith(("0x", "0X")) else tx.number(ident) or None,
        name=name,
        frames=_frames(body.rstrip(), len(header["indent"])),
        main=name == "MainThread",
        active=active,
        # py-spy says "+gil" of active threads only: an idle one may still hold it.
        holds_gil=True if "+gil" in status else (False if active else None),
    )


def without_threads(text: str) -> str:
    """``text`` without the lines that begin py-spy's threads; those of other tools look alike."""
    return _HEADER.sub(lambda found: found[0] if _status(_state_of(found)) is None else "", text)


def _state_of(header: re.Match[str]) -> str:
    """What the header says about the thread's state, with or without an id before it."""
    return header["status"] or header["bare"] or ""


def _status(status: str) -> bool | None:
    if status.startswith("active"):
        return True
    return False if status.startswith("idle") else None


def _frames(body: str, base: int) -> tuple[Frame, ...]:
    """The frames of one thread; equal blocks, as ranks of one job have them, are read once."""
    return _kept_frames(body, base) if len(body) <= _KEPT else _read_frames(body, base)


def _read_frames(body: str, base: int) -> tuple[Frame, ...]:
    found = []
    for line in tx.lines(body):
        stripped = line.lstrip()
        if _OTHER_TOOL.match(stripped):
            break
        # Arguments and local variables stand four columns further in.
        if not stripped or len(line) - len(stripped) >= base + 8:
            continue
        if frame := read_frame(stripped):
            found.append(frame)
    return tx.shared(found)


_kept_frames = lru_cache(maxsize=4_096)(_read_frames)


def read_frame(line: str) -> Frame | None:
    """A frame from ``function (file:line)``, ``function (object)`` or ``file:line function``."""
    line = _REMARK.sub("", line)
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
    return tx.mark_main(threads, chosen)


def runs_module(frames: tuple[Frame, ...]) -> bool:
    """Whether the outermost Python frame is a module's body, which only the main thread has."""
    outermost = next((frame for frame in reversed(frames) if not frame.native), None)
    return outermost is not None and outermost.function == "<module>"


def as_text(trace: StackTrace) -> str:
    """All threads of one process in py-spy's layout, frames innermost first: what people read in a
    bundle, and ``parse`` reads back.

    One thing is added to py-spy's own text: ``(idle+gil)`` for a thread that holds the GIL while it
    is idle, which py-spy says in its JSON only.
    """
    lines = [f"Process {trace.process.pid}: {trace.command}".rstrip()]
    if trace.rank is not None:
        lines.insert(0, f"# rank: {trace.rank.rank}")
    if trace.error:
        lines.insert(0, f"# {trace.error}")
    for thread in trace.threads:
        lines += ["", _thread_line(thread)]
        for frame in thread.frames:
            where = f"{frame.file}:{frame.line}" if frame.line else frame.file
            lines.append(f"    {frame.function} ({where})")
    return "\n".join(line.replace("\n", " ").replace("\r", " ") for line in lines) + "\n"


def _thread_line(thread: ThreadStack) -> str:
    ident = str(thread.tid) if thread.tid else "0x0"
    status = {True: "active", False: "idle", None: ""}[thread.active]
    if thread.holds_gil:
        status = f"{status or 'active'}+gil"
    name = "MainThread" if thread.main and not thread.name else thread.name
    return f"Thread {ident}" + (f" ({status})" if status else "") + (f': "{name}"' if name else "")
