"""Splits a text with the dumps of several ranks, by launcher prefixes or by lines between them.

A log of torchrun, srun, mpirun, pdsh or Ray states the origin of each line, even if the lines of
several ranks alternate. People who join files by hand write ``# rank: 3`` or ``=== rank 3 ===``
before each.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.evidence.ranks import OTHER_RANK
from ray_sentinel.evidence.stacks.readers import text as tx
from ray_sentinel.evidence.stacks.readers.prefixes import prefix_fields, without_prefixes

# Only what tells where may follow the number: "rank 3 joined the group" and "rank 3 at step 7" are
# a log's lines. Indented, or bare as ``rank = 3``, it is a debugger's word on a variable.
_WHERE = r"(?:host|node|pid|process|gpu)\W+"
_HEAD = re.compile(
    r"(?:[^\w\s]\W*(?:global[ _]?)?rank\s*=|[^\w\s]?\W*(?:global[ _]?)?rank\s*[:#]?)\s*"
    r"(?P<rank>\d{1,6})"
    r"(?P<of>\W+of\W+\d{1,6})?"
    rf"(?:\W*|\W*\([^()]{{1,80}}\)\W*|(?:\W+(?:on\W+(?:{_WHERE})?|{_WHERE})[\w.-]{{1,60}}){{1,4}}\W*)",
    re.IGNORECASE,
)
_MARKED = re.compile(r"\W*[^\w\s.]")
"""What follows "rank 3 of 8" in a header, but not in a sentence."""
_PLACES = ("host", "ip", "node", "container")
_WORDS = {"task": "task", "local": "local rank", "of_role": "local rank", "number": "number"}
_SHORTEST = 2
"""Least number of lines in a stack: a number that changes with every line is part of the lines and
names no writer."""


class TextPart(msgspec.Struct, frozen=True):
    """What one process, or one node, wrote in a text; the whole text if nothing states the
    origin."""

    text: str
    rank: int | None = None
    """The rank of the process that wrote it; None where only a task's number of srun or mpirun is
    known, for a task may be several ranks."""
    host: str = ""
    pid: int = 0
    name: str = ""
    """What distinguishes it from the other parts, for people: ``local rank 3``."""


def parts(text: str, holds_stacks: Callable[[str], bool]) -> tuple[TextPart, ...]:
    """The parts of ``text`` that contain stacks; the text itself unless two do."""
    plain = without_prefixes(text)
    splits = [_by_heads(plain)] if plain is text else [_by_prefix(text), _by_heads(plain)]
    for split in splits:
        found = [part for part in split if holds_stacks(part.text)] if len(split) > 1 else []
        if len(found) > 1 and all(part.text.count("\n") + 1 >= _SHORTEST for part in found):
            return tuple(found)
    return (TextPart(text),)


def _by_prefix(text: str) -> list[TextPart]:
    lines: dict[tuple[str, ...], list[str]] = {}
    said: dict[tuple[str, ...], dict[str, str]] = {}
    ranks: dict[tuple[str, ...], set[str]] = {}
    for line in text.split("\n"):
        words = prefix_fields(line)
        writer = _writer(words)
        lines.setdefault(writer, []).append(line)
        said.setdefault(writer, words)
        if "rank" in words:
            ranks.setdefault(writer, set()).add(words["rank"])
    return [
        _part("\n".join(own), said[writer], ranks.get(writer, set()))
        for writer, own in lines.items()
    ]


def _writer(words: dict[str, str]) -> tuple[str, ...]:
    """What is the same in all lines of a process: torch puts the rank before some of them only."""
    process = tuple(words.get(key, "") for key in ("pid", "worker", *_WORDS))
    return (_place(words), *process, "" if any(process) else words.get("rank", ""))


def _place(words: dict[str, str]) -> str:
    return next((words[key] for key in _PLACES if key in words), "")


def _part(text: str, words: dict[str, str], ranks: set[str]) -> TextPart:
    rank = tx.number(next(iter(ranks))) if len(ranks) == 1 else None
    names = [f"{word} {words[key]}" for key, word in _WORDS.items() if key in words]
    if rank is not None:
        names = [f"rank {rank}"]
    return TextPart(text, rank, _place(words), tx.number(words.get("pid")), ", ".join(names))


def _by_heads(text: str) -> list[TextPart]:
    lines: dict[int | None, list[str]] = {}
    rank: int | None = None
    for line in text.split("\n"):
        if (head := _rank_of_head(line)) is not None:
            rank = head
        lines.setdefault(rank, []).append(line)
    return [
        TextPart("\n".join(own), rank, name="" if rank is None else f"rank {rank}")
        for rank, own in lines.items()
    ]


def _rank_of_head(line: str) -> int | None:
    if len(line) > 200 or line[:1].isspace() or "rank" not in line.lower():
        return None
    line = OTHER_RANK.sub("", line.rstrip())
    head = _HEAD.fullmatch(line)
    if head is None or (head["of"] and not _MARKED.match(line, head.end("of"))):
        return None
    return tx.number(head["rank"])
