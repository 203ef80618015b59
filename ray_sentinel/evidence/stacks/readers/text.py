"""Shared by all parsers of tool output: lines without terminal codes, frames kept once, the marked
main thread."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import msgspec

from ray_sentinel import regex as re
from ray_sentinel.model.stacks import Frame, ThreadStack

MAX_LINE = 16_384
"""Most characters of a line that are looked at; C++ template names make lines of a few thousand."""

MAX_FRAMES = 4_096
"""Most frames of one thread that are kept: below them, a runaway recursion shows nothing new."""

_LONGEST_SHARED = 2_000
"""Most characters that a frame's function and file may have together to be remembered."""

_TERMINAL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?")
_SOURCE = (".py", ".pyx", ".pxd", ".ipynb")
_SHARED_OBJECT = re.compile(r"\.so(\.\d+)*$|\.so\b|\.dylib$|\.dll$")
_NATIVE_SOURCE = re.compile(
    r"\.(c|cc|cpp|cxx|c\+\+|cu|cuh|h|hh|hpp|inl|rs|S|s|go|f|f90|tcc)(\.h)?$|/bits/\w+$"
)


def decode(data: bytes | str) -> str:
    """The tool's output as text; bytes that are not UTF-8 become U+FFFD."""
    text = data if isinstance(data, str) else data.decode(_encoding(data), "replace")
    text = text.removeprefix("\ufeff")
    return _TERMINAL.sub("", text) if "\x1b" in text else text


def _encoding(data: bytes) -> str:
    """UTF-16 where its mark begins the output, as PowerShell's ``>`` writes it; else UTF-8."""
    wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return "utf-16" if wide else "utf-8"


def lines(text: str) -> Iterator[str]:
    """Lines without their ends, cut at ``MAX_LINE``. Only \\n and \\r\\n end a line."""
    for line in text.split("\n"):
        yield line[:MAX_LINE].rstrip("\r\0 \t")


def is_native(file: str, line: int) -> bool:
    """Whether a frame's file is machine code or its source, not Python's.

    py-spy prints a source file of C or C++ where it has debug information, else the shared object
    or the program, without a line.
    """
    if not file or file.startswith("<") or file.endswith(_SOURCE):
        return False
    if _SHARED_OBJECT.search(file) or _NATIVE_SOURCE.search(file):
        return True
    return line == 0


def frame(function: str, file: str = "", line: int = 0, native: bool = False) -> Frame:
    """The one Frame object for these values, so that equal stacks share memory.

    Names longer than any real one are not kept: what is kept stays for the life of the process.
    """
    if len(function) + len(file) > _LONGEST_SHARED:
        return Frame(function, file, line, native)
    return _frame(function, file, line, native)


_frame = lru_cache(maxsize=65_536)(Frame)


@lru_cache(maxsize=4_096)
def _one(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    return frames


def shared(frames: Iterable[Frame]) -> tuple[Frame, ...]:
    """``frames`` as a tuple that is one object for equal stacks; the ranks of a job repeat them."""
    return _one(tuple(frames)[:MAX_FRAMES])


def mark_main(threads: Sequence[ThreadStack], index: int | None) -> tuple[ThreadStack, ...]:
    """The threads, with the one at ``index`` marked as the only main thread; with None, none is."""
    return tuple(
        thread if thread.main == (i == index) else msgspec.structs.replace(thread, main=i == index)
        for i, thread in enumerate(threads)
    )


def number(text: str | None) -> int:
    """A decimal number of plausible size, otherwise 0."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) <= 18 else 0
