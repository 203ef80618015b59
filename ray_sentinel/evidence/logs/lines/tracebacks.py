"""Python tracebacks in logs: interleaved with other ranks' lines, prefixed, boxed, chained.

A chain ("The above exception was the direct cause of ...", "During handling of ...") is read as
one block, in the order it happened: the first exception is where it began. Ray wraps a remote
traceback into ``RayTaskError(ValueError): ray::f() (pid=12, ip=10.0.0.2)`` and prints the remote
frames and the remote exception after it: that one is the cause, and the process in the parentheses
raised it. Of an actor whose constructor failed it says ``The actor died because of an error raised
in its creation task, ray::A.__init__() (pid=12, ip=10.0.0.2)`` before these. Of a group of
exceptions (``asyncio.TaskGroup``), whose members Python draws behind a border, the first member
that says something is read; the group only transports it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.evidence.logs.lines.lines import NOBODY, Origin, ScannedLine, named_process

HEADER = "Traceback (most recent call last)"
REMOTE = "): ray::"
"""What the line of Ray's wrapper contains: it begins a remote traceback even where the text above
is cut off."""
CREATION = "error raised in its creation task, ray::"
"""What Ray's line about a failed constructor contains; the remote traceback follows."""
HEADS = (HEADER, REMOTE, CREATION)
"""A block may begin at a line that contains one of these."""
_MAX_LINES = 600
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>.+))?')
_EXCEPTION = re.compile(
    r"^(?P<type>(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:\([\w.]+\))?)(?:: ?(?P<message>.*))?$"
)
_TYPE_WORD = re.compile(
    r"(?:Error|Exception|Exit|Interrupt|Warning|Timeout|Failure|Failed|Killed|Aborted|NotFound|"
    r"StopIteration|Cancelled|Refused|Denied|Unavailable|Died|Empty|Full|Break|Invalid\w*|Fault|Mismatch)"
    r"(?:\([\w.]+\))?$"
)
_CHAIN = re.compile(
    r"^(?:During handling of the above exception|The above exception was the direct cause)"
)
_LOGGED = re.compile(
    r"[EF]\d{4} \d\d:\d\d:\d\d\.\d{1,9}\s{1,8}\d{1,9} [\w./-]{1,120}:\d{1,6}\] "
    r"|(?:\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?[ :|-]{1,3})?"
    r"(?:\[?(?:ERROR|CRITICAL|FATAL)\]?[ :|-]{1,3})?"
)
"""A logger's time and level before an exception, or glog's; of the first either may be missing."""
_GROUP = re.compile(r"\s*\+ Exception Group $")
"""What stands before the header of an exception group, behind a logger's front."""
_BORDER = re.compile(r"\s*\|(?: |$)")
_MEMBER = re.compile(r"\s*(?:\+-)?\+-{3,}(?: (?:\d+|\.\.\.) -{3,})?$")
"""The line before each exception of a group, and after the last."""
_BOX = "│╭╰┌└├─|+"
_DIGITS = re.compile(r"\d")
_PATIENCE = 12
"""Most lines between an exception and the one that followed from it."""


class Raised(msgspec.Struct, frozen=True, kw_only=True):
    """One exception of a traceback."""

    kind: str
    message: str = ""
    frame: str = ""
    """The innermost frame, as ``file:line function``."""
    frames: tuple[str, ...] = ()
    """All frames as ``file:line function``, outermost first."""
    index: int = 0
    """The place, among the lines handed in, of the line that names the exception."""
    process: Origin = NOBODY
    """The remote process that a Ray wrapper names."""

    @property
    def wraps(self) -> bool:
        """Whether the exception only transports the one that follows it."""
        return is_wrapper(self.kind) or CREATION in self.message

    @property
    def text(self) -> str:
        """The exception as Python prints it."""
        return f"{self.kind}: {self.message}" if self.message else self.kind


class Traceback(msgspec.Struct, frozen=True, kw_only=True):
    """A block: its exceptions in the order they were raised, and the lines that belong to it."""

    raised: tuple[Raised, ...]
    lines: tuple[int, ...]
    complete: bool = True
    """The exception's own line is there. Where it is missing, ``raised`` holds what the frames say
    under the name "Traceback"."""
    ended_at: int | None = None
    """The first line which shows that the block is over; None where the lines end before that."""


def parse_exception(text: str) -> tuple[str, str] | None:
    """(type, message) of a line such as ``ValueError: boom``, or None.

    A type is only recognised if its name ends like that of a usual exception.
    """
    if len(text) > 40_000 or not text or text[0] in " \t":
        return None
    match = _EXCEPTION.match(text)
    if match is None:
        return None
    kind = match.group("type")
    if not _TYPE_WORD.search(kind):
        return None
    return kind, (match.group("message") or "").strip()


def logged_exception(text: str) -> tuple[str, str] | None:
    """As `parse_exception`, also if a logger put a time, an error level, or both before it.

    >>> logged_exception("2026-11-01 10:00:02 ERROR ValueError: boom")
    ('ValueError', 'boom')
    """
    front = _LOGGED.match(text)
    return parse_exception(text[front.end() :] if front else text)


