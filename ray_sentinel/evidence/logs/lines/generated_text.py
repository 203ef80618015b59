"""Text that a process prints of what a model wrote, or was asked: whatever it says of errors, none
of them happened to the process.

Two forms occur. Within one line, the text stands behind its name, or, as a string with escaped line
breaks, on a line that reports no failure::

    INFO step=7 completion: 'It prints\\nTraceback (most recent call last):\\n  File "main.py" ...'

Over several lines, it stands between marks, as verl's reward managers print it (``[prompt]``,
``[response]``, ``[ground_truth]``, ``[score]``), or between the tokens of a chat template. Such
text has marks on both sides: a line with a time or a level of its own in between means that the
process speaks again, and an exception behind one mark alone may be the process's own.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.evidence.logs.lines.chunk import MAX_LINE, Chunk
from ray_sentinel.evidence.logs.lines.levels import is_quiet, level
from ray_sentinel.evidence.logs.lines.lines import Origin, ScannedLine, parse_line
from ray_sentinel.evidence.logs.training.bare_steps import parse_any_step

_NAMES = (
    r"(?:prompts?|completions?|responses?|generat(?:ed|ion)s?(?:[ _]text)?|samples?|questions?"
    r"|(?:model[ _])?(?:outputs?|answers?)|solution(?:[ _](?:str|string))?"
    r"|(?:first )?rollout(?: sample)?|messages? content)"
)
"""What such text is called where it is printed."""
_SURELY = re.compile(
    r"(?i:[\s#=*-]{0,40}\[?"
    r"(?:prompts?|completions?|generations?|generated[ _]text|solution[ _]str)\]? ?[:=])"
)
"""The beginning of a line whose rest can only be such text: an output or an answer may be a
program's."""
_SURE_FIELD = re.compile(r'"(?:prompt|completion|generation|generated_text|solution_str)" ?: ?"')
_FIGURES = (
    r"(?:ground[ _]truth|scores?|rewards?|label|target|expected|extracted|advantages?|correct)"
)
"""What is printed beside it: how it was judged."""
_NAMED = re.compile(
    rf"(?i:\[{_NAMES}\]|\b{_NAMES}['\"]? ?[:=])|<\|[a-z_]+\|>|</?(?:think|answer|tool_response)>"
)
_BEGINS = re.compile(
    rf"(?i:[\s#=*-]*(?:\[{_NAMES}\]|{_NAMES}\s*(?:[:=#*-]|$)))"
    r"|<\|[a-z_]+\|>|</?(?:think|answer|tool_response)>"
)
"""A line with which such text begins."""
_JUDGED = re.compile(rf"(?i:[\s#=*-]*(?:\[{_FIGURES}\]|{_FIGURES}\s*(?:[:=#*-]|$)))")
"""A line that says how it was judged: it ends there."""
_OPENS = re.compile(
    rf"(?i:\[{_NAMES}\]|\b{_NAMES}['\"]? ?[:=])\s*$|<(?:think|answer|tool_response)>\s*$"
)
"""The end of a logger's line after which such text begins."""
_MAY_MARK = (
    *(b"prompt", b"completion", b"response", b"generat", b"output", b"answer", b"solution"),
    *(b"rollout", b"sample", b"question", b"content", b"<|", b"think>", b"tool_response>"),
)
"""One of these is in every line with which such text begins, in small letters: other text is passed
over fast."""
_SPEAKS = re.compile(
    r"\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d|\[?\d\d:\d\d:\d\d\b|[A-Z][a-z]{2} [ \d]\d \d\d:"
)
_FAILED = re.compile(
    r"(?i:error|exception|failed|failure|crash|abort|fatal|died|kill|unhandled|uncaught|raised)"
)
_BORDERS = "│┃|"
_BREAK = "\\n"
_MOST_PROCESSES = 256
_REACH = 16_384
"""Bytes before and after a line among which its marks are looked for."""


def reported_inside(lead: str, *, escaped: bool) -> bool:
    """Whether an error whose text begins behind ``lead``, on one line with it, is only told of in a
    text that the line contains. ``escaped``: its line breaks are written as ``\\n``.

    >>> reported_inside("step=7 completion: it prints ", escaped=False)
    True
    >>> reported_inside("2026-11-01 10:00:02 ERROR step failed: ", escaped=False)
    False
    """
    said = level(lead)
    if said in ("error", "warning") or not lead.strip():
        return False
    named = _NAMED.search(lead)
    if named is not None:
        return _FAILED.search(lead[: named.start()]) is None
    if not escaped or _FAILED.search(lead) is not None:
        return False
    return said in ("info", "debug") or _BREAK in lead


def boxed(text: str) -> bool:
    """Whether the line is within a box or a table, which has a border on both sides: what stands
    there is a value that is shown. (The groups of exceptions that Python prints have one on the
    left side only, and the box that rich draws around a traceback has the header in its border.)

    >>> boxed("| 30 | Traceback (most recent call last): ... | 0.0 |")
    True
    """
    shown = text.strip()
    if len(shown) < 3 or "\u2500" in shown:
        return False
    return shown[0] in _BORDERS and shown[-1] in _BORDERS


