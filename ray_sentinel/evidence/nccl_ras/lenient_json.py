"""JSON documents in a text that may contain other things, lack commas, or be cut off anywhere.

NCCL 2.28.9 leaves out a comma in the entries of ``missing_ranks``. Commas carry no meaning beyond
that of brackets, keys and values: a document that a strict parser rejects is read again with commas
as spaces. A truncated document keeps its complete part; containers left open are marked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from ray_sentinel import regex as re

CUT = "__cut__"
"""The key that marks an object in which the text ended."""
MOST_DEPTH = 32
"""Most levels of nested values that are kept; no answer of RAS has more."""

_TOKEN = re.compile_anchored(
    r"""[\s,:]+|(?P<open>[{\[])|(?P<close>[}\]])|(?P<quote>")"""
    r"""|(?P<number>-?\d{1,20}(?:\.\d{1,20})?(?:[eE][+-]?\d{1,3})?)"""
    r"""|(?P<word>true|false|null|-?nan|-?inf(?:inity)?|NaN|Infinity)""",
)
_MOST_REFUSED = 50
"""Most documents that the strict parser may refuse before it is no longer asked: at each refusal it
counts all lines before it."""
_WORDS = {"true": True, "false": False}
_START = re.compile(r"\{\s*\"")
_strict = json.JSONDecoder(parse_constant=lambda _: None)


class Document(msgspec.Struct, kw_only=True):
    """One JSON object in a text."""

    value: dict[str, Any]
    repaired: bool = False
    """The text was not valid JSON."""
    cut: bool = False
    """The text ended within the document."""


def documents(text: str) -> Iterator[Document]:
    """The JSON objects in ``text``, in order; anything between them is skipped."""
    at = refused = 0
    while (found := _START.search(text, at)) is not None:
        document, at = _read(text, found.start(), strictly=refused < _MOST_REFUSED)
        refused += document.repaired
        yield document


def _read(text: str, start: int, *, strictly: bool) -> tuple[Document, int]:
    if not strictly:
        return _Reader().read(text, start)
    try:
        value, end = _strict.raw_decode(text, start)
    except (ValueError, RecursionError):
        return _Reader().read(text, start)
    return Document(value=value), end


class _Reader:
    """A parser that takes what makes sense and remembers that it had to."""

    def __init__(self) -> None:
        self.root: dict[str, Any] = {}
        self.stack: list[Any] = []
        self.open: dict[type, int] = {dict: 0, list: 0}
        """Containers of each kind in the stack: a bracket that closes none is told by it."""
        self.keys: list[str | None] = []

    def read(self, text: str, start: int) -> tuple[Document, int]:
        """The object that begins at ``start``, and where it ends."""
        at = start
        while at < len(text):
            token = _TOKEN.match(text, at)
            if token is None:
                at += 1  # not JSON at all: a stray byte
                continue
            at = token.end()
            if token["quote"]:
                end = _end_of_string(text, at)
                if end is None:
                    at = len(text)  # the text ends in it
                    break
                self._string(_unquoted(text[at - 1 : end]))
                at = end
                continue
            if token["number"] and at == len(text):
                break  # perhaps the first digits only
            if self._feed(token) and not self.stack:
                return Document(value=self.root, repaired=True), at
        for container in self.stack:
            if isinstance(container, dict):
                container[CUT] = True
        return Document(value=self.root, repaired=True, cut=True), at

    def _feed(self, token: re.Match[str]) -> bool:
        """Whether a container was closed."""
        if token["open"]:
            self._open({} if token["open"] == "{" else [])
        elif token["close"]:
            return self._close(dict if token["close"] == "}" else list)
        elif token["number"]:
            self._value(_number(token["number"]))
        elif token["word"]:
            self._value(_WORDS.get(token["word"]))
        return False

    def _open(self, container: Any) -> None:
        if not self.stack:
            self.root = container
        elif len(self.stack) < MOST_DEPTH:
            self._value(container)
        self.stack.append(container)
        self.open[type(container)] += 1
        self.keys.append(None)

    def _close(self, kind: type) -> bool:
        if not self.open[kind]:
            return False
        while True:
            self.keys.pop()
            closed = type(self.stack.pop())
            self.open[closed] -= 1
            if closed is kind:
                return True

    def _string(self, text: str) -> None:
        if isinstance(self.stack[-1], dict) and self.keys[-1] is None:
            self.keys[-1] = text
        else:
            self._value(text)

    def _value(self, value: Any) -> None:
        container = self.stack[-1]
        if isinstance(container, list):
            container.append(value)
        elif (key := self.keys[-1]) is not None:
            container[key] = value
            self.keys[-1] = None


def _end_of_string(text: str, start: int) -> int | None:
    """The place after the quote that closes the string whose first character is at ``start``, or
    None."""
    at = start
    while (at := text.find('"', at)) >= 0:
        before = at
        while before > start and text[before - 1] == "\\":
            before -= 1
        at += 1
        if (at - 1 - before) % 2 == 0:
            return at
    return None


def _number(text: str) -> int | float:
    return int(text) if text.lstrip("-").isdecimal() else float(text)


def _unquoted(text: str) -> str:
    try:
        return str(json.loads(text, strict=False))
    except ValueError:
        return text[1:-1]
