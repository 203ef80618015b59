"""Turns lines that report errors into hits: single lines, tracebacks, tables of exits."""

from __future__ import annotations

from collections.abc import Sequence

from ray_sentinel import regex as re
from ray_sentinel.evidence.logs.errors.catalogue import Catalogue, SignatureMatch
from ray_sentinel.evidence.logs.errors.event_objects import described_machine, machine_of
from ray_sentinel.evidence.logs.errors.exception_classifier import ExceptionClassifier
from ray_sentinel.evidence.logs.errors.exits import (
    TABLE_MARKS,
    ProcessExit,
    exit_signature,
    killed_by_launcher,
    read_row,
    read_table,
    signal_name,
    table_end,
)
from ray_sentinel.evidence.logs.errors.hitlist import HitList
from ray_sentinel.evidence.logs.errors.signatures import Signature
from ray_sentinel.evidence.logs.errors.watchdog import read_work
from ray_sentinel.evidence.logs.lines.chunk import BLOCK, MAX_LINE, Chunk, When
from ray_sentinel.evidence.logs.lines.generated_text import (
    GeneratedText,
    boxed,
    own_words,
    reported_inside,
)
from ray_sentinel.evidence.logs.lines.levels import is_quiet
from ray_sentinel.evidence.logs.lines.lines import (
    NOBODY,
    Origin,
    ScannedLine,
    is_streamed,
    parse_line,
)
from ray_sentinel.evidence.logs.lines.shapes import KnownShapes, shape_of
from ray_sentinel.evidence.logs.lines.tracebacks import (
    HEADER,
    HEADS,
    logged_exception,
    read_traceback,
)
from ray_sentinel.evidence.logs.records import FileFacts, Hit
from ray_sentinel.model.triage import LogException

# Text of several lines inside one: structured loggers write ``\n`` where a line ended.
#
# ``{"severity": "ERROR", "message": "Traceback (most recent call last):\n  File \"a.py\", ..."}``,
# as Google Cloud, Ray's JSON encoding and many others print it.

_BREAK = "\\n"
_LEAST = 2
"""Least number of line breaks in a traceback: it has at least a frame and an exception."""
_SOON = 8
"""Number of characters after ``head`` among which the first escaped line break must begin."""


def escaped_lines(text: str, head: str, origin: Origin) -> list[ScannedLine]:
    """The lines of the value that begins with ``head``; empty if ``text`` has no escaped line
    breaks."""
    start = text.find(head)
    if start < 0 or _BREAK not in text[start + len(head) : start + len(head) + _SOON]:
        return []
    value = text[start : _end(text, start)]
    if value.count(_BREAK) < _LEAST:
        return []
    value = value.replace("\\\\n", _BREAK)  # an object within an object
    return [
        ScannedLine(part.replace('\\"', '"').replace("\\t", "\t").rstrip("\\"), origin)
        for part in value.split(_BREAK)
    ]


def _end(text: str, start: int) -> int:
    """Where the quoted value ends: at the first quote that is not escaped."""
    at = text.find('"', start)
    while at > 0 and text[at - 1] == "\\":
        at = text.find('"', at + 1)
    return at if at >= 0 else len(text)


