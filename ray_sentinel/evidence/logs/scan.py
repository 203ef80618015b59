"""From a log's bytes to its facts, fast: cheap passes find the lines worth a look.

A file is handed in as chunks. In each, every trigger word is looked for with ``bytes.find`` (about
2 GB/s each), and only the lines found are decoded and matched against the catalogue. Lines of equal
shape (digits aside) that matched nothing are soon skipped, so that chatter costs little.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from typing import Any

from ray_sentinel.evidence.logs import facts as header
from ray_sentinel.evidence.logs.catalogue import Catalogue, Found
from ray_sentinel.evidence.logs.exits import TABLE_MARKS, Exit, read_table, signal_name
from ray_sentinel.evidence.logs.levels import is_quiet
from ray_sentinel.evidence.logs.lines import Line, Origin, parse_line
from ray_sentinel.evidence.logs.phases import PhaseSeen, find_phase
from ray_sentinel.evidence.logs.records import FileFacts, Hit, LogFile, StepSeen
from ray_sentinel.evidence.logs.signatures import Rule, Signature
from ray_sentinel.evidence.logs.steps import HINTS, parse_step
from ray_sentinel.evidence.logs.times import parse_time
from ray_sentinel.evidence.logs.tracebacks import (
    HEADER,
    Raised,
    Traceback,
    first_cause,
    is_wrapper,
    parse_exception,
    read_traceback,
)
from ray_sentinel.evidence.logs.watchdog import read_work
from ray_sentinel.model.triage import LogException

MAX_LINE = 6000
"""Characters of a line that are looked at; of a longer one, those around the trigger word."""
BLOCK = 48 * 1024
"""Bytes after a header that may belong to its block."""
KEEP = 48
"""First and last hits kept of each signature in a file."""
_SHAPES = 20_000
_MOST_LINES, _MOST_SWIFT = 20_000, 200
"""Lines of one chunk that a single word may call up, from its front and from its end."""
_MOST_STEPS, _MOST_MARKS = 60_000, 2000
_PATIENCE = 40
_DIGITS = b"0123456789"
_BACK = 6000
_SYSTEM = frozenset({"raylet", "gcs", "ray", "monitor"})
_SYSTEM_CLASSES = frozenset({"oom-host", "node-fail", "gpu-lost"})
"""Ray's own processes speak of much that is no trouble of the job's: only this counts there."""
_SURE = 84
"""A signature of such a weight counts also on a line that calls itself information."""
_DETAILS = re.compile(r"^\s+(class_name|actor_id|pid|name|ip|node_id|Node Id): (.{1,200})$")
_KNOWN_AFTER = 12
_DULL_AFTER = 3
"""A shape of line that was so often no step and no mark of a phase is not looked at again."""

SWIFT: tuple[bytes, ...] = (
    b"traceback (most",
    b"error: ",
    b"out of memory",
    b"watchdog caught",
    b"no space left",
    b"nvrm: xid",
    b"exitcode",
    b"heartbeat",
    b"cancelled at",
    b"unexpectedly",
    b"fatal",
    b"killed",
)
"""What is still looked for in the middle of very large files."""


class Scanner:
    """Collects the facts of one file. Feed it the file's chunks in order."""

    def __init__(self, file: LogFile, index: int, catalogue: Catalogue, year: int) -> None:
        self.catalogue, self.index, self.year = catalogue, index, year
        self.out = FileFacts(file=file)
        self._first: dict[str, list[Hit]] = {}
        self._last: dict[str, deque[Hit]] = {}
        self._shapes: dict[bytes, int] = {}
        self._taken: set[int] = set()
        self._known: dict[bytes, tuple[Rule, int]] = {}
        self._dull: dict[bytes, int] = {}

    def feed(self, data: bytes, base: int, limit: int, *, thorough: bool = True) -> None:
        """Look at the lines of ``data`` that begin before ``limit``; what follows is only context.

        ``base`` is the file's offset of ``data[0]``, which must be a line's first byte.
        """
        if b"\r" in data:
            data = data.replace(b"\r", b"\n")
        words = self.catalogue.triggers if thorough else SWIFT
        most = _MOST_LINES if thorough else _MOST_SWIFT
        for start, at in _lines_with(data.lower(), words, limit, most):
            if base + start not in self._taken:
                self._look(data, start, at, base)
        self._taken = {offset for offset in self._taken if offset >= base + limit}

    def sample(self, data: bytes, base: int) -> None:
        """Read the steps and the phases of a window of the file."""
        if b"\r" in data:
            data = data.replace(b"\r", b"\n")
        for start, raw in _split(data):
            shape = raw[:400].translate(None, _DIGITS)
            dull = self._dull.get(shape, 0)
            if dull >= _DULL_AFTER or not raw:
                continue
            line = parse_line(raw[:MAX_LINE].decode("utf-8", "replace"))
            if any(hint in raw for hint in HINTS) and self._step(line, data, start, base):
                continue
            if not self._phase(line, data, start, base) and len(self._dull) < _SHAPES:
                self._dull[shape] = dull + 1

    def ends(self, head: bytes, tail: bytes, tail_base: int) -> None:
        """Note when the file begins and ends, and what its header says."""
        self.out.first_time = _first_time(head, self.year)
        self.out.last_time = _last_time(tail, self.year)
        self.out.torn = bool(tail) and not tail.endswith((b"\n", b"\r"))
        lines = [(at, raw) for at, raw in _split(tail.replace(b"\r", b"\n")) if raw.strip()]
        if lines:
            at, raw = lines[-1]
            self.out.last_line = parse_line(raw[:MAX_LINE].decode("utf-8", "replace")).text
            self.out.last_offset = tail_base + at
        self.out.facts = header.read_header(head)

    def result(self) -> FileFacts:
        """The facts of everything fed."""
        hits = [hit for kept in self._first.values() for hit in kept]
        hits += [hit for kept in self._last.values() for hit in kept]
        self.out.hits = sorted(hits, key=lambda hit: hit.offset)
        self.out.steps.sort(key=lambda seen: seen.offset)
        self.out.phases.sort(key=lambda seen: seen.offset)
        return self.out

    def _look(self, data: bytes, start: int, at: int, base: int) -> None:
        end = data.find(b"\n", at)
        end = len(data) if end < 0 else end
        raw = data[start:end]
        if len(raw) > MAX_LINE:
            raw = raw[max(0, at - start - MAX_LINE // 2) :][:MAX_LINE]
        shape = raw[:400].translate(None, _DIGITS)
        seen = self._shapes.get(shape, 0)
        if seen >= _PATIENCE or self._only_counted(shape):
            return
        line = parse_line(raw.decode("utf-8", "replace"))
        if not self._understand(line, shape, data, start, base) and len(self._shapes) < _SHAPES:
            self._shapes[shape] = seen + 1

    def _only_counted(self, shape: bytes) -> bool:
        """Chatter that an entry knows as harmless, seen often enough: only counted from now on."""
        known = self._known.get(shape)
        if known is None or known[1] < _KNOWN_AFTER or not known[0].signature.harmless:
            return False
        self.out.counts[known[0].signature.id] += 1
        return True

    def _understand(self, line: Line, shape: bytes, data: bytes, start: int, base: int) -> bool:
        text = line.text
        system = self.out.file.kind in _SYSTEM
        if HEADER in text and (system or self._traceback(data, start, base)):
            return True
        if any(mark in text for mark in TABLE_MARKS) and self._table(data, start, base):
            return True
        found = self._search(text, shape)
        if found is None:
            return not system and self._bare_exception(line, data, start, base)
        if self._is_chatter(found.signature, line):
            return False
        self._keep(found, line, data, start, base)
        if "atchdog" in text or "NCCL work" in text:
            work = read_work(text, self._rank(line.origin))
            if work is not None and len(self.out.works) < 4096:
                self.out.works.append(work)
        return True

    def _search(self, text: str, shape: bytes) -> Found | None:
        """The catalogue's answer; for a shape that got the same one often, only that is tried."""
        known = self._known.get(shape)
        if known is not None and known[1] >= _KNOWN_AFTER:
            groups = known[0].search(text, text.lower())
            if groups is not None:
                return Found(known[0].signature, groups)
        kind = self.out.file.kind
        found = self.catalogue.search(text, kind)
        if found is None and (harmless := self.catalogue.harmless(text, kind)) is not None:
            found = Found(harmless, {})
        if found is not None and len(self._known) < _SHAPES:
            rule = self.catalogue.rule(found.signature.id)
            same = known is not None and known[0] is rule
            self._known[shape] = (rule, known[1] + 1 if known is not None and same else 1)
        return found

    def _is_chatter(self, signature: Signature, line: Line) -> bool:
        if signature.role in ("note", "harmless"):
            return False
        if self.out.file.kind in _SYSTEM and signature.kind not in _SYSTEM_CLASSES:
            return True
        return signature.weight < _SURE and signature.role != "echo" and is_quiet(line.text)

    def _rank(self, origin: Origin) -> int | None:
        return origin.rank if origin.rank is not None else self.out.file.origin.rank

    def _traceback(self, data: bytes, start: int, base: int) -> bool:
        offsets, lines = _window(data, start)
        block = read_traceback(lines, 0)
        if block is None:
            return False
        self._taken.update(base + offsets[i] for i in block.lines)
        if not block.raised:
            return True
        self._exception(block, lines, data, offsets, base)
        return True

    def _exception(
        self, block: Traceback, lines: list[Line], data: bytes, offsets: list[int], base: int
    ) -> None:
        chosen, found = self._judge(block, lines)
        groups = self._wider_groups(found, chosen, lines)
        line = lines[chosen.index]
        origin = chosen.process.filled(line.origin)
        self._store(
            Hit(
                file=self.index,
                offset=base + offsets[chosen.index],
                text=chosen.text[:MAX_LINE],
                signature=found.signature,
                groups={**groups, **self._details(found, data, offsets[chosen.index])},
                origin=origin,
                streamed=_is_streamed(line),
                repeated=line.repeated,
                exception=LogException(
                    kind=chosen.kind, message=chosen.message[:500], frame=chosen.frame
                ),
                **self._when(line.text, data, offsets[0]),
            )
        )

    def _judge(self, block: Traceback, lines: list[Line]) -> tuple[Raised, Found]:
        """The exception of the chain that says most, and its signature."""
        fallback: tuple[Raised, Found] | None = None
        for raised in first_cause(block):
            tail = " ".join(x.text.strip() for x in lines[raised.index + 1 : raised.index + 4])
            found = self.catalogue.search(f"{raised.text}", self.out.file.kind)
            if found is None or found.signature.role not in ("cause", "harmless"):
                wider = self.catalogue.search(f"{raised.text} {tail}"[:2000], self.out.file.kind)
                found = wider if wider is not None and wider.signature.role == "cause" else found
            if found is not None and found.signature.role in ("cause", "harmless"):
                return raised, found
            if fallback is None:
                fallback = raised, found or self._by_place(raised)
        assert fallback is not None, "a block without exceptions is not judged"
        place = self._by_place(fallback[0])
        if fallback[1].signature.role == "echo" and place.signature.role == "cause":
            return fallback[0], place
        last = [r for r in block.raised if not is_wrapper(r.kind)]
        if last and fallback[1].signature.id == "python-exception":
            return last[-1], self._by_place(last[-1])
        return fallback

    def _by_place(self, raised: Raised) -> Found:
        """What the frames of an exception that no entry knows tell."""
        if is_wrapper(raised.kind):
            return Found(self.catalogue.get("python-wrapper"), {})
        place = self.catalogue.search_frames(raised.frames)
        return Found(place or self.catalogue.get("python-exception"), {})

    def _wider_groups(self, found: Found, chosen: Raised, lines: list[Line]) -> dict[str, str]:
        """Facts that stand on the lines after the exception's own, in a message of several."""
        groups = dict(found.groups)
        rule = self.catalogue.rule(found.signature.id)
        for line in lines[chosen.index + 1 : chosen.index + 5]:
            for key, value in (rule.search(line.text, line.text.lower()) or {}).items():
                groups.setdefault(key, value)
        return groups

    def _bare_exception(self, line: Line, data: bytes, start: int, base: int) -> bool:
        """An exception's line whose traceback is not there."""
        parsed = parse_exception(line.text)
        if parsed is None:
            return False
        kind, message = parsed
        name = "python-wrapper" if is_wrapper(kind) else "python-exception"
        found = Found(self.catalogue.get(name), {})
        self._keep(found, line, data, start, base, LogException(kind=kind, message=message[:500]))
        return True

    def _table(self, data: bytes, start: int, base: int) -> bool:
        offsets, lines = _window(data, start)
        rows = read_table(lines, 0, self.year)
        for row in rows:
            self._exit(row, lines[row.index], data, base + offsets[row.index], offsets[row.index])
        if rows:
            last = max(row.index for row in rows)
            self._taken.update(base + offset for offset in offsets[: last + 1])
        return bool(rows)

    def _exit(self, row: Exit, line: Line, data: bytes, offset: int, start: int) -> None:
        origin = Origin(rank=row.rank, local_rank=row.local_rank, pid=row.pid, host=row.host)
        self.out.people.append(origin)
        what = signal_name(row.code) or f"exit code {row.code}"
        when = self._when(line.text, data, start)
        if row.time is not None:
            when = {"time": row.time, "own_time": True}
        text = f"rank {row.rank} on {row.host or '?'} (pid {row.pid}) ended with {what}"
        self._store(
            Hit(
                file=self.index,
                offset=offset,
                text=f"{text}: {row.message}" if row.message else text,
                signature=self.catalogue.get(exit_signature(row.code)),
                origin=origin,
                exit=row,
                **when,
            )
        )

    def _keep(
        self,
        found: Found,
        line: Line,
        data: bytes,
        start: int,
        base: int,
        exception: LogException | None = None,
    ) -> None:
        origin = line.origin
        if origin.rank is not None and origin.pid is not None and len(self.out.people) < 4096:
            self.out.people.append(origin)
        self._store(
            Hit(
                file=self.index,
                offset=base + start,
                text=line.text.strip()[:MAX_LINE],
                signature=found.signature,
                groups={**found.groups, **self._details(found, data, start)},
                origin=origin,
                streamed=_is_streamed(line),
                repeated=line.repeated,
                exception=exception,
                **self._when(line.prefix + line.text, data, start),
            )
        )

    def _details(self, found: Found, data: bytes, start: int) -> dict[str, str]:
        """What Ray prints in lines of its own around an actor's death: pid, ip, class name."""
        if not found.signature.id.startswith("ray-actor-died"):
            return {}
        facts: dict[str, str] = {}
        around = data[max(0, start - 1500) : start + 1500].decode("utf-8", "replace")
        for raw in around.split("\n"):
            match = _DETAILS.match(parse_line(raw).text)
            if match is not None:
                key = {"class_name": "actor"}.get(match[1], match[1])
                if key in ("pid", "ip", "actor"):
                    facts.setdefault(key, match[2].strip())
        return facts

    def _store(self, hit: Hit) -> None:
        name = hit.signature.id
        self.out.counts[name] = self.out.counts.get(name, 0) + hit.repeated
        first = self._first.setdefault(name, [])
        if len(first) < KEEP:
            first.append(hit)
        else:
            self._last.setdefault(name, deque(maxlen=KEEP)).append(hit)

    def _when(self, text: str, data: bytes, start: int) -> dict[str, Any]:
        """The times of a hit: its own, or those of the dated lines around it."""
        own = parse_time(text, self.year)
        if own is not None:
            return {"time": own, "own_time": True}
        end = data.find(b"\n", start)
        after = data[end + 1 : end + 1 + _BACK].split(b"\n") if end >= 0 else []
        return {
            "time": self._dated(reversed(data[max(0, start - _BACK) : start].split(b"\n"))),
            "own_time": False,
            "next_time": self._dated(after),
        }

    def _dated(self, lines: Iterable[bytes]) -> float | None:
        for raw in lines:
            when = parse_time(raw[:200].decode("utf-8", "replace"), self.year) if raw else None
            if when is not None:
                return when
        return None

    def _step(self, line: Line, data: bytes, start: int, base: int) -> bool:
        step = parse_step(line.text)
        if step is None:
            return False
        if len(self.out.steps) < _MOST_STEPS:
            when = self._when(line.prefix + line.text, data, start)["time"]
            seen = StepSeen(
                step=step,
                offset=base + start,
                time=when,
                rank=self._rank(line.origin),
                pid=line.origin.pid,
                streamed=_is_streamed(line),
            )
            self.out.steps.append(seen)
        return True

    def _phase(self, line: Line, data: bytes, start: int, base: int) -> bool:
        mark = find_phase(self.catalogue.marks, line.text)
        if mark is None:
            return False
        if len(self.out.phases) < _MOST_MARKS:
            self.out.phases.append(
                PhaseSeen(
                    phase=mark.phase,
                    mark=mark.id,
                    offset=base + start,
                    time=self._when(line.prefix + line.text, data, start)["time"],
                    text=line.text[:300],
                )
            )
        return True


def _is_streamed(line: Line) -> bool:
    """Whether the line bears Ray's prefix ``(Actor pid=...)``."""
    return bool(line.origin.actor and line.origin.pid)


def exit_signature(code: int | None) -> str:
    """The catalogue entry for a process that ended with ``code``."""
    name = signal_name(code)
    if name in ("SIGTERM", "SIGINT", "SIGHUP"):
        return "exit-by-launcher"
    if name == "SIGABRT":
        return "exit-abort"
    if name:
        return "exit-by-signal"
    return "exit-code"


def _lines_with(
    lower: bytes, words: tuple[bytes, ...], limit: int, most: int
) -> list[tuple[int, int]]:
    """(line start, position of a word) of the lines that hold one of ``words``, in order.

    A word that stands on more than ``most`` lines is chatter: only its first and last ones count.
    """
    found: dict[int, int] = {}
    for word in words:
        at, left = lower.find(word, 0, limit), most
        while at >= 0 and left:
            found.setdefault(lower.rfind(b"\n", 0, at) + 1, at)
            end = lower.find(b"\n", at)
            at = lower.find(word, end, limit) if end >= 0 else -1
            left -= 1
        if at >= 0:
            _last_lines(lower, word, at, limit, most, found)
    return sorted(found.items())


def _last_lines(
    lower: bytes, word: bytes, begin: int, limit: int, most: int, found: dict[int, int]
) -> None:
    at, left = lower.rfind(word, begin, limit), most
    while at >= 0 and left:
        start = lower.rfind(b"\n", 0, at) + 1
        found.setdefault(start, at)
        at = lower.rfind(word, begin, max(begin, start))
        left -= 1


def _window(data: bytes, start: int) -> tuple[list[int], list[Line]]:
    """Offsets within ``data`` and lines of the text from ``start`` on."""
    offsets, lines = [], []
    for at, raw in _split(data[start : start + BLOCK]):
        offsets.append(start + at)
        lines.append(parse_line(raw[:MAX_LINE].decode("utf-8", "replace")))
    return offsets, lines


def _split(data: bytes) -> list[tuple[int, bytes]]:
    at, found = 0, []
    for raw in data.split(b"\n"):
        found.append((at, raw))
        at += len(raw) + 1
    return found


def _first_time(head: bytes, year: int) -> float | None:
    for raw in head[:65536].split(b"\n")[:400]:
        when = parse_time(raw[:200].decode("utf-8", "replace"), year)
        if when is not None:
            return when
    return None


def _last_time(tail: bytes, year: int) -> float | None:
    for raw in reversed(tail[-262144:].split(b"\n")):
        when = parse_time(raw[:200].decode("utf-8", "replace"), year) if raw else None
        if when is not None:
            return when
    return None
