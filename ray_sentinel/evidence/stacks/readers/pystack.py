"""pystack: the outermost call first, Python's frames and with ``--native`` machine code's too.

::

    Traceback for thread 4711 (python) [Has the GIL] (most recent call last):
        (C) File "???", line 0, in __clone (/usr/lib64/libc.so.6)
        (Python) File "/srv/train.py", line 7, in step
            loss.backward()
        (C) File "Modules/timemodule.c", line 1866, in pysleep (inlined) (/usr/lib/libpython3.8.so)
"""

from __future__ import annotations

from ray_sentinel import regex as re
from ray_sentinel.evidence.stacks.readers import text as tx
from ray_sentinel.evidence.stacks.readers.problems import explain_output
from ray_sentinel.evidence.stacks.readers.pyspy import runs_module
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.stacks import Frame, StackTrace, ThreadStack

_THREAD = re.compile(
    r"^\s{0,20}Traceback for thread (?P<tid>\d+)(?: \((?P<name>.*?)\))? \[(?P<status>[^\]]*)\]"
    r" \(most recent call last\):$"
)
_FRAME = re.compile(
    r"^\s{0,40}\((?P<kind>Python|C)\) File \"(?P<file>[^\"]*)\", line (?P<line>\d+)"
    r"(?:, in (?P<rest>\S.*))?$"
)
_LIBRARY = re.compile(r"^(?P<function>.*?)(?: \(inlined\))?(?: \((?P<library>[^()]*)\))$")
_UNKNOWN_FILE = "???"


def looks_like(text: str) -> bool:
    """Whether ``text`` contains threads or frames of pystack."""
    if "Traceback for thread " not in text and "(Python) File " not in text:
        return False
    return any(_THREAD.match(line) or _FRAME.match(line) for line in tx.lines(text))


def parse(text: str, process: ProcessId, at: float = 0.0) -> tuple[StackTrace, ...]:
    """All threads in ``text`` as one trace; the text contains no pid."""
    threads: list[ThreadStack] = []
    header: re.Match[str] | None = None
    body: list[Frame] = []
    for line in tx.lines(text):
        if match := _THREAD.match(line):
            if header or body:
                threads.append(_thread(header, body))
            header, body = match, []
        elif frame := _FRAME.match(line):
            body.append(_frame(frame))
    if header or body:
        threads.append(_thread(header, body))
    native = any(frame.native for thread in threads for frame in thread.frames)
    error = "" if any(t.frames for t in threads) else explain_output("pystack", text)
    return (
        StackTrace(
            process=process,
            tool="py-spy-native" if native else "py-spy",
            at=at,
            threads=_with_main(threads, process.pid),
            error=error,
        ),
    )


def _thread(header: re.Match[str] | None, body: list[Frame]) -> ThreadStack:
    status = header["status"] if header else ""
    return ThreadStack(
        tid=tx.number(header["tid"]) or None if header else None,
        name=(header["name"] or "") if header else "",
        frames=tx.shared(reversed(body)),
        holds_gil="Has the GIL" in status if header else None,
    )


def _frame(match: re.Match[str]) -> Frame:
    rest, file = match["rest"] or "", match["file"]
    if match["kind"] == "Python":
        return tx.frame(rest, file, tx.number(match["line"]))
    named = _LIBRARY.match(rest)
    function, library = (named["function"], named["library"]) if named else (rest, "")
    known = file if file != _UNKNOWN_FILE else library
    return tx.frame(function.strip(), known, tx.number(match["line"]), native=True)


def _with_main(threads: list[ThreadStack], pid: int) -> tuple[ThreadStack, ...]:
    """The main thread has the process's id; without one it is the one that runs a module."""
    only = 0 if len(threads) == 1 else None
    runs = next((i for i, t in enumerate(threads) if runs_module(t.frames)), only)
    main = next((i for i, t in enumerate(threads) if pid and t.tid == pid), runs)
    return tx.mark_main(threads, main)