_MOST_PROCESSES = 4096
_SYSTEM = frozenset({"raylet", "gcs", "ray", "monitor"})
_SYSTEM_CLASSES = frozenset({"oom-host", "node-fail", "gpu-lost", "preempted"})
"""The only classes that count in files of Ray's own processes, which write of much that is no
trouble of the job's."""
_OF_A_MACHINE = frozenset({"node-fail", "preempted"})
_OF_A_DEVICE = frozenset({"gpu-lost", "illegal-memory-access"})
_SURE = 84
"""The weight from which a signature counts even on a line that calls itself information."""
_DETAILS = re.compile(r"^\s+(class_name|actor_id|pid|name|ip|node_id|Node Id): (.{1,200})$")
_DETAILS_REACH = 1500
_DEVICE_REACH = 600
_PCI = re.compile(
    r"\b(?:GPU|PCI|Bus-?[Ii]d)[ :=]{0,3}(?:at )?(?:PCI:)?"
    r"([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}(?:\.[0-9A-Fa-f])?)"
)
_GPU_INDEX = re.compile(r"\b(?:GPU|cuda:|device=)[ :#]{0,2}(\d{1,2})\b|\), device (\d{1,2})\b")
_NEAR, _AFTER = 6 << 10, 8
"""Number of bytes within which most tracebacks have ended, and number of lines that must follow the
end there; with fewer, the whole block is read."""
_ANNOUNCED = 2
"""Number of lines looked at after one that ends with a colon, such as before a list of tasks."""
_ABORTED = re.compile(r"Signal: Aborted \(6\)|Caught signal 6\b")
"""What the handlers of Open MPI and UCX print where the process aborted itself."""
_SNIPPET = re.compile(r"\[Rank (?P<rank>\d+)(?: Error Snippet)?\]:?")
"""The heading of ``ray.train`` before each failed worker's traceback."""
_SPAWNED = re.compile(r"-- Process (?P<local>\d+) terminated with the following error:$")
"""The heading of ``torch.multiprocessing.spawn`` before the traceback of one of its processes."""
_SCHEDULER = re.compile(r"^\[[\d :.-]{19,30} TP(?P<rank>\d+)\] .*Traceback \(most recent call last")
"""SGLang's heading of a scheduler's traceback, where it names the tensor-parallel rank alone: that
is then the rank."""
_LOGGED = re.compile(
    r"\b(?:ERROR|CRITICAL|FATAL)\b.*(?i:\bexception|\berror\b|failed|failure|crashed|traceback)"
)
"""The message of a logged error that may stand right before its traceback."""
_GATHERED = re.compile(r"Traceback \(most recent call last\): \(RANK (?P<rank>\d+)\)")
"""The heading of ``torch.distributed.checkpoint``, under which each rank prints the tracebacks of
all that failed."""


