"""py-spy's JSON: ``py-spy dump --json``, also cut off in the middle.

A list with one object a thread: ``pid``, ``thread_id``, ``thread_name``, ``os_thread_id``,
``active``, ``owns_gil``, ``frames`` (innermost first; ``name``, ``filename``, ``module``,
``short_filename``, ``line``) and ``process_info`` (py-spy's ``src/stack_trace.rs``).
"""

from __future__ import annotations

import json
from typing import Any

from ray_sentinel.evidence.stacks.readers import text as tx
from ray_sentinel.evidence.stacks.readers.problems import explain_output
from ray_sentinel.evidence.stacks.readers.pyspy import runs_module
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.stacks import Frame, StackTrace, ThreadStack


def looks_like(text: str) -> bool:
    """Whether ``text`` begins like the JSON."""
    head = text[:4_000]
    start = head.find("[")
    return start >= 0 and '"frames"' in text and head[start + 1 :].lstrip()[:1] == "{"


def parse(text: str, process: ProcessId, at: float = 0.0) -> tuple[StackTrace, ...]:
    """One trace for each pid in the JSON; ``error`` says what cannot be read."""
    objects, complaint = _objects(text)
    by_pid: dict[int, list[dict[str, Any]]] = {}
    for item in objects:
        by_pid.setdefault(_integer(item.get("pid")), []).append(item)
    if not by_pid:
        error = complaint or explain_output("py-spy", text)
        return (StackTrace(process=process, tool="py-spy", at=at, error=error),)
    alone = len(by_pid) == 1
    return tuple(
        _trace(items, _who(process, pid, alone), at, complaint) for pid, items in by_pid.items()
    )


def _who(process: ProcessId, pid: int, alone: bool) -> ProcessId:
    if pid == process.pid or not pid or (alone and process.pid):
        return process
    return ProcessId(process.host, pid)


def _objects(text: str) -> tuple[list[dict[str, Any]], str]:
    """The objects of the outer list, and what was wrong after the last that could be read."""
    decoder = json.JSONDecoder()
    at = text.find("[")
    if at < 0:
        return [], ""
    found: list[dict[str, Any]] = []
    at += 1
    while True:
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
        if at >= len(text):
            return found, f"the JSON is cut off after {len(found)} threads"
        if text[at] == "]":
            return found, ""
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return found, f"the JSON is cut off or damaged after {len(found)} threads"
        if not isinstance(value, dict):
            return found, f"after {len(found)} threads there is something else than a thread"
        found.append(value)


def _trace(
    items: list[dict[str, Any]], process: ProcessId, at: float, complaint: str
) -> StackTrace:
    threads = tuple(_thread(item, process.pid) for item in reversed(items))
    if not any(thread.main for thread in threads):
        runs = (i for i, thread in enumerate(threads) if runs_module(thread.frames))
        threads = tx.mark_main(threads, next(runs, None))
    native = any(frame.native for thread in threads for frame in thread.frames)
    return StackTrace(
        process=process,
        tool="py-spy-native" if native else "py-spy",
        at=at,
        threads=threads,
        error=complaint,
        command=_command(items[0]),
        sources=_sources(items),
    )


def _sources(items: list[dict[str, Any]]) -> dict[str, str]:
    found: dict[str, set[str]] = {}
    for item in items:
        frames = item.get("frames")
        for value in frames if isinstance(frames, list) else ():
            if isinstance(value, dict) and (path := _text(value.get("filename"))):
                found.setdefault(_text(value.get("short_filename")) or path, set()).add(path)
    return {name: paths.pop() for name, paths in found.items() if len(paths) == 1}


def _thread(item: dict[str, Any], pid: int) -> ThreadStack:
    raw = item.get("frames")
    frames = (_frame(value) for value in raw) if isinstance(raw, list) else ()
    tid = _integer(item.get("os_thread_id")) or None
    name = _text(item.get("thread_name"))
    active, owns = item.get("active"), item.get("owns_gil")
    return ThreadStack(
        tid=tid,
        name=name,
        frames=tx.shared(frame for frame in frames if frame),
        main=name == "MainThread" or (tid is not None and tid == pid),
        # Without the kernel's thread id py-spy cannot ask for the state, and says "active".
        active=active if isinstance(active, bool) and (tid or not active) else None,
        holds_gil=owns if isinstance(owns, bool) else None,
    )


def _frame(value: Any) -> Frame | None:
    if not isinstance(value, dict) or not _text(value.get("name")):
        return None
    file = _text(value.get("short_filename")) or _text(value.get("filename"))
    line = _integer(value.get("line"))
    return tx.frame(_text(value.get("name")), file, line, tx.is_native(file, line))


def _command(item: dict[str, Any]) -> str:
    info = item.get("process_info")
    return _text(info.get("command_line")) if isinstance(info, dict) else ""


def _text(value: Any) -> str:
    return value[: tx.MAX_LINE] if isinstance(value, str) else ""


def _integer(value: Any) -> int:
    return value if isinstance(value, int) and 0 <= value < 1 << 63 else 0
