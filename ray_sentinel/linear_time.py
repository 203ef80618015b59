"""Which regular expressions Python's ``re`` runs in time that grows with the text and no faster.

``re`` backtracks. An attempt at one position of the text can take long where repeats may share out
the same characters in many ways; a search makes an attempt at every position. The rule here proves,
from the parse tree and without running anything, that neither adds up:

- The ways through all that is bounded (alternatives, options, ``{0,3}``) are counted, and few.
- An unbounded repeat is of a single character (a class C). Nothing may make it run over the same
  stretch of C again and again from different positions. So before it stands, on every way, a
  character that is not in C (or a lookbehind that excludes all of C, or the text's front), and
  between the two only what is bounded or itself a repeat of characters that are not in C. A longest
  stretch of C then has few positions at which it can be entered.
- Or the repeat is the last thing: nothing after it can fail, so what it ran over is never run over
  again.

All else (nested repeats, ``.*`` in the middle, references to what is unbounded) is not proved. The
rule knows the ASCII characters one by one and the others in four kinds, and errs to the safe side.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

try:
    from re import _parser  # type: ignore[attr-defined]
except ImportError:  # Python 3.10
    import sre_parse as _parser

parse = _parser.parse

_MOST_STEPS = 3000
"""Most steps of one attempt to match, an unbounded repeat counted as one; at worst there is an
attempt for each character."""
_MOST_STEPS_ONCE = 100_000
"""Most steps if there can be only one attempt, an unbounded repeat counted as one."""
_MOST_SETS = 12
"""Most sets of characters that are remembered of what stands before a place."""
_INFINITE = float("inf")

Kinds = int
"""A set of characters: one bit for each ASCII character, and one for each kind of other
characters."""
_DIGIT, _WORD, _SPACE, _OTHER = (1 << bit for bit in range(128, 132))
_ASCII = (1 << 128) - 1
_ALL = (1 << 132) - 1
_WIDE = _ALL ^ _ASCII
_NEWLINE = 1 << 10
_IGNORECASE, _MULTILINE, _DOTALL = int(re.IGNORECASE), int(re.MULTILINE), int(re.DOTALL)
_SINGLE = frozenset({"LITERAL", "NOT_LITERAL", "ANY", "ANY_ALL", "IN"})
_REPEATS = frozenset({"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"})


def is_linear(pattern: str | bytes, flags: int = 0, *, anchored: bool = False) -> bool:
    """Whether the rule proves it for ``pattern``. Raises ``re.error`` for an invalid expression.

    ``anchored``: for ``match`` and ``fullmatch`` only, which make one attempt.
    """
    tree = parse(pattern, flags)
    proof = _Proof(int(tree.state.flags), isinstance(pattern, bytes))
    found = proof.sequence(tree, [_ALL] if anchored else [], tail=True)
    return found.steps <= (_MOST_STEPS_ONCE if anchored else _MOST_STEPS)


class _Work(NamedTuple):
    """What one attempt of a part takes, at most."""

    steps: float = 1
    ways: float = 1
    """Number of ways in which the part can match at one place, an unbounded repeat counted as
    one."""
    unbounded: bool = False


_NOT_PROVED = _Work(_INFINITE, _INFINITE, True)


class _Proof:
    """Walks one expression.

    ``before`` holds sets of characters. One that is a superset of a class C says: a stretch of C
    that begins here or a bounded distance before cannot have begun much earlier.
    """

    def __init__(self, flags: int, is_bytes: bool) -> None:
        self.flags = flags
        self.ascii = is_bytes or bool(flags & int(re.ASCII))
        self.unbounded_groups: set[int] = set()

    def sequence(
        self, items: Any, before: list[Kinds], *, tail: bool, after: Kinds | None = None
    ) -> _Work:
        """The work of a sequence; ``before`` becomes what stands before its end.

        ``tail``: nothing follows it. ``after``: the characters that must follow it, if known.
        """
        steps, ways, unbounded = 1.0, 1.0, False
        last = len(items) - 1
        for number, (op, value) in enumerate(items):
            if len(before) > _MOST_SETS:
                del before[_MOST_SETS // 2 : -_MOST_SETS // 2]
            if op is _parser.AT:
                before += self._behind(str(value), items[number + 1 : number + 2])
                continue
            if op is _parser.LITERAL:
                before.append(_ALL ^ self._folded(value, False))
                steps += ways
                continue
            then = after if number == last else self._first(items, number + 1)
            more = self._item(str(op), value, before, tail and number == last, then)
            if more.ways > 1 and self._is_sure(str(op), value, then):
                more = more._replace(ways=1)
            steps += ways * more.steps
            ways *= more.ways
            unbounded = unbounded or more.unbounded
        return _Work(steps, ways, unbounded)

    def _item(
        self, op: str, value: Any, before: list[Kinds], tail: bool, after: Kinds | None
    ) -> _Work:
        if op in _SINGLE:
            before.append(_ALL ^ self._kinds(op, value))
            return _Work()
        if op == "SUBPATTERN":
            flags, self.flags = self.flags, (self.flags | int(value[1])) & ~int(value[2])
            found = self.sequence(value[3], before, tail=tail, after=after)
            self.flags = flags
            if found.unbounded:
                self.unbounded_groups.add(value[0])
            return found
        if op == "BRANCH":
            return self._branch(value[1], before, tail, after)
        if op in ("ASSERT", "ASSERT_NOT"):
            return self._around(op, *value, before=before)
        if op in _REPEATS:
            return self._repeat(*value, before=before, tail=tail)
        if op == "GROUPREF" and value not in self.unbounded_groups:
            return _Work(8)
        return _NOT_PROVED

    def _behind(self, where: str, following: Any) -> list[Kinds]:
        """What an anchor says of the character before it."""
        if where == "AT_BEGINNING_STRING":
            return [_ALL]
        if where == "AT_BEGINNING":
            return [_ALL ^ _NEWLINE if self.flags & _MULTILINE else _ALL]
        if where == "AT_BOUNDARY" and following and str(following[0][0]) in _SINGLE:
            word = self._category("CATEGORY_WORD")
            if not self._kinds(str(following[0][0]), following[0][1]) & ~word:
                return [word]
        return []

    def _branch(self, branches: Any, before: list[Kinds], tail: bool, after: Kinds | None) -> _Work:
        each: list[_Work] = []
        ends: list[list[Kinds]] = []
        for items in branches:
            ends.append(list(before))
            each.append(self.sequence(items, ends[-1], tail=tail, after=after))
        merged = ends[0]
        for end in ends[1:]:
            merged = _either(merged, end)
        before[:] = merged
        firsts = [_ALL if (first := self._first(items)) is None else first for items in branches]
        # At one place only those alternatives go on that can begin with the character there.
        together = [
            [found for found, first in zip(each, firsts, strict=True) if first & own]
            for own in firsts
        ]
        return _Work(
            max(sum(found.steps for found in some) for some in together) + len(each),
            max(sum(found.ways for found in some) for some in together),
            any(found.unbounded for found in each),
        )

    def _is_sure(self, op: str, value: Any, after: Kinds | None) -> bool:
        """Whether a bounded repeat of one character ends where the text says: what follows is none
        of these."""
        if (
            after is None
            or op not in _REPEATS
            or len(value[2]) != 1
            or str(value[2][0][0]) not in _SINGLE
        ):
            return False
        return not after & self._kinds(str(value[2][0][0]), value[2][0][1])

    def _first(self, items: Any, at: int = 0) -> Kinds | None:
        """The characters with which a sequence can go on; None if it need not go on with one."""
        if at >= len(items):
            return None
        op, value = items[at]
        if str(op) in _SINGLE:
            return self._kinds(str(op), value)
        if op is _parser.SUBPATTERN and not value[1]:
            return self._first(value[3])
        if op is _parser.BRANCH:
            return _union([self._first(branch) for branch in value[1]])
        if str(op) in _REPEATS:
            own = self._first(value[2])
            return own if value[0] else _union([own, self._first(items, at + 1)])
        return None

    def _around(self, op: str, direction: int, items: Any, *, before: list[Kinds]) -> _Work:
        inner = list(before) if direction > 0 else []
        found = self.sequence(items, inner, tail=False)
        if direction < 0 and len(items) == 1 and str(items[0][0]) in _SINGLE:
            kinds = self._kinds(str(items[0][0]), items[0][1], surely=op == "ASSERT_NOT")
            before.append(kinds if op == "ASSERT_NOT" else _ALL ^ kinds)
        return _Work(found.steps, 1, found.unbounded)

    def _repeat(
        self, least: int, most: int, items: Any, *, before: list[Kinds], tail: bool
    ) -> _Work:
        if most is _parser.MAXREPEAT:
            single = len(items) == 1 and str(items[0][0]) in _SINGLE
            return self._unbounded(least, items, before, tail) if single else _NOT_PROVED
        inner = list(before)
        found = self.sequence(items, inner, tail=tail and most == 1)
        if found.unbounded and most != 1:
            return _NOT_PROVED
        before[:] = inner if least else _either(before, inner)
        if found.ways == 1:
            return _Work(found.steps * most + 1, most - least + 1, found.unbounded)
        ways, total = 1.0, 0.0
        for times in range(most + 1):
            total += ways if times >= least else 0
            ways *= found.ways
            if total > _MOST_STEPS_ONCE:
                return _NOT_PROVED
        return _Work(found.steps * total, total, found.unbounded)

    def _unbounded(self, least: int, items: Any, before: list[Kinds], tail: bool) -> _Work:
        kinds = self._kinds(str(items[0][0]), items[0][1])
        if not tail and all(kinds & ~absent for absent in before):
            return _NOT_PROVED
        before[:] = [absent & ~kinds for absent in before]
        if least:
            before.append(_ALL ^ kinds)
        return _Work(least + 1, 1, not tail)

    # The characters of a class ------------------------------------------------------------------

    def _kinds(self, op: str, value: Any, *, surely: bool = False) -> Kinds:
        """The kinds of characters that it may match; ``surely``: of which it matches every one."""
        if op == "ANY":
            return _ALL if self.flags & _DOTALL else _ALL ^ _NEWLINE
        if op == "ANY_ALL":
            return _ALL
        if op == "LITERAL":
            return self._folded(value, surely)
        if op == "NOT_LITERAL":
            return _ALL ^ self._folded(value, not surely)
        negated = bool(value) and str(value[0][0]) == "NEGATE"
        kinds = 0
        for name, member in value[1:] if negated else value:
            kinds |= self._member(str(name), member, surely != negated)
        return _ALL ^ kinds if negated else kinds

    def _member(self, name: str, member: Any, surely: bool) -> Kinds:
        if name == "LITERAL":
            return self._folded(member, surely)
        if name == "RANGE":
            low, high = member
            kinds = _WIDE if high > 127 and not surely else 0
            for code in range(low, min(high, 127) + 1):
                kinds |= self._folded(code, surely)
            return kinds
        return self._category(str(member))

    def _folded(self, code: int, surely: bool) -> Kinds:
        """A character, in both cases where case is ignored."""
        if code > 127:
            return 0 if surely else _WIDE
        if not self.flags & _IGNORECASE:
            return 1 << code
        char = chr(code)
        kinds = 1 << ord(char.lower()) | 1 << ord(char.upper())
        # Letters outside ASCII fold to these: the long s, the kelvin, the dotless i.
        return kinds | _WORD if char in "sSkKiI" and not surely else kinds

    def _category(self, name: str) -> Kinds:
        found = _CATEGORIES[name.rsplit("_", 1)[-1]]
        if self.ascii:
            found &= _ASCII & ~_BLANK_FOR_TEXT
        return _ALL ^ found if "_NOT_" in name else found


def _of(chars: str) -> Kinds:
    return sum(1 << ord(char) for char in chars)


_BLANK_FOR_TEXT = _of("\x1c\x1d\x1e\x1f")
"""ASCII's separators, which are blank in text but not in bytes."""
_CATEGORIES = {
    "DIGIT": _of("0123456789") | _DIGIT,
    "SPACE": _of(" \t\n\r\f\v") | _BLANK_FOR_TEXT | _SPACE,
    "WORD": _of("".join(c for c in map(chr, range(128)) if c.isalnum() or c == "_"))
    | _DIGIT
    | _WORD,
}


def _union(sets: list[Kinds | None]) -> Kinds | None:
    known = [kinds for kinds in sets if kinds is not None]
    if len(known) < len(sets):
        return None
    union = 0
    for kinds in known:
        union |= kinds
    return union


def _either(one: list[Kinds], other: list[Kinds]) -> list[Kinds]:
    """What holds before a place that is reached on two ways."""
    return list({a & b for a in _few(one) for b in _few(other)} - {0})


def _few(sets: list[Kinds]) -> list[Kinds]:
    return sets if len(sets) < 7 else [*sets[:3], *sets[-3:]]
