"""Which parser understands a tool's output: its content decides, the file's name only helps."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ray_sentinel.evidence.stacks.readers import (
    cuda_gdb,
    faulthandler,
    gdb,
    kernel,
    pyspy,
    pyspy_json,
    pystack,
)
from ray_sentinel.evidence.stacks.readers import text as tx
from ray_sentinel.evidence.stacks.readers.prefixes import without_prefixes
from ray_sentinel.evidence.stacks.readers.problems import explain_output, known_problem
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.stacks import StackTrace, Tool

ParseFunction = Callable[[str, ProcessId, float], tuple[StackTrace, ...]]


class Format(msgspec.Struct, frozen=True):
    """One layout: a function that recognises it and one that parses it."""

    name: str
    tool: Tool
    looks_like: Callable[[str], bool]
    parse: ParseFunction


FORMATS: tuple[Format, ...] = (
    Format("py-spy JSON", "py-spy", pyspy_json.looks_like, pyspy_json.parse),
    Format("pystack", "py-spy", pystack.looks_like, pystack.parse),
    Format("faulthandler", "faulthandler", faulthandler.looks_like, faulthandler.parse),
    Format("cuda-gdb", "cuda-gdb", cuda_gdb.looks_like, cuda_gdb.parse),
    Format("gdb", "gdb", gdb.looks_like, gdb.parse),
    Format("kernel", "kernel", kernel.looks_like, kernel.parse),
    Format("py-spy", "py-spy", pyspy.looks_like, pyspy.parse),
)
"""All formats in the order in which they are tried: those with surer signs come first."""

_BESIDE_PYSPY = frozenset({"cuda-gdb", "gdb", "kernel"})
"""The formats that scripts put into one file together with py-spy's text."""

_BY_PREFIX = {
    "pyspy": "py-spy",
    "py-spy": "py-spy",
    "py_spy": "py-spy",
    "cudagdb": "cuda-gdb",
    "cuda-gdb": "cuda-gdb",
    "cuda_gdb": "cuda-gdb",
    "gdb": "gdb",
    "kernel": "kernel",
    "faulthandler": "faulthandler",
    "pystack": "pystack",
}


def recognise(text: str) -> Format | None:
    """The format of ``text``, or None if it shows no sign of any."""
    return next((item for item in FORMATS if item.looks_like(text)), None)


def named(tool: str) -> Format | None:
    """The format in the first word of a file's name: ``cudagdb`` → cuda-gdb."""
    name = _BY_PREFIX.get(tool.lower(), tool)
    return next((item for item in FORMATS if item.name == name), None)


def parse(
    data: bytes | str, process: ProcessId, at: float = 0.0, *, hint: str = ""
) -> tuple[StackTrace, ...]:
    """Every process's stacks in one tool's output. Never raises: ``error`` says what is wrong.

    ``process`` is where the output is from; a pid of 0 is filled in if the text contains it.
    ``hint`` is the tool in the file's name; the content decides where they differ, but backtraces
    in a file named for cuda-gdb are taken as cuda-gdb's.
    """
    text = without_prefixes(tx.decode(data))
    promised = named(hint) if hint else None
    found = recognise(text)
    if found and found.name == "gdb" and promised and promised.name == "cuda-gdb":
        found = promised
    if found is None:
        return (_unreadable(text, promised, process, at),)
    if found.name in _BESIDE_PYSPY and pyspy.looks_like(text):
        return _beside_pyspy(text, found, process, at)
    return found.parse(text, process, at)


def _beside_pyspy(
    text: str, other: Format, process: ProcessId, at: float
) -> tuple[StackTrace, ...]:
    """What py-spy and ``other`` say in one text; both are taken to be about one process."""
    spied = [trace for trace in pyspy.parse(text, process, at) if _has_frames(trace)]
    if not spied:
        return other.parse(text, process, at)
    owners = {trace.process for trace in spied}
    if len(owners) > 1:
        return tuple(spied)  # nothing says for sure whose stacks the other tool shows
    beside = other.parse(pyspy.without_threads(text), spied[0].process, at)
    return (*spied, *(trace for trace in beside if _is_of(trace, spied[0].process)))


def _is_of(trace: StackTrace, process: ProcessId) -> bool:
    """Whether ``trace`` says something and names no other process's threads."""
    if trace.process != process or not (_has_frames(trace) or trace.kernels_listed):
        return False
    known = {thread.tid for thread in trace.threads if thread.frames and thread.tid}
    return not known or process.pid in known


def _has_frames(trace: StackTrace) -> bool:
    return any(thread.frames for thread in trace.threads)


def _unreadable(text: str, promised: Format | None, process: ProcessId, at: float) -> StackTrace:
    tool: Tool = promised.tool if promised else "py-spy"
    if promised or known_problem(text) or not text.strip():
        error = explain_output(promised.name if promised else "the tool", text)
    else:
        error = (
            "this is no output of py-spy, pystack, gdb, cuda-gdb, faulthandler or of a kernel stack"
        )
    return StackTrace(process=process, tool=tool, at=at, error=error)