def own_words(text: str) -> str:
    """What a line says itself before it quotes such text: all of it where it quotes none.

    >>> own_words('{"step": 3, "completion": "CUDA out of memory means ..."}')
    '{"step": 3, "completion": "'
    """
    found = _SURE_FIELD.search(text) if text[:1] == "{" else _SURELY.match(text)
    if found is None or level(text) in ("error", "warning"):
        return text
    return text[: found.end()]


class _Look(msgspec.Struct, frozen=True):
    """What was found from one line of a process on."""

    at: int
    """The line's offset in the file."""
    until: int = 0
    """Forwards: the offset up to which the answer holds for later lines, too."""
    begun: ScannedLine | None = None
    """Backwards: the line with which the text begins that the line is in."""
    end: Literal["", "mark", "logged"] = ""
    """Forwards: how the text ends; empty where it does not."""


class GeneratedText:
    """Finds such text of several lines around the lines of one file, which come in order.

    What a look found is kept for the next line of the same process, so that each line of the file
    is looked at a bounded number of times.
    """

    def __init__(self) -> None:
        self._until = 0
        """Offset in the file up to which marks were looked for."""
        self._last = -1
        """Offset of the last place found that may be one."""
        self._back: dict[Origin, _Look] = {}
        self._ahead: dict[Origin, _Look] = {}

    def covers(self, chunk: Chunk, start: int, line: ScannedLine, end: int) -> bool:
        """Whether the line at ``start``, up to the last line of its block, which begins at ``end``,
        is within such text."""
        if _speaks(line):
            return False
        begun: ScannedLine | None = line
        if not _BEGINS.match(line.text):
            if not self._may_have_begun(chunk, start):
                return False
            begun = self._beginning(chunk, start, line.origin)
        if begun is None:
            return False
        how = self._end(chunk, end, line.origin)
        return how == "mark" or (how == "logged" and _speaks(begun))

    def _may_have_begun(self, chunk: Chunk, start: int) -> bool:
        least, at = max(0, start - _REACH), chunk.base + start
        if at < self._until:
            self._until, self._last = 0, -1
        since = max(least, self._until - chunk.base)
        part = chunk.data[since:start].lower()
        last = max(map(part.rfind, _MAY_MARK))
        if last >= 0:
            self._last = chunk.base + since + last
        self._until = at
        return self._last >= chunk.base + least

    def _beginning(self, chunk: Chunk, start: int, origin: Origin) -> ScannedLine | None:
        """The last line of the same process that is none of the text's, if the text begins with
        it."""
        known = self._back.get(origin)
        found, end = None, start - 1
        least = max(0, start - _REACH)
        while end > least:
            begin = chunk.data.rfind(b"\n", 0, end) + 1
            if known is not None and known.at == chunk.base + begin:
                found = known.begun
                break
            line = parse_line(chunk.data[begin:end][:MAX_LINE].decode("utf-8", "replace"))
            if line.origin == origin and _BEGINS.match(line.text):
                found = line
                break
            if line.origin == origin and (_speaks(line) or _JUDGED.match(line.text)):
                found = line if _OPENS.search(line.text) else None
                break
            end = begin - 1
        _keep(self._back, origin, _Look(chunk.base + start, begun=found))
        return found

    def _end(self, chunk: Chunk, start: int, origin: Origin) -> str:
        """How the text ends behind the line at ``start``: by a mark or a step of its process, by
        the next message of a logger, or not at all, as far as is looked."""
        known, at = self._ahead.get(origin), chunk.base + start
        if known is not None and known.at <= at < known.until:
            return known.end
        look = _Look(at, until=at + _REACH // 2)
        offset = start
        for raw in chunk.data[start : start + _REACH].split(b"\n"):
            line = parse_line(raw[:MAX_LINE].decode("utf-8", "replace"))
            if offset > start and line.origin == origin and (end := _ending(line)) is not None:
                look = _Look(at, until=chunk.base + offset, end=end)
                break
            offset += len(raw) + 1
        _keep(self._ahead, origin, look)
        return look.end


def _ending(line: ScannedLine) -> Literal["", "mark", "logged"] | None:
    """How the text ends with ``line``; None where it may go on."""
    marked = _BEGINS.match(line.text) or _JUDGED.match(line.text)
    if marked or parse_any_step(line.text) is not None:
        return "mark"
    if _speaks(line):
        return "logged" if is_quiet(line.text) else ""
    return None


def _keep(looks: dict[Origin, _Look], origin: Origin, look: _Look) -> None:
    if len(looks) >= _MOST_PROCESSES:
        looks.clear()
    looks[origin] = look


def _speaks(line: ScannedLine) -> bool:
    """Whether it is the process's own word, a logger's line."""
    return bool(_SPEAKS.match(line.text)) or bool(level(line.text))
