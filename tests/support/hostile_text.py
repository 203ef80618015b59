"""Texts that somebody writes who wants a reader of them to take long, or to run out of memory.

Each begins like the reader's own records: what is not recognised costs nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

LARGE = 128 << 10
"""Bytes of a text: what grows with the square takes sixteen times as long as for a quarter."""


def filled(unit: bytes, size: int) -> bytes:
    """``unit`` again and again, ``size`` bytes of it."""
    return (unit * (size // len(unit) + 1))[:size]


def numbered(words: Sequence[bytes], size: int) -> bytes:
    """Lines that begin with a word each, and are all different."""
    lines, length, number = [], 0, 0
    while length < size:
        line = b"%b %d x%d\n" % (words[number % len(words)], number, number * 7919 % 1_000_003)
        lines.append(line)
        length += len(line)
        number += 1
    return b"".join(lines)[:size]


TAILS: tuple[tuple[str, bytes, bytes], ...] = (
    ("digits", b"1234567890", b"1234567890"),
    ("blanks", b" ", b" "),
    ("brackets", b"{", b"]"),
    ("objects", b'{"a":', b"}"),
    ("angles, parentheses", b"<(", b"("),
)
"""What a first record goes on with and has no end: half of the one, half of the other."""


def texts(front: bytes, words: Sequence[bytes], size: int) -> Iterator[tuple[str, bytes]]:
    """(what it is, the text); ``front`` is what the reader knows its format by."""
    for word in words:
        shown = repr(word.decode("utf-8", "backslashreplace")[:40])
        yield f"{shown} on one line", front + filled(word, size)
        yield f"{shown}, numbered lines", front + numbered([word], size)
    yield "all words, numbered lines", front + numbered(words, size)
    yield "all words on one line", front + filled(b" ".join(words), size)
    for name, opening, closing in TAILS:
        tail = filled(opening, size // 2) + filled(closing, size // 2)
        yield name, front + words[0] + tail


def _cut(text: bytes, chance: random.Random, words: Sequence[bytes]) -> bytes:
    return text[: chance.randrange(len(text))]


def _removed(text: bytes, chance: random.Random, words: Sequence[bytes]) -> bytes:
    at = chance.randrange(len(text))
    return text[:at] + text[at + chance.randrange(1, 200) :]


def _doubled(text: bytes, chance: random.Random, words: Sequence[bytes]) -> bytes:
    at = chance.randrange(len(text))
    end = at + chance.randrange(1, 2000)
    return text[:end] + text[at:]


def _flipped(text: bytes, chance: random.Random, words: Sequence[bytes]) -> bytes:
    changed = bytearray(text)
    for _ in range(chance.randrange(1, 20)):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def _huge(text: bytes, chance: random.Random, words: Sequence[bytes]) -> bytes:
    digits = [at for at in range(len(text)) if text[at : at + 1].isdigit()]
    if not digits:
        return _flipped(text, chance, words)
    at = chance.choice(digits)
    number = chance.choice([b"9" * 30, b"9" * 5000, b"1e999", b"-1", b"0x7", b"nan", "²".encode()])
    return text[:at] + number + text[at + 1 :]


def _spliced(text: bytes, chance: random.Random, words: Sequence[bytes]) -> bytes:
    at = chance.randrange(len(text))
    word = chance.choice(
        [*words, b"[" * 3000, b"{" * 300, b"\n", b"\r", b"\x00", b'"', b"\\u", b":"]
    )
    return text[:at] + word + text[at:]


_MUTATIONS: tuple[Callable[[bytes, random.Random, Sequence[bytes]], bytes], ...] = (
    _cut,
    _removed,
    _doubled,
    _flipped,
    _huge,
    _spliced,
)


def mutated(text: bytes, words: Sequence[bytes], chance: random.Random) -> bytes:
    """``text`` after one to three mutations."""
    for _ in range(chance.randrange(1, 4)):
        if text:
            text = chance.choice(_MUTATIONS)(text, chance, words)
    return text
