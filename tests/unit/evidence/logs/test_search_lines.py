"""Lines with a word are found wherever they stand; of chatter only the first and the last ones."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ray_sentinel.evidence.logs.errors.catalogue import WordSearch
from ray_sentinel.evidence.logs.lines.chunk import split_lines
from ray_sentinel.evidence.logs.records import LogFile
from ray_sentinel.evidence.logs.scan import Scanner
from ray_sentinel.logs.catalogue import load_catalogue

_WORDS = (b"ab", b"abc", b"c a", b"bb")
_TEXT = st.lists(st.sampled_from([b"a", b"b", b"c", b" ", b"\n"]), max_size=120).map(b"".join)


def one_by_one(text: bytes, most: int) -> set[int]:
    """Where the lines begin that a reader of every line would look at."""
    starts: set[int] = set()
    for word in _WORDS:
        having = [at for at, raw in split_lines(text) if word in raw]
        starts.update(having[:most] + having[-most:])
    return starts


@given(_TEXT, st.integers(1, 4))
def test_as_a_reader_of_every_line_finds_them(text: bytes, most: int) -> None:
    found = WordSearch(_WORDS).lines(text, len(text), most)
    assert [start for start, _ in found] == sorted(one_by_one(text, most))
    for start, at in found:
        assert start <= at < (text + b"\n").index(b"\n", start)
        assert any(text.startswith(word, at) for word in _WORDS)


@given(_TEXT, st.integers(1, 4))
def test_what_follows_the_limit_is_no_line_of_this_piece(text: bytes, most: int) -> None:
    limit = text.rfind(b"\n", 0, len(text) // 2) + 1
    search = WordSearch(_WORDS)
    assert search.lines(text, limit, most) == search.lines(text[:limit], limit, most)


def test_a_rare_line_between_chatter_is_found_in_the_middle_of_a_large_file() -> None:
    chatter = b"step 7 complete, heartbeat sent, no error: none\n" * 6000
    rare = b"[rank3]: Segmentation fault (core dumped)\n"
    data = chatter + rare + chatter
    file = LogFile(label="train.log", size=len(data))
    scanner = Scanner(file, 0, load_catalogue(), 2025)
    scanner.feed(data, 0, len(data), thorough=False)
    hits = [hit for hit in scanner.result().hits if hit.offset == len(chatter)]
    assert [hit.origin.rank for hit in hits] == [3]
