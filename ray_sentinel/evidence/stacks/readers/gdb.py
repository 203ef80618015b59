"""gdb's ``thread apply all bt``, also as printed by cuda-gdb and by older versions.

A thread begins with ``Thread 2 (Thread 0x7f.. (LWP 7993) "python"):``; a frame is
``#1  0x.. in function (args) at file.c:12`` or ``... from /lib/object.so``.
"""

from __future__ import annotations

from functools import lru_cache

from ray_sentinel import regex as re
from ray_sentinel.evidence.stacks.frames.names import plain
from ray_sentinel.evidence.stacks.readers import text as tx
from ray_sentinel.evidence.stacks.readers.problems import explain_output, known_problem
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.model.stacks import Frame, StackTrace, ThreadStack

_THREAD = re.compile(
    r"^Thread (\d+) \((.*)\):?$|^Thread (\d+)(?: \"(.*)\")?:$|^(Thread N) \((.*)\):?$"
)
_FRAME = re.compile_anchored(
    r"^\s{0,8}#\s?(\d+)\s+(?:0x[0-9a-fA-F]+ in |0x[0-9a-fA-F.]+ (?=\S))?(.*)"
)
_LWP = re.compile(r"\bLWP (\d+)")
_PROCESS = re.compile(r"\bprocess (\d+)\b|attach(?:ing)? to (?:process |pid )?(\d+)")
_NAME = re.compile(r'"([^"]*)"')
# cuda-gdb goes on after the place of code that was inlined.
_PLACE = re.compile(
    r"^(.*?) (?:at (\S+?|\S.*?)(?::(\d+))?(?: in \S+ inlined from .*)?|from (\S.*))$"
)
# A Python with debug symbols and gdb's Python support shows the interpreter's frames by name.
_PYTHON = re.compile(r"Frame 0x[0-9a-f]+, for file ([^,]+), line (\d+), in (\S+)")
_BEGINS = re.compile(r"^[ \t]{0,8}(?:Thread \w+ \(.*\):?$|#0\s)", re.MULTILINE)
_A_FRAME = re.compile(r"^\s{0,8}#\d+\s+(?:0x|Frame 0x|\S+ \()", re.MULTILINE)
# Frames whose beginning was lost, as in the tail of a log.
_CUT_OFF = re.compile(
    r"^\s{0,8}#\d+\s+(?:0x[0-9a-f]+ in \S|Frame 0x[0-9a-f]+, for file )", re.MULTILINE
)
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_NOISE = re.compile(r"Python Exception <[^\n]*\n")
# Copied from a terminal, lines may have lost their ends: padding is there instead.
_JOINED = re.compile(r"(?<=\S) {8,}(?=#\d+ +(?:0x|\w))")
_CONTINUED = "   "
_STARTS = re.compile(r"start_thread|clone3?|(std::)?execute_native_thread_routine\w*")


def looks_like(text: str) -> bool:
    """Whether ``text`` contains a gdb backtrace."""
    if "#" not in text:
        return False
    head = _JOINED.sub("\n", text)
    if _BEGINS.search(head) and _A_FRAME.search(head):
        return True
    return len(_CUT_OFF.findall(head, 0, 20_000)) > 1


def parse(text: str, process: ProcessId, at: float = 0.0) -> tuple[StackTrace, ...]:
    """The backtraces in ``text`` as one trace; ``process.pid`` is filled in if it is 0."""
    threads = read_threads(text)
    said = process.pid or _pid(text)
    marked = _with_main(threads, said)
    # gdb numbers the main thread 1 and prints it last; its LWP is the pid.
    pid = said or ((threads[-1].tid or 0) if threads else 0)
    error = "" if any(thread.frames for thread in marked) else explain_output("gdb", text)
    if not error and (problem := known_problem(_complaints(text))):
        error = f"gdb: {problem}"
    who = process if pid == process.pid else ProcessId(process.host, pid, process.start)
    return (StackTrace(process=who, tool="gdb", at=at, threads=marked, error=error),)


def read_threads(text: str) -> list[ThreadStack]:
    """The threads of a backtrace, in the order of the text."""
    threads: list[ThreadStack] = []
    header: re.Match[str] | None = None
    body: list[str] = []
    for line in tx.lines(_JOINED.sub("\n", _NOISE.sub("", text))):
        if match := _THREAD.match(line.strip()):
            if header or any(item.lstrip().startswith("#0") for item in body):
                threads.append(_thread(header, body))
            header, body = match, []
        else:
            body.append(line)
    if header or any(_FRAME.match(item) for item in body):
        threads.append(_thread(header, body))
    return threads


