"""A trace as text in py-spy's layout: what people read in a bundle, and ``pyspy`` reads again.

One thing is added to py-spy's own text: ``(idle+gil)`` for a thread that holds the GIL while it is
idle, which py-spy says in its JSON only.
"""

from __future__ import annotations

from ray_sentinel.model.stacks import StackTrace, ThreadStack


def as_text(trace: StackTrace) -> str:
    """All threads of one process, frames innermost first."""
    lines = [f"Process {trace.process.pid}: {trace.command}".rstrip()]
    if trace.rank is not None:
        lines.insert(0, f"# rank: {trace.rank.rank}")
    if trace.error:
        lines.insert(0, f"# {trace.error}")
    for thread in trace.threads:
        lines += ["", _header(thread)]
        for frame in thread.frames:
            where = f"{frame.file}:{frame.line}" if frame.line else frame.file
            lines.append(f"    {frame.function} ({where})")
    return "\n".join(line.replace("\n", " ").replace("\r", " ") for line in lines) + "\n"


def _header(thread: ThreadStack) -> str:
    ident = str(thread.tid) if thread.tid else "0x0"
    status = {True: "active", False: "idle", None: ""}[thread.active]
    if thread.holds_gil:
        status = f"{status or 'active'}+gil"
    name = "MainThread" if thread.main and not thread.name else thread.name
    return f"Thread {ident}" + (f" ({status})" if status else "") + (f': "{name}"' if name else "")