def read_traceback(lines: Sequence[ScannedLine], start: int) -> Traceback | None:
    """Read the block whose header is at ``lines[start]``; None if there is none.

    ``lines`` may hold other processes' lines in between: only those of the same origin count.
    """
    head = lines[start]
    column = head.text.find(HEADER)
    remote = _remote(head.text) if column < 0 else None
    if column < 0 and remote is None:
        return None
    reader = _Reader(head.text[: max(0, column)], head.origin)
    if remote is not None:
        reader.add(*remote, start)
    taken, ended_at = [start], None
    for index in range(start + 1, min(len(lines), start + _MAX_LINES)):
        line = lines[index]
        if line.origin != head.origin:
            continue
        verdict = reader.feed(line.text, index)
        if verdict == "end":
            ended_at = index
            break
        if verdict == "take":
            taken.append(index)
    if remote is not None and CREATION in head.text and not (reader.raised[1:] or reader.frames):
        return None  # a report alone, such as a driver's
    complete = bool(reader.raised)
    if not complete and reader.frames:
        reader.cut_off(start)
    return Traceback(
        raised=tuple(reader.raised), lines=tuple(taken), complete=complete, ended_at=ended_at
    )


def _remote(text: str) -> tuple[str, str] | None:
    """(type, message) of the line of Ray's wrapper of a remote exception."""
    if CREATION in text:
        # The worker itself writes "Exception raised in creation task: The actor died ...".
        return parse_exception(text) or ("ActorDiedError", text[text.find("The actor died") :])
    found = parse_exception(text) if REMOTE in text else None
    return found if found is not None and is_wrapper(found[0]) else None


class _Reader:
    """Takes a block's lines one by one."""

    def __init__(self, lead: str, origin: Origin) -> None:
        group = _GROUP.search(lead)
        self.of_group = group is not None
        if group is not None:
            lead = lead[: group.start()]
        self.lead = lead if lead.strip() else ""
        self.shape = _DIGITS.sub("0", self.lead)
        self.indent = len(lead) - len(lead.lstrip()) if not self.lead else 0
        self.raised: list[Raised] = []
        self.frames: list[str] = []
        self.open = True
        """Inside frames: the exception's line is still to come."""
        self.chained = False
        """The line before said that another traceback follows."""
        self.idle = 0

    def feed(self, text: str, index: int) -> str:
        """ "take": the line belongs to the block; "skip": perhaps not, but it may go on; "end"."""
        body = self._body(text)
        if self.of_group:
            if _MEMBER.match(body):
                self.chained, self.idle = True, 0
                return "take"
            border = _BORDER.match(body)
            body = body[border.end() :] if border else body
        if _CHAIN.match(body) or (HEADER in body and (self.open or self.chained)):
            self.open, self.frames, self.idle, self.chained = True, [], 0, True
            return "take"
        if HEADER in body:
            return "end"
        if frame := _FRAME.match(body):
            if not self.open and not self.raised[-1].wraps:
                return "end"
            self.frames.append(f"{frame['file']}:{frame['line']} {frame['function'] or ''}".strip())
            self.open, self.idle, self.chained = True, 0, False
            return "take"
        if not self.open:
            self.idle += 1
            return "end" if self.idle > _PATIENCE else "skip"
        return self._inside(body, index)

    def cut_off(self, index: int) -> None:
        """The text ended, or was torn, before the exception's own line."""
        self.add("Traceback", f"cut off at {self.frames[-1]}", index)

    def _inside(self, body: str, index: int) -> str:
        if not body.strip() or body[0] in " \t" or body.lstrip()[:1] in _BOX:
            return "take"
        found = _EXCEPTION.match(body)
        if found is None:
            self.idle += 1
            return "end" if self.idle > _PATIENCE else "skip"
        self.add(found["type"], (found["message"] or "").strip(), index)
        return "take"

    def add(self, kind: str, message: str, index: int) -> None:
        """The next exception of the block, which the line at ``index`` names."""
        process = (
            named_process(message) if kind.rsplit(".", 1)[-1].startswith("RayTask") else NOBODY
        )
        if not process.pid and "ray::" in message:
            process = named_process(message)
        before = self.raised[-1] if self.raised else None
        if before is not None and before.process.pid and before.wraps:
            process = before.process
        self.raised.append(
            Raised(
                kind=kind,
                message=message,
                frame=self.frames[-1] if self.frames else "",
                frames=tuple(self.frames),
                index=index,
                process=process,
            )
        )
        self.open, self.frames, self.idle, self.chained = False, [], 0, False

    def _body(self, text: str) -> str:
        if self.lead:
            size = len(self.lead)
            if _DIGITS.sub("0", text[:size]) == self.shape:
                return text[size:]
            return text
        if self.indent and text[: self.indent].strip() == "":
            return text[self.indent :]
        return text


def first_cause(block: Traceback) -> Iterator[Raised]:
    """The exceptions, those that explain most first: the beginning of the chain, then the rest.

    A wrapper that Ray makes comes after what it wraps.
    """
    yield from (r for r in block.raised if not r.wraps)
    yield from (r for r in block.raised if r.wraps)


def is_wrapper(kind: str) -> bool:
    """Whether the exception only transports another one from a worker."""
    name = kind.rsplit(".", 1)[-1] if "(" not in kind else kind
    return "RayTaskError" in name or name in {
        "ChildFailedError",
        "TrainingFailedError",
        "WorkerGroupError",
        "ProcessRaisedException",
        "RemoteTraceback",
        "_RemoteTraceback",
        "CalledProcessError",
        "ExceptionGroup",
        "BaseExceptionGroup",
    }
