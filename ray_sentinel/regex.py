"""Regular expressions whose time grows with the text's length and no faster: a stand-in for ``re``.

``re`` tries one way after another; whoever writes the text can make it try quadratically many, or
worse, with the interpreter's lock held. What is read here (logs, stacks, tool output, command
lines) is written by others. So each expression is looked at once, as a parse tree:

- Where ``re`` is proved to need no more than linear time (``linear_time``), it stays with ``re``,
  which starts fastest and is always there.
- All else runs in RE2, which follows all ways at once. It knows no lookaround and no backreference;
  an expression that needs them and is not proved is refused (``error``).

The modules of the package import this as ``re``. What differs where RE2 runs: ``\\d`` is an ASCII
digit, ``\\b`` an ASCII word's edge, there is no VERBOSE, and ``$`` takes in a newline at the very
end of the text.

RE2 is loaded at the first use. On a node without it (another architecture than the one that the
package was shipped from) ``re`` runs on the first ``BOUNDED`` characters alone.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator
from re import ASCII, DOTALL, IGNORECASE, MULTILINE, Match, Pattern, error, escape
from typing import Any, AnyStr, Protocol, cast

from ray_sentinel.linear_time import is_linear, parse

__all__ = [
    "ASCII",
    "BOUNDED",
    "DOTALL",
    "IGNORECASE",
    "MULTILINE",
    "AnchoredPattern",
    "LazyPattern",
    "LinearMatch",
    "LinearPattern",
    "Match",
    "Pattern",
    "check",
    "compile",
    "compile_anchored",
    "error",
    "escape",
    "findall",
    "finditer",
    "fullmatch",
    "match",
    "search",
    "split",
    "sub",
]

BOUNDED = 400
"""Most characters that ``re`` is given where it stands in for RE2: on as many, the worst expression
of the package takes some tens of milliseconds."""
_MEMORY = 4 << 20
"""Bytes that RE2 may use for one expression; if it needs more, it works more slowly."""

_REPEATS = frozenset({"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"})
_DIGITS = ((0x30, 0x39),)
_LETTERS = (
    *((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A), (0xAA, 0xAA), (0xB5, 0xB5)),
    *((0xBA, 0xBA), (0xC0, 0xD6), (0xD8, 0xF6), (0xF8, 0x1FFF), (0x2070, 0x218F)),
    *((0x2C00, 0x2FEF), (0x3005, 0x3007), (0x3021, 0xFEFE), (0xFF10, 0xFFEF)),
    *((0x10000, 0x1EFFF), (0x20000, 0x10FFFF)),
)
"""Ranges of word characters: all except the other ASCII characters and the blocks of punctuation,
symbols and pictures. These are few ranges, while the letters alone would be hundreds."""
_BLANKS = (
    *((0x09, 0x0D), (0x1C, 0x20), (0x85, 0x85), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A)),
    *((0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000)),
)


def _written(ranges: Iterable[tuple[int, int]]) -> str:
    return "".join(rf"\x{{{low:x}}}-\x{{{high:x}}}" for low, high in ranges)


def _others(ranges: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    at = 0
    for low, high in ranges:
        if at < low:
            yield at, low - 1
        at = high + 1
    if at <= 0x10FFFF:
        yield at, 0x10FFFF


_CLASSES = {
    **{"d": _written(_DIGITS), "w": _written(_LETTERS), "s": _written(_BLANKS)},
    **{"D": _written(_others(_DIGITS)), "W": _written(_others(_LETTERS))},
    **{"S": _written(_others(_BLANKS))},
}
_BYTE_CLASSES = {
    **{"d": "0-9", "w": "0-9A-Za-z_", "s": r"\t-\r ", "D": r"\D", "W": r"\W"},
    "S": r"\x00-\x08\x0e-\x1f\x21-\xff",
}
_TEMPLATE = re.compile(r"\\(?:g<(\w+)>|(\d{1,2})|(.))", re.DOTALL)


_METHODS = ("search", "match", "fullmatch", "finditer", "findall", "split", "sub")
_FACTS = ("flags", "groups", "groupindex")


class LazyPattern:
    """An expression whose engine is chosen at its first use; then it has that engine's methods."""

    __slots__ = ("anchored", "given_flags", "pattern", *_METHODS, *_FACTS)

    def __init__(self, pattern: str | bytes, flags: int, anchored: bool) -> None:
        self.pattern = pattern
        self.given_flags = flags
        """As they were asked for; ``flags`` are the engine's, with what the expression says."""
        self.anchored = anchored

    def __getattr__(self, name: str) -> Any:
        # Asked for what has no value yet.
        if name not in _METHODS and name not in _FACTS:
            raise AttributeError(name)
        if is_linear(self.pattern, self.given_flags, anchored=self.anchored):
            engine: Any = re.compile(self.pattern, self.given_flags)
        else:
            engine = LinearPattern(self.pattern, self.given_flags)
        for fact in _FACTS:
            setattr(self, fact, getattr(engine, fact))
        for method in ("match", "fullmatch") if self.anchored else _METHODS:
            setattr(self, method, getattr(engine, method))
        return object.__getattribute__(self, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return LazyPattern, (self.pattern, self.given_flags, self.anchored)

    def __repr__(self) -> str:
        return f"regex.compile({self.pattern!r})"


class AnchoredPattern(Protocol[AnyStr]):
    """An expression for the text's front or all of it: one attempt each, so more is allowed."""

    pattern: AnyStr
    match: Callable[..., Match[AnyStr] | None]
    fullmatch: Callable[..., Match[AnyStr] | None]


def compile(pattern: AnyStr, flags: int = 0) -> Pattern[AnyStr]:
    """``pattern`` ready to use; the engine is chosen, and compiles, at the first use.

    That raises ``error`` for an invalid expression and for one that cannot run in linear time:
    ``check`` those of users.
    """
    return cast("Pattern[AnyStr]", LazyPattern(pattern, flags, False))


def compile_anchored(pattern: AnyStr, flags: int = 0) -> AnchoredPattern[AnyStr]:
    """As ``compile``, for ``match`` and ``fullmatch`` only."""
    return cast("AnchoredPattern[AnyStr]", LazyPattern(pattern, flags, True))


def check(pattern: Pattern[Any]) -> None:
    """Raise ``error`` if that expression, made by ``compile``, cannot be used."""
    _ = pattern.groups


@functools.lru_cache(maxsize=256)
def _compiled(pattern: Any, flags: int) -> Any:
    return compile(pattern, flags)


def search(pattern: AnyStr, text: AnyStr, flags: int = 0) -> Match[AnyStr] | None:
    """As ``re.search``."""
    return cast("Pattern[AnyStr]", _compiled(pattern, flags)).search(text)


def match(pattern: AnyStr, text: AnyStr, flags: int = 0) -> Match[AnyStr] | None:
    """As ``re.match``."""
    return cast("Pattern[AnyStr]", _compiled(pattern, flags)).match(text)


def fullmatch(pattern: AnyStr, text: AnyStr, flags: int = 0) -> Match[AnyStr] | None:
    """As ``re.fullmatch``."""
    return cast("Pattern[AnyStr]", _compiled(pattern, flags)).fullmatch(text)


def findall(pattern: AnyStr, text: AnyStr, flags: int = 0) -> list[Any]:
    """As ``re.findall``."""
    return cast("Pattern[AnyStr]", _compiled(pattern, flags)).findall(text)


def finditer(pattern: AnyStr, text: AnyStr, flags: int = 0) -> Iterator[Match[AnyStr]]:
    """As ``re.finditer``."""
    return cast("Pattern[AnyStr]", _compiled(pattern, flags)).finditer(text)


def split(pattern: AnyStr, text: AnyStr, maxsplit: int = 0, flags: int = 0) -> list[AnyStr | Any]:
    """As ``re.split``."""
    return cast("Pattern[AnyStr]", _compiled(pattern, flags)).split(text, maxsplit)


def sub(
    pattern: AnyStr,
    repl: AnyStr | Callable[[Match[AnyStr]], AnyStr],
    text: AnyStr,
    count: int = 0,
    flags: int = 0,
) -> AnyStr:
    """As ``re.sub``."""
    return cast("Pattern[AnyStr]", _compiled(pattern, flags)).sub(repl, text, count)


def _needed(items: Any) -> list[int]:
    """The longest run of characters that stands in every match."""
    best: list[int] = []
    run: list[int] = []
    for op, value in items:
        name = str(op)
        if name == "LITERAL":
            run.append(value)
            continue
        inner: list[int] = []
        if name == "SUBPATTERN" and not value[1] and not value[2]:
            inner = _needed(value[3])
        elif name in _REPEATS and value[0] >= 1:
            inner = _needed(value[2])
        best = max(best, run, inner, key=len)
        run = []
    return max(best, run, key=len)


# The expression as RE2 writes it -----------------------------------------------------------------


def _translated(pattern: str, flags: int, *, is_bytes: bool) -> str:
    """``pattern`` in RE2's syntax, with what ``re`` means by it."""
    classes = _BYTE_CLASSES if is_bytes or flags & re.ASCII else _CLASSES
    end = "$" if flags & re.MULTILINE else r"(?:\n?\z)"
    out: list[str] = []
    at, inside = 0, -1
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            text, at = _escape(pattern, at, classes, inside >= 0)
            out.append(text)
            continue
        if inside >= 0:
            if char == "]" and at > inside:
                inside = -1
            out.append("\\[" if char == "[" else char)
        elif char == "[":
            negated = pattern[at + 1 : at + 2] == "^"
            inside = at + 2 if negated else at + 1
            out.append("[^" if negated else "[")
            if pattern[inside : inside + 1] == "]":
                out.append("\\]")
                inside += 1
            at = inside
            inside -= 1  # a class is not empty: a bracket here closes it
            continue
        else:
            out.append(end if char == "$" else char)
        at += 1
    marks = "".join(
        letter
        for letter, flag in (("i", re.IGNORECASE), ("m", re.MULTILINE), ("s", re.DOTALL))
        if flags & flag
    )
    return (f"(?{marks})" if marks else "") + "".join(out)


def _escape(pattern: str, at: int, classes: dict[str, str], inside: bool) -> tuple[str, int]:
    """The escape at ``at`` as RE2 writes it, and where the text goes on."""
    letter = pattern[at + 1]
    if letter in classes:
        return (classes[letter] if inside else f"[{classes[letter]}]"), at + 2
    if letter == "Z":
        return r"\z", at + 2
    if letter == "b" and inside:
        return r"\x08", at + 2
    if letter in "uU":
        end = at + (6 if letter == "u" else 10)
        return f"\\x{{{pattern[at + 2 : end]}}}", end
    if not letter.isascii():
        return letter, at + 2
    return f"\\{letter}", at + 2


@functools.lru_cache(maxsize=1)
def _library() -> Any:
    """RE2's module, or None if it is missing."""
    try:
        import re2
    except ImportError:
        return None
    return re2


def _engine(library: Any, source: str, is_bytes: bool) -> Any:
    """RE2's own object for an expression in its syntax. Raises ``error``."""
    options = library.Options()
    options.max_mem = _MEMORY
    options.log_errors = False
    raw: str | bytes = source
    if is_bytes:
        options.encoding = library.Options.Encoding.LATIN1
        raw = source.encode("latin-1")
    try:
        # The object behind the wrapper: the wrapper computes on every match what few ask for.
        return library._Regexp(raw, options)._regexp
    except library.error as problem:
        reason = problem.args[0] if problem.args else problem
        reason = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise error(
            f"cannot run in linear time ({reason}): write it without lookaround, backreference "
            "and large repeat counts"
        ) from None


class LinearPattern:
    """What ``compile`` gives for an expression that RE2 runs; its methods are ``re.Pattern``'s."""

    __slots__ = (
        "_bounded",
        "_is_bytes",
        "_need",
        "_run",
        "_ways",
        "flags",
        "groupindex",
        "groups",
        "pattern",
    )

    def __init__(self, pattern: str | bytes, flags: int) -> None:
        """Raises ``error``."""
        tree = parse(pattern, flags)
        self.pattern = pattern
        self.flags: int = tree.state.flags
        self.groups: int = tree.state.groups - 1
        self.groupindex: dict[str, int] = dict(tree.state.groupdict)
        self._is_bytes = isinstance(pattern, bytes)
        needed = [] if self.flags & re.IGNORECASE else _needed(tree)
        self._need: Any = bytes(needed) if self._is_bytes else "".join(map(chr, needed))
        self._run: Any = None
        self._ways: Any = None
        self._bounded: re.Pattern[Any] | None = None
        library = _library()
        if library is None:
            self._bounded = re.compile(pattern, flags)
            return
        text = pattern.decode("latin-1") if isinstance(pattern, bytes) else pattern
        source = _translated(text, self.flags, is_bytes=self._is_bytes)
        self._run = _engine(library, source, self._is_bytes).Match
        how = library._Anchor
        self._ways = (how.UNANCHORED, how.ANCHOR_START, how.ANCHOR_BOTH)

    def search(self, text: Any, pos: int = 0, endpos: int | None = None) -> Any:
        """As ``re.Pattern.search``."""
        return self._first(0, text, pos, endpos)

    def match(self, text: Any, pos: int = 0, endpos: int | None = None) -> Any:
        """As ``re.Pattern.match``."""
        return self._first(1, text, pos, endpos)

    def fullmatch(self, text: Any, pos: int = 0, endpos: int | None = None) -> Any:
        """As ``re.Pattern.fullmatch``."""
        return self._first(2, text, pos, endpos)

    def _first(self, way: int, text: Any, pos: int, endpos: int | None) -> Any:
        if self._need not in text:
            return None
        if self._bounded is not None:
            find = (self._bounded.search, self._bounded.match, self._bounded.fullmatch)[way]
            return find(text, pos, _near(text, pos, endpos))
        if self._is_bytes:
            data = text
        elif text.isascii():
            data = text.encode()
        else:
            data = _utf8(text)
            pos = len(_utf8(text[:pos])) if pos else 0
            endpos = len(_utf8(text[:endpos])) if endpos is not None else None
        spans = self._run(
            self._ways[way], data, pos, len(data) if endpos is None else min(endpos, len(data))
        )
        if spans[0][0] < 0:
            return None
        if len(data) != len(text):
            spans = _in_characters(data, spans, 0, 0)
        return LinearMatch(self, text, spans)

    def finditer(self, text: Any, pos: int = 0, endpos: int | None = None) -> Iterator[Any]:
        """As ``re.Pattern.finditer``."""
        if self._need not in text:
            return
        if self._bounded is not None:
            yield from self._bounded.finditer(text, pos, _near(text, pos, endpos))
            return
        data = text if self._is_bytes else _utf8(text)
        wide = len(data) != len(text)
        if wide:
            pos = len(_utf8(text[:pos]))
            endpos = len(_utf8(text[:endpos])) if endpos is not None else None
        end = len(data) if endpos is None else min(endpos, len(data))
        at, byte, char = pos, 0, 0
        while at <= end:
            spans = self._run(self._ways[0], data, at, end)
            first, last = spans[0]
            if first < 0:
                return
            at = last if last > first else _next_character(data, last, wide)
            if wide:
                spans = _in_characters(data, spans, byte, char)
                byte, char = first, spans[0][0]
            yield LinearMatch(self, text, spans)

    def findall(self, text: Any, pos: int = 0, endpos: int | None = None) -> list[Any]:
        """As ``re.Pattern.findall``."""
        found = self.finditer(text, pos, endpos)
        if not self.groups:
            return [match.group() for match in found]
        if self.groups == 1:
            return [match.groups(text[:0])[0] for match in found]
        return [match.groups(text[:0]) for match in found]

    def split(self, text: Any, maxsplit: int = 0) -> list[Any]:
        """As ``re.Pattern.split``."""
        pieces: list[Any] = []
        end = 0
        for number, found in enumerate(self.finditer(text), 1):
            pieces += [text[end : found.start()], *found.groups()]
            end = found.end()
            if number == maxsplit:
                break
        return [*pieces, text[end:]]

    def sub(self, repl: Any, text: Any, count: int = 0) -> Any:
        """As ``re.Pattern.sub``."""
        pieces: list[Any] = []
        end = 0
        for number, found in enumerate(self.finditer(text), 1):
            new = repl(found) if callable(repl) else found.expand(repl)
            pieces += [text[end : found.start()], new]
            end = found.end()
            if number == count:
                break
        return text[:0].join([*pieces, text[end:]]) if pieces else text


class LinearMatch:
    """What a ``LinearPattern`` found; its methods are ``re.Match``'s."""

    __slots__ = ("re", "spans", "string")

    def __init__(self, pattern: LinearPattern, text: Any, spans: Any) -> None:
        self.re = pattern
        self.string = text
        self.spans = spans

    def __getitem__(self, group: int | str) -> Any:
        start, end = self.spans[self.re.groupindex[group] if isinstance(group, str) else group]
        return None if start < 0 else self.string[start:end]

    def group(self, *groups: int | str) -> Any:
        """As ``re.Match.group``."""
        if len(groups) > 1:
            return tuple(self[group] for group in groups)
        return self[groups[0] if groups else 0]

    def groups(self, default: Any = None) -> tuple[Any, ...]:
        """As ``re.Match.groups``."""
        return tuple(
            default if start < 0 else self.string[start:end] for start, end in self.spans[1:]
        )

    def groupdict(self, default: Any = None) -> dict[str, Any]:
        """As ``re.Match.groupdict``."""
        string, spans = self.string, self.spans
        found = {}
        for name, index in self.re.groupindex.items():
            start, end = spans[index]
            found[name] = default if start < 0 else string[start:end]
        return found

    def span(self, group: int | str = 0) -> tuple[int, int]:
        """As ``re.Match.span``."""
        index = self.re.groupindex[group] if isinstance(group, str) else group
        return cast("tuple[int, int]", self.spans[index])

    def start(self, group: int | str = 0) -> int:
        """As ``re.Match.start``."""
        return self.span(group)[0]

    def end(self, group: int | str = 0) -> int:
        """As ``re.Match.end``."""
        return self.span(group)[1]

    def expand(self, template: str) -> str:
        """As ``re.Match.expand``, for ``\\1`` and ``\\g<name>``."""
        return _TEMPLATE.sub(self._filled_in, template)

    def _filled_in(self, found: re.Match[str]) -> str:
        name, number, other = found.groups()
        if other is not None:
            return {"n": "\n", "t": "\t"}.get(other, other)
        group = number if name is None else name
        return self[int(group) if group.isdigit() else group] or ""


def _utf8(text: str) -> bytes:
    """``text`` in UTF-8, with one byte for what has no place in it (a lone surrogate)."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def _near(text: Any, pos: int, endpos: int | None) -> int:
    return min(pos + BOUNDED, len(text) if endpos is None else endpos)


def _in_characters(data: bytes, spans: Any, byte: int, char: int) -> list[tuple[int, int]]:
    """Spans in bytes as spans in characters; the byte at ``byte`` begins character ``char``."""
    places = {-1: -1}
    for place in sorted({place for span in spans for place in span} - {-1}):
        char += len(data[byte:place].decode())
        byte = place
        places[place] = char
    return [(places[begin], places[end]) for begin, end in spans]


def _next_character(data: bytes, at: int, wide: bool) -> int:
    at += 1
    while wide and at < len(data) and data[at] & 0xC0 == 0x80:
        at += 1
    return at
