"""Python's own tracebacks: ``faulthandler`` and ``traceback``.

``faulthandler`` writes threads newest first, frames innermost first::

    Current thread 0x00007f1c (most recent call first):
      File "train.py", line 7 in step

``traceback`` writes ``File "train.py", line 7, in step`` with the innermost call last; ``py-bt`` of
Python's extension to gdb writes the same lines, and says "most recent call first".
"""

from __future__ import annotations

from functools import lru_cache

from ray_sentinel import regex as re
from ray_sentinel.evidence.stacks.readers import text as tx
from ray_sentinel.evidence.stacks.readers.problems import explain_output
from ray_sentinel.evidence.stacks.readers.pyspy import runs_module
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.stacks import Frame, StackTrace, ThreadStack

_THREAD = re.compile(
    r"^\W*(?P<current>Current )?thread:?\s+(?P<rest>.*?)\s*"
    r"(?P<order>\(most recent call (?:first|last)\))?\s*:?[\s#=*-]*$",
    re.IGNORECASE,
)
_FRAME = re.compile(
    r"^\s*File \"(?P<file>[^\"]*)\",\s{1,20}line (?P<line>\d+|\?\?\?)(?P<comma>,)?"
    r" in (?P<function>.+)$"
)
_GDB_THREAD = re.compile(r"\(LWP (?P<tid>\d+)\)(?: \"(?P<name>[^\"]*)\")?")
# gdb's Python extension says so in place of the frame; which lock it is, it cannot tell for sure.
_LOCKED = re.compile(r"^\s+Waiting for (the GIL|a lock \(e\.g\. GIL\))$")
_FIRST = "(most recent call first)"
_IDENT = re.compile(r"0x[0-9a-fA-F]+|\b\d{2,}\b")
_NAME = re.compile(r"\[(?P<bracket>[^\]]+)\]|\"(?P<quoted>[^\"]+)\"|(?P<plain>[A-Za-z][\w.-]*)")


def looks_like(text: str) -> bool:
    """Whether ``text`` contains frames of Python's own tracebacks."""
    if 'File "' not in text:
        return False
    return any(_FRAME.match(line) for line in tx.lines(text))


def parse(text: str, process: ProcessId, at: float = 0.0) -> tuple[StackTrace, ...]:
    """All threads in ``text`` as one trace; the text contains no pid."""
    threads: list[ThreadStack] = []
    header: re.Match[str] | None = None
    body: list[str] = []
    for line in tx.lines(text):
        frame = _FRAME.match(line)
        match = None if frame else _THREAD.match(line)
        if match and (match["order"] or _IDENT.search(match["rest"]) or match["rest"]):
            if header or body:
                threads.append(_thread(header, body))
            header, body = match, []
        elif frame or _FIRST in line or _LOCKED.match(line):
            body.append(line)
    if header or body:
        threads.append(_thread(header, body))
    threads = [thread for thread in threads if thread.frames or len(threads) > 1]
    error = "" if any(t.frames for t in threads) else explain_output("faulthandler", text)
    return (
        StackTrace(
            process=process, tool="faulthandler", at=at, threads=_with_main(threads), error=error
        ),
    )


def _thread(header: re.Match[str] | None, body: list[str]) -> ThreadStack:
    rest = header["rest"] if header else ""
    if of_gdb := _GDB_THREAD.search(rest):
        name, tid = of_gdb["name"] or "", tx.number(of_gdb["tid"]) or None
        return ThreadStack(tid=tid, name=name, frames=_frames("\n".join(body)))
    ident = _IDENT.search(rest)
    found = _NAME.search(rest.replace(ident.group(), "", 1) if ident else rest)
    label = next((g for g in found.groups() if g), "") if found else ""
    return ThreadStack(
        tid=_tid(ident.group() if ident else ""),
        name=label,
        frames=_frames("\n".join(body)),
        main=label == "MainThread",
    )


def _tid(ident: str) -> int | None:
    """A kernel thread id; larger numbers are addresses of pthreads and mean nothing outside."""
    value = tx.number(ident)
    return value if 0 < value < 1 << 22 else None


@lru_cache(maxsize=4_096)
def _frames(body: str) -> tuple[Frame, ...]:
    found: list[Frame] = []
    outermost_first, said = False, _FIRST in body
    for line in body.split("\n"):
        if match := _FRAME.match(line):
            outermost_first = outermost_first or (match["comma"] is not None and not said)
            number = tx.number(match["line"])
            found.append(tx.frame(match["function"].strip(), match["file"], number))
        elif _LOCKED.match(line):
            found.append(tx.frame("pthread_cond_timedwait", native=True))
    return tx.shared(reversed(found) if outermost_first else found)


def _with_main(threads: list[ThreadStack]) -> tuple[ThreadStack, ...]:
    if any(thread.main for thread in threads):
        return tuple(threads)
    # The main thread is the oldest: the last that runs a module's body.
    # A thread that is the only one is taken for it.
    only = 0 if len(threads) == 1 else None
    main = next((i for i in reversed(range(len(threads))) if runs_module(threads[i].frames)), only)
    return tx.mark_main(threads, main)