def _thread(header: re.Match[str] | None, body: list[str]) -> ThreadStack:
    inner = (header.group(2) or header.group(6) or "") if header else ""
    name = _NAME.search(inner)
    tid = _LWP.search(inner) or _PROCESS.search(inner)
    return ThreadStack(
        tid=tx.number(tid.group(1)) or None if tid else None,
        name=name.group(1) if name else (header.group(4) or "" if header else ""),
        frames=_frames("\n".join(body)),
    )


@lru_cache(maxsize=4_096)
def _frames(body: str) -> tuple[Frame, ...]:
    found: list[str] = []
    whole = False
    for line in body.split("\n"):
        if match := _FRAME.match(line):
            if match.group(1) == "0" and found:
                if whole and len(found) > 1:
                    break  # a second backtrace of the same thread: "bt" after another one
                found.clear()  # single frames, shown by "up" and "down" before the backtrace
            whole = whole or match.group(1) == "0"
            found.append(match.group(2))
        elif found and line.startswith(_CONTINUED) and line.strip():
            found[-1] = f"{found[-1]} {line.strip()}"[: tx.MAX_LINE]
        elif found and line and not line[0].isspace() and found[-1].endswith(("(", ", ")):
            found[-1] = f"{found[-1]}{line}"[: tx.MAX_LINE]
    return tx.shared(frame for frame in map(read_frame, found) if frame)


def read_frame(rest: str) -> Frame | None:
    """A frame from what follows its number and address."""
    rest = rest.strip()
    if python := _PYTHON.search(rest):
        return tx.frame(python.group(3), python.group(1), tx.number(python.group(2)))
    # The text of string arguments may hold parentheses.
    rest = _QUOTED.sub('""', rest)
    file, line = "", 0
    if place := _last_place(rest):
        rest, file, line = place
    function = _without_arguments(rest)
    return tx.frame(function, file, line, native=True) if function else None


def _last_place(rest: str) -> tuple[str, str, int] | None:
    """Split off `` at FILE:LINE`` or `` from OBJECT`` behind the closing parenthesis."""
    end = rest.rfind(")")
    match = _PLACE.match(rest[end + 1 :]) if end >= 0 else None
    if match is None or match.group(1).strip():
        return None
    head = rest[: end + 1]
    return head, match.group(4) or match.group(2) or "", tx.number(match.group(3))


def _without_arguments(text: str) -> str:
    """``text`` without the last group of parentheses, which holds the values of the arguments."""
    if not text.endswith(")"):
        return text.split(" (", 1)[0].strip() if " (" in text else text.strip()
    depth = 0
    for index in range(len(text) - 1, -1, -1):
        depth += (text[index] == ")") - (text[index] == "(")
        if depth == 0:
            return text[:index].strip() or text
    return text.split(" (", 1)[0].strip()


def _pid(text: str) -> int:
    found = re.search(r"\[Inferior \d+ \(process (\d+)\)|Attaching to process (\d+)", text)
    return tx.number(found.group(1) or found.group(2)) if found else 0


def _started(thread: ThreadStack) -> bool:
    """Whether the outermost frame is the start function of a thread, which the main one does not
    have.

    In a process that a thread has forked it has one; there the pid tells which thread is the main
    one.
    """
    if not thread.frames:
        return False
    return _STARTS.fullmatch(plain(thread.frames[-1].function)) is not None


def _with_main(threads: list[ThreadStack], pid: int) -> tuple[ThreadStack, ...]:
    last = len(threads) - 1 if threads and not _started(threads[-1]) else None
    main = next((i for i, t in enumerate(threads) if pid and t.tid == pid), last)
    return tx.mark_main(threads, main)


def _complaints(text: str) -> str:
    """Lines that are no frames: only there can gdb itself complain."""
    return "\n".join(
        line
        for line in tx.lines(text[:200_000])
        if not line.lstrip().startswith(("#", "Thread", "[", "warning: Could not", "BFD"))
        and "No such file or directory" not in line
        and "debug" not in line
    )[:20_000]
