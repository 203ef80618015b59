"""Which lines of a piece of a log hold one of many words, in one pass (Aho and Corasick, 1975)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ahocorasick_rs import BytesAhoCorasick, Implementation


class WordSearch:
    """Looks for fixed words, all at once."""

    def __init__(self, words: Sequence[bytes]) -> None:
        """``words``: not empty, in lower case, none of them empty."""
        self.words = tuple(words)
        self._automaton = BytesAhoCorasick(words, implementation=Implementation.DFA)

    def lines(self, lower: bytes, limit: int, most: int) -> list[tuple[int, int]]:
        """(line start, position of a word) of the lines that hold one of the words, in order.

        ``lower`` is in lower case; only lines that begin before ``limit`` count, itself a line's
        first byte. A word that stands on more than ``2 * most`` lines is chatter: only its first
        and last ones count.
        """
        places: list[list[int]] = [[] for _ in self.words]
        text = memoryview(lower)[:limit]
        for word, at, _ in self._automaton.find_matches_as_indexes(text, overlapping=True):
            places[word].append(at)
        found: dict[int, int] = {}
        for of_word in places:
            # Each line's begin is looked for once: one of a megabyte may hold a word at each place.
            begins = _on_new_lines(lower, of_word, len(of_word))
            for begin, at in begins if len(of_word) <= most else _outer(lower, of_word, most):
                found.setdefault(begin, at)
        return sorted(found.items())


def _outer(lower: bytes, places: list[int], most: int) -> Iterator[tuple[int, int]]:
    """Of the lines that hold ``places``, the begin of each of the first and the last ``most``, and
    a place in it."""
    yield from _on_new_lines(lower, places, most)
    yield from _on_new_lines(lower, reversed(places), most)


def _on_new_lines(lower: bytes, places: Iterable[int], most: int) -> Iterator[tuple[int, int]]:
    begin, end, left = 0, -1, most
    for at in places:
        if begin <= at <= end:
            continue
        if not left:
            return
        begin = lower.rfind(b"\n", 0, at) + 1
        end = lower.find(b"\n", at)
        end = len(lower) if end < 0 else end
        left -= 1
        yield begin, at