class ErrorScanner:
    """Examines single lines of a file, and adds what they say to its facts."""

    def __init__(self, out: FileFacts, index: int, catalogue: Catalogue) -> None:
        kind = out.file.kind
        self._out, self._index, self._catalogue = out, index, catalogue
        self._system = kind in _SYSTEM
        self._shapes = KnownShapes(catalogue, kind)
        self._exceptions = ExceptionClassifier(catalogue, kind)
        self._generated = GeneratedText()
        self._taken: set[int] = set()
        self.hits = HitList()

    def scan_line(self, chunk: Chunk, start: int, at: int) -> None:
        """Examine the line that begins at ``start`` and has a trigger word at ``at``."""
        if chunk.base + start in self._taken:
            return
        raw = chunk.line(start, at)
        shape = shape_of(raw)
        if self._shapes.is_ignored(shape):
            return
        if harmless := self._shapes.harmless(shape):
            self.hits.counts[harmless] += 1
            return
        line = parse_line(raw.decode("utf-8", "replace"))
        if not self._understand(line, shape, chunk, start):
            self._shapes.ignore(shape)

    def forget_before(self, offset: int) -> None:
        """No line before this offset of the file will be examined any more."""
        self._taken = {taken for taken in self._taken if taken >= offset}

    def _understand(self, line: ScannedLine, shape: bytes, chunk: Chunk, start: int) -> bool:
        text = line.text
        heads = any(head in text for head in HEADS)
        if heads and (self._system or self._traceback(chunk, start)):
            return True
        if any(mark in text for mark in TABLE_MARKS) and self._exit_table(chunk, start):
            return True
        if "exitcode" in text and self._folded_exit(line, chunk, start):
            return True
        found = self._shapes.search(text, shape)
        if found is None:
            return not self._system and self._bare_exception(line, chunk, start)
        if (parsed := logged_exception(text)) is not None:
            found = self._exceptions.by_module(parsed[0], found)
        if self._is_chatter(found.signature, line):
            return False
        if self._is_of_generated(found.signature, line, chunk, start):
            return True
        self._keep(found, line, chunk, start)
        if "atchdog" in text or "NCCL work" in text:
            own = line.origin.rank
            work = read_work(text, own if own is not None else self._out.file.origin.rank)
            if work is not None and len(self._out.works) < _MOST_PROCESSES:
                self._out.works.append(work)
        return True

    def _is_chatter(self, signature: Signature, line: ScannedLine) -> bool:
        if signature.role in ("note", "harmless"):
            return False
        if self._system and signature.kind not in _SYSTEM_CLASSES:
            return True
        sure = signature.event or signature.weight >= _SURE or signature.role == "echo"
        return not sure and is_quiet(line.text)

    def _is_of_generated(
        self, signature: Signature, line: ScannedLine, chunk: Chunk, start: int
    ) -> bool:
        """Whether what matched is part of a text that a model wrote or was asked."""
        if signature.role in ("note", "harmless"):
            return False
        said = own_words(line.text)
        if said != line.text and self._catalogue.search(said, self._out.file.kind) is None:
            return True
        return self._generated.covers(chunk, start, line, start)

    def _exit_table(self, chunk: Chunk, start: int) -> bool:
        """Whether torchrun's table of the processes that ended begins at ``start``."""
        offsets, lines = chunk.window(start)
        rows = read_table(lines, chunk.year)
        for row in rows:
            name = "exit-by-launcher" if killed_by_launcher(row, rows) else exit_signature(row.code)
            self._add_exit(row, name, lines[row.index], chunk, offsets[row.index])
        if rows:
            last = table_end(lines, max(row.index for row in rows))
            self._taken.update(chunk.base + offset for offset in offsets[: last + 1])
        return bool(rows)

    def _folded_exit(self, line: ScannedLine, chunk: Chunk, start: int) -> bool:
        """Whether ``line`` is a row of such a table that a log service joined into one line."""
        root = TABLE_MARKS[0] in chunk.line_before(start).text
        row = read_row(line.text, chunk.year, root=root)
        if row is not None:
            self._add_exit(row, exit_signature(row.code), line, chunk, start)
        return row is not None

    def _add_exit(
        self, row: ProcessExit, name: str, line: ScannedLine, chunk: Chunk, start: int
    ) -> None:
        origin = Origin(
            rank=row.rank,
            local_rank=row.local_rank,
            pid=row.pid,
            host=row.host,
            task=line.origin.task,
        )
        self._out.processes.append(origin)
        code = "an unknown code" if row.code is None else f"exit code {row.code}"
        what = signal_name(row.code) or code
        when = chunk.when(line.text, start, far=True)
        if row.time is not None:
            when = When(time=row.time, own_time=True)
        text = f"rank {row.rank} on {row.host or '?'} (pid {row.pid}) ended with {what}"
        self.hits.add(
            Hit(
                file=self._index,
                offset=chunk.base + start,
                text=f"{text}: {row.message}" if row.message else text,
                signature=self._catalogue.get(name),
                origin=origin,
                exit=row,
                time=when.time,
                own_time=when.own_time,
                next_time=when.next_time,
            )
        )

    def _traceback(self, chunk: Chunk, start: int) -> bool:
        if HEADER in (head := chunk.lines_from(start, 1)[0]).text and boxed(head.text):
            self._take_box(chunk, start, head.origin)
            return True
        offsets, lines = self._lines_of(chunk, start, _NEAR)
        block = read_traceback(lines, 0)
        if block is None:
            return False
        if block.ended_at is None or len(lines) - block.ended_at < _AFTER:
            offsets, lines = self._lines_of(chunk, start, BLOCK)
            block = read_traceback(lines, 0) or block
        self._taken.update(chunk.base + offsets[i] for i in block.lines)
        if self._is_told_of(chunk, start, offsets[block.lines[-1]]):
            return True
        if not block.raised:
            # Without frames the text may go on behind the header: line breaks were lost.
            return lines[0].text.rstrip().endswith((HEADER, HEADER + ":"))
        chosen, found = self._exceptions.judge(block, lines)
        groups = self._exceptions.groups(found, chosen, lines)
        line = lines[chosen.index]
        what = LogException(kind=chosen.kind, message=chosen.message[:500], frame=chosen.frame)
        self._add(
            SignatureMatch(
                found.signature, {**groups, **_details(found, chunk, offsets[chosen.index])}
            ),
            chunk.base + offsets[chosen.index],
            chosen.text[:MAX_LINE],
            line,
            self._raised_at(chunk, line, lines[0], offsets[:2]),
            origin=_heading(chunk, start) or chosen.process.filled(line.origin),
            exception=what,
        )
        return True

    def _take_box(self, chunk: Chunk, start: int, origin: Origin) -> None:
        """Look at no other line of the box whose line is at ``start``."""
        offsets, lines = chunk.window(start, _NEAR)
        for offset, line in zip(offsets, lines, strict=True):
            if line.origin == origin and not boxed(line.text):
                return
            self._taken.add(chunk.base + offset)

    def _is_told_of(self, chunk: Chunk, start: int, end: int) -> bool:
        """Whether the traceback from ``start`` to ``end`` is part of a text that the process only
        printed."""
        raw = chunk.data[start : start + BLOCK].split(b"\n", 1)[0].decode("utf-8", "replace")
        line = parse_line(raw)
        lead, _, after = line.text.partition(HEADER)
        if after and reported_inside(lead, escaped=_BREAK in after):
            return True
        return self._generated.covers(chunk, start, line, end)

    @staticmethod
    def _lines_of(chunk: Chunk, start: int, reach: int) -> tuple[list[int], list[ScannedLine]]:
        """The lines of ``reach`` bytes from ``start`` on, or those that are escaped in this one."""
        whole = chunk.data[start : start + BLOCK].split(b"\n", 1)[0].decode("utf-8", "replace")
        line = parse_line(whole)
        if inner := escaped_lines(line.text, HEADER, line.origin):
            return [start] * len(inner), inner
        return chunk.window(start, reach)

    @staticmethod
    def _raised_at(
        chunk: Chunk, line: ScannedLine, head: ScannedLine, starts: Sequence[int]
    ) -> When:
        """The exception's own time, else that of its traceback's first line.

        If all are on one line, that line's time counts: the text itself contains other times.
        """
        start = starts[0]
        if starts[1:] == [start]:
            whole = chunk.line(start, start).decode("utf-8", "replace")
            return chunk.when(whole, start, far=True)
        own = chunk.when(line.prefix + line.text, start, far=True)
        return own if own.own_time else chunk.when(head.prefix + head.text, start, far=True)

    def _bare_exception(self, line: ScannedLine, chunk: Chunk, start: int) -> bool:
        parsed = logged_exception(line.text)
        if parsed is None or self._generated.covers(chunk, start, line, start):
            return False
        kind, message = parsed
        if kind.endswith("Warning"):
            return False  # an error only with a traceback
        what = LogException(kind=kind, message=message[:500])
        self._keep(self._exceptions.bare(kind), line, chunk, start, what)
        return True

    def _keep(
        self,
        found: SignatureMatch,
        line: ScannedLine,
        chunk: Chunk,
        start: int,
        exception: LogException | None = None,
    ) -> None:
        origin, processes = line.origin, self._out.processes
        if origin.rank is not None and origin.pid is not None and len(processes) < _MOST_PROCESSES:
            processes.append(origin)
        self._add(
            SignatureMatch(found.signature, self._groups(found, chunk, start)),
            chunk.base + start,
            line.text.strip()[:MAX_LINE],
            line,
            chunk.when(line.prefix + line.text, start, far=True),
            origin=origin,
            exception=exception,
        )

    def _groups(self, found: SignatureMatch, chunk: Chunk, start: int) -> dict[str, str]:
        """What the line names; what it announces may be on the lines that follow it."""
        groups = {**found.groups, **_details(found, chunk, start)}
        if found.signature.kind in _OF_A_DEVICE and "gpu" not in groups:
            groups = {**_device_beside(chunk, start), **groups}
        if groups or found.signature.accuses != "named":
            return groups
        if found.signature.kind in _OF_A_MACHINE and (machine := _machine_of(chunk, start)):
            return machine
        own, *after = chunk.lines_from(start, 1 + _ANNOUNCED)
        # If a terminal wrapped the text, a prefix that names no process is only on the first line.
        wrapped = own.origin.pid is None and own.origin.rank is None
        same = (own.origin, NOBODY) if wrapped else (own.origin,)
        more = [line.text.strip() for line in after if line.origin in same]
        text = " ".join([own.text, *more])[:MAX_LINE]
        return self._catalogue.rule(found.signature.id).search(text, text.lower()) or {}

    def _add(
        self,
        found: SignatureMatch,
        offset: int,
        text: str,
        line: ScannedLine,
        when: When,
        *,
        origin: Origin,
        exception: LogException | None,
    ) -> None:
        self.hits.add(
            Hit(
                file=self._index,
                offset=offset,
                text=text,
                signature=found.signature,
                groups=found.groups,
                origin=origin,
                streamed=is_streamed(line),
                repeated=line.repeated,
                exception=exception,
                time=when.time,
                own_time=when.own_time,
                next_time=when.next_time,
            )
        )


