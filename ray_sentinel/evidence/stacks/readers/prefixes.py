"""The prefixes that launchers and log collectors put before each line that a process writes.

A dump that was written to the log comes out of it with the rank (torchrun, srun, mpirun), the
worker (Ray), the container (``docker compose logs``), the time (CRI, ``docker logs -t``, syslog) or
a mail's ``> `` before each line. All are removed, and the indentation is kept.
"""

from __future__ import annotations

from collections.abc import Iterator

from ray_sentinel import regex as re
from ray_sentinel.evidence.logs.lines.lines import launcher_prefix
from ray_sentinel.evidence.logs.lines.structured import undocked

_DOCKER = '{"log":'
_POSTED = re.compile_anchored(
    "|".join(
        (
            r"\[(?P<number>\d+)\]:? ?",
            r"\((?P<worker>[^()\n]{1,200} pid=\d+[^()\n]{0,100})\) ?",
            r"\d{1,6}: ?",
            r"(?P<container>[\w./-]{1,80}) {1,60}\| ?",
            r"\[[^\[\]\n]{10,40}\] (?P<node>[\w-]{1,40}) \[rank=(?P<rank>\d+)\] \|\| ",
            r"(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT[\d:.,]{8,20}"
            r"(?:Z|[+-]\d\d:?\d\d)?) (?!Process \d)[\w.-]{1,80} [\w./-]{1,40}(?:\[\d+\])?: ",
            r"\d{4}-\d\d-\d\d[T ][\d:.,]{8,20}(?:Z|[+-]\d\d:?\d\d)? (?:std(?:out|err) [FP] )?",
            r"> ?",
        )
    )
)
"""Prefixes beyond those of launchers, found only in dumps that were posted or came through
syslog."""
# What begins a stack: prefixes are taken off only where one of these follows them.
_SIGNS = tuple(
    re.compile(sign)
    for sign in (
        r"Process \d+: ",
        r"Current thread ",
        r"Thread ",
        r"thread ",
        r"File \"[^\"\n]+\", line \d",
        r"#0 +(?:0x|[A-Za-z_][^\n]{0,400} \()",
        r"\[<[0-9a-f]+>\] ",
    )
)
"""The beginnings of lines of a stack. Each is searched for by itself: an expression that begins
with a word is found many times faster."""
_OF_KERNEL = re.compile(r"\+0x[0-9a-f]+/0x")
_FUNCTION = re.compile(r"(?:\? )?(?<![\w.])[A-Za-z_][\w.]*$")
_BLANK = re.compile(r"[ \t]{0,8}(?:\[[ \d.]{5,20}\][ \t]*)?")
"""What may stand between the prefixes and the sign: indentation, and the kernel's own clock."""
_DEEPEST = 4
_FARTHEST = 400
"""Most characters that the prefixes of a line take; what follows more is no sign."""

_WRITERS = frozenset({"rank", "local", "of_role", "task", "pid", "worker", "number"})
"""The groups of the prefixes that distinguish one process from another."""
_COUNTED = frozenset({"task", "number"})
"""The groups that are mere numbers, with which the line itself may begin."""
_FOLDED = re.compile(
    r"(?:\.\w+:\d+\)|\.so[.\d]*\)|line \d+,? in \S+) \[repeated \d+x across cluster\]"
)


def is_folded(text: str) -> bool:
    """Whether Ray printed a frame once for several workers, so that no worker's stack is
    complete."""
    return "across cluster]" in text and _FOLDED.search(text) is not None


def without_prefixes(text: str) -> str:
    """``text`` without the prefixes of its lines; unchanged if there is no stack behind them.

    >>> without_prefixes('w-1  | Thread 7 (idle): "MainThread"\\nw-1  |     f (a.py:1)')
    'Thread 7 (idle): "MainThread"\\n    f (a.py:1)'
    """
    if text.startswith(_DOCKER):
        text = "\n".join(map(undocked, text.split("\n")))
    if not any(_stands_behind(text, begin) for begin in _signs(text)):
        return text
    return "\n".join(line[_end(line) :] for line in text.split("\n"))


def _signs(text: str) -> Iterator[int]:
    for sign in _SIGNS:
        yield from (found.start() for found in sign.finditer(text))
    for frame in _OF_KERNEL.finditer(text):
        front = max(0, frame.start() - _FARTHEST)
        front = max(front, text.rfind("\n", front, frame.start()) + 1)
        if function := _FUNCTION.search(text[front : frame.start()]):
            yield front + function.start()


def _stands_behind(text: str, sign: int) -> bool:
    """Whether there are prefixes and nothing else between the line's beginning and ``sign``."""
    # No further back than prefixes reach: a line may have no end.
    begin = text.rfind("\n", max(0, sign - _FARTHEST - 1), sign) + 1
    if begin == sign or sign - begin > _FARTHEST:
        return False
    line = text[begin : sign + _FARTHEST].partition("\n")[0]
    for end in _ends(line):
        blank = _BLANK.match(line, end)
        if end and blank is not None and begin + blank.end() == sign:
            return True
    return False


def _ends(line: str) -> Iterator[int]:
    """Where the first prefix ends, the first two, ..."""
    at = 0
    for _ in range(_DEEPEST):
        found = _POSTED.match(line, at) or launcher_prefix(line, at)
        if found is None or found.end() == at:
            return
        at = found.end()
        yield at


def prefix_fields(line: str) -> dict[str, str]:
    """What the prefixes of ``line`` state about who printed it, by the launchers' keywords."""
    said: dict[str, str] = {}
    at = 0
    for _ in range(_DEEPEST):
        found = launcher_prefix(line, at) or _POSTED.match(line, at)
        if found is None or found.end() == at:
            break
        words = {key: value for key, value in found.groupdict().items() if value}
        if said.keys() & _WRITERS and words.keys() & _COUNTED:
            break  # a number of the text itself: who printed the line is known
        said = {**words, **said}
        at = found.end()
    said.pop("time", None)
    return said


def _end(line: str) -> int:
    return max(_ends(line), default=0)
