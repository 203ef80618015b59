"""Stacks made up from lines: ``function file:line`` for Python, ``function`` for native code."""

from __future__ import annotations

from collections.abc import Sequence

from ray_sentinel.evidence.stacks import StackReader, classify, classify_process
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.stacks import Frame, StackFact, StackTrace, ThreadStack, Tool

PROCESS = ProcessId("node1", 7)


def frames(*lines: str) -> tuple[Frame, ...]:
    """Frames, innermost first, from ``function file:line`` (Python) or ``function`` (native)."""
    made = []
    for text in lines:
        function, _, where = text.partition(" ")
        file, _, line = where.partition(":")
        native = not file.endswith(".py") and not file.startswith("<")
        made.append(Frame(function, file or "lib.so", int(line or 0), native))
    return tuple(made)


def thread(*lines: str, name: str = "", main: bool = False, **more: object) -> ThreadStack:
    return ThreadStack(
        name=name or ("MainThread" if main else ""), main=main, frames=frames(*lines), **more
    )  # type: ignore[arg-type]


def fact(
    threads: Sequence[ThreadStack], tool: Tool = "py-spy", *, follows: bool = False
) -> StackFact:
    trace = StackTrace(process=PROCESS, tool=tool, at=1.0, threads=tuple(threads))
    if follows:
        return classify_process([trace], StackReader(follows=True))
    return classify(trace, StackReader())


def main_fact(*lines: str) -> StackFact:
    return fact([thread(*lines, main=True)])
