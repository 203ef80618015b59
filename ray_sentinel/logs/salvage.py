"""Reads the readable part of a file that is truncated, damaged, or begins with a hole."""

from __future__ import annotations

import errno
import os
from typing import IO

from ray_sentinel.logs.reading import CHUNK
from ray_sentinel.logs.unpacking import ENDLESS, READ_ERRORS

_PIECE = 64 << 10
"""Unpacked bytes that are asked for at once: where a file is torn, a failing read loses no more
than these."""


def damage_text(problem: str, packed: str, *, partly: bool) -> str:
    """The message for people about a damaged file, with what to do; ``packed`` is as in
    ``compression``."""
    again = "; copy it again from where it was packed" if packed else ""
    if problem.startswith(ENDLESS):
        again = "; unpack it by hand if it is a log"
    if partly:
        return f"could be read only in part ({problem}); what was read is used{again}"
    return f"cannot be read ({problem}){again}"


def reason(error: Exception) -> str:
    """Why a file cannot be read, without its name, which the message has already."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


class Salvage:
    """Reads ``file`` until it cannot be read any further; ``problem`` then says why."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._some = getattr(file, "read1", None)
        self._at = 0
        self._broken = (-1, "")
        self.problem = ""

    def read(self, size: int) -> bytes:
        """``size`` bytes; fewer at the end, or if the rest is damaged."""
        parts: list[bytes] = []
        missing = size
        while missing > 0 and not self.problem:
            try:
                part = self._some(min(missing, _PIECE)) if self._some else self._file.read(missing)
            except READ_ERRORS as error:
                self.problem = reason(error)
                self._broken = (self._at, self.problem)
                break
            if not part:
                self._restore_problem()
                break
            parts.append(part)
            self._at += len(part)
            missing -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _restore_problem(self) -> None:
        """Raise again what the file raised where it broke: gzip says only once that it cannot go
        on, and claims at the next call that the file ends there."""
        at, problem = self._broken
        if self._at == at:
            self.problem = problem

    def seek(self, at: int) -> None:
        """Continue at ``at``; a damaged part is detected again when it is read."""
        self.problem = ""
        self._at = at
        try:
            self._file.seek(at)
        except READ_ERRORS as error:
            self.problem = reason(error)

    def text_start(self) -> int:
        """Where the text begins: logrotate's copytruncate leaves NUL bytes where a writer goes
        on."""
        at = self._after_hole()
        self.seek(at)
        while data := self.read(CHUNK):
            rest = data.lstrip(b"\0")
            if rest:
                at += len(data) - len(rest)
                break
            at += len(data)
        problem = self.problem
        self.seek(at)
        self.problem = self.problem or problem
        return at

    def _after_hole(self) -> int:
        if self._some is not None:
            return 0  # unpacked bytes have no holes
        try:
            return os.lseek(self._file.fileno(), 0, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # the file is one hole, or empty
                return self._end_of_hole()
            return 0  # a file system that reports no holes

    def _end_of_hole(self) -> int:
        """The size of a file that is one hole; 0 if it was only empty, and was written since."""
        size = os.fstat(self._file.fileno()).st_size
        self.seek(max(size - 1, 0))
        return size if self.read(1) == b"\0" else 0