def _heading(chunk: Chunk, start: int) -> Origin | None:
    """Whose traceback it is, where its first line or the one before it says so: Ray Train's
    controller and a spawning process repeat those of their workers, SGLang and torch's
    checkpoints write the rank."""
    head, announced = chunk.lines_from(start, 1)[0], chunk.line_before(start)
    before = announced.text.strip()
    if spawned := _SPAWNED.match(before):
        return Origin(local_rank=int(spawned["local"]))
    match = _GATHERED.search(head.text) or _SNIPPET.match(before)
    if match is None and head.origin.pid is None:
        # Of an engine that is an actor of a job, the prefix says more: its ranks are not a
        # trainer's.
        match = _SCHEDULER.match(head.text)
    if match is not None:
        return Origin(rank=int(match["rank"]))
    # What a logger's exception() prints: its message, and the bare traceback.
    bare = head.origin == NOBODY and announced.origin != NOBODY
    return announced.origin if bare and _LOGGED.search(before) else None


def _device_beside(chunk: Chunk, start: int) -> dict[str, str]:
    """The PCI address or the index of the GPU that the lines around mention, if there is only
    one."""
    own = chunk.lines_from(start, 1)[0].origin
    lines = [line for line in chunk.around(start, _DEVICE_REACH) if line.origin == own]
    for pattern in (_PCI, _GPU_INDEX):
        found = (match for line in lines for match in pattern.finditer(line.text))
        named = {next(filter(None, match.groups())) for match in found}
        if len(named) == 1:
            return {"gpu": named.pop()}
    return {}


def _machine_of(chunk: Chunk, start: int) -> dict[str, str]:
    """The machine that the event at ``start`` is about, by itself or by the lines before it."""
    own = chunk.lines_from(start, 1)[0]
    return machine_of(own.text) or described_machine(chunk.around(start, _DETAILS_REACH)[::-1])


def _details(found: SignatureMatch, chunk: Chunk, start: int) -> dict[str, str]:
    """Details on separate lines: for an actor's death, Ray's pid, ip and class name; after a
    handler's header, the signal."""
    if found.signature.id == "segfault-handler":
        text = "\n".join(line.text for line in chunk.lines_from(start, 1 + _ANNOUNCED))
        return {"signal": "SIGABRT"} if _ABORTED.search(text) else {}
    if not found.signature.id.startswith("ray-actor-died"):
        return {}
    facts: dict[str, str] = {}
    for line in chunk.around(start, _DETAILS_REACH):
        match = _DETAILS.match(line.text)
        if match is not None:
            key = {"class_name": "actor"}.get(match[1], match[1])
            if key in ("pid", "ip", "actor"):
                facts.setdefault(key, match[2].strip())
    return facts
