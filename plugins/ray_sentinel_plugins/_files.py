"""Reading files of /proc and /sys that may be missing, cut, garbled, or gone since listed.

The kernel ends every line that it prints with a newline. In a captured tree a file without one has
been cut, and a number that was cut is another number: such a line is dropped, unless the whole tree
was stored without newlines.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TypeVar

from ray_sentinel import regex as re
from ray_sentinel.api import Context, Metric, Sample
from ray_sentinel.text import natural

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

MAX_BYTES = 4 << 20
"""Most bytes that are read of a file: no file that we read is that long unless it is broken."""
MAX_LABEL = 128
"""Most characters of a label's value; a longer one is cut off with an ellipsis."""
MAX_SAID = 200
"""Most different complaints of one collector that are logged; later ones are only counted."""

_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ENXIO, errno.ESRCH})
_REFUSED = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})


def files_of(context: Context, log: logging.Logger) -> Files:
    """A reader of a collector's trees."""
    return Files(log, live=context.live, roots=(context.proc, context.sys))


class Files:
    """A tolerant reader. What cannot be read is None, and is logged once.

    ``live`` trees belong to the running kernel, whose files are never cut. ``roots`` of a captured
    tree show whether its files have newlines at all.
    """

    def __init__(
        self, log: logging.Logger, *, live: bool = True, roots: Sequence[Path] = ()
    ) -> None:
        self.log = log
        self.live = live
        self._roots = roots
        self._said: set[str] = set()
        self._newlines = False

    def complain(self, path: Path | str, why: str) -> None:
        """Log once that ``path`` cannot be used, and why."""
        words = f"{path}: {why}"
        if words in self._said:
            return
        if len(self._said) < MAX_SAID:
            self._said.add(words)
            self.log.warning("%s", words)
        elif len(self._said) == MAX_SAID:
            self._said.add(words)
            self.log.warning("more files cannot be read; they are not listed")

    def raw(self, path: Path, *, expected: bool = False, limit: int = MAX_BYTES) -> bytes | None:
        """The bytes of a regular file, or None. Never waits for a writer (FIFO).

        A missing file is silent unless it was ``expected`` (it was listed a moment ago).
        """
        try:
            return read_file(path, limit)
        except OSError as error:
            if expected or error.errno not in _ABSENT:
                self.complain(path, f"cannot be read: {error.strerror or error}")
            return None

    def text(self, path: Path, *, expected: bool = False, limit: int = MAX_BYTES) -> str | None:
        """Whole lines of a file as text, or None; bytes that are not UTF-8 become U+FFFD."""
        raw = self.raw(path, expected=expected, limit=limit)
        if raw is None:
            return None
        text = raw.decode("utf-8", "replace")
        if not text or text.endswith("\n"):
            self._newlines |= bool(text)
            return text
        if self.live or not self._cut(path):
            return text
        self.complain(path, "is cut off; its last line is left out")
        return text[: text.rfind("\n") + 1]

    def line(self, path: Path, *, expected: bool = False) -> str | None:
        """The first line without surrounding blanks, or None if there is none."""
        text = self.text(path, expected=expected, limit=4096)
        if text is None:
            return None
        return text.strip().split("\n", 1)[0].strip() or None

    def count(self, path: Path) -> int | None:
        """A file that holds one whole number from 0 up, of any size; None if it holds anything
        else."""
        line = self.line(path)
        if line is None:
            return None
        number = counter(line)
        if number is None:
            self.complain(path, f"is not a count: {clean(line)[:60]!r}")
        return number

    def refused(self, path: Path) -> bool:
        """Whether a file is shown though its driver has nothing to put into it: reading it is an
        invalid or unsupported operation. Copies of such files are empty, all of a folder's; one
        empty file among others is damage."""
        try:
            if read_file(path, 1) or self.live:
                return False
            with os.scandir(path.parent) as around:
                return all(file.stat().st_size == 0 for file in around)
        except OSError as error:
            return error.errno in _REFUSED

    def word(self, path: Path, pattern: str) -> str | None:
        """The first line if all of it matches ``pattern``, else None."""
        line = self.line(path)
        if line is not None and not re.fullmatch(pattern, line):
            self.complain(path, f"is not what it should be: {clean(line)[:60]!r}")
            return None
        return line

    def sound(self, path: Path, found: T, keys: Iterable[object] = ()) -> T:
        """Return ``found``; log once each expected key that is missing."""
        if not found:
            self.complain(path, "holds nothing of what it should")
        elif isinstance(found, Collection):
            for key in keys:
                if key not in found:
                    words = " ".join(key) if isinstance(key, tuple) else key
                    self.complain(path, f"has no {words}")
        return found

    def counted(
        self, path: Path, metric: Metric, *labels: str, unit: float = 1
    ) -> Iterator[Sample]:
        """A sample of the count that a file holds, if it holds one; ``unit`` of them are one of the
        metric's."""
        number = self.count(path)
        if number is not None:
            yield metric(number if unit == 1 else number / unit, *labels)

    def samples(
        self, path: Path, parse: Callable[[str], Mapping[K, float]], metrics: Mapping[K, Metric]
    ) -> Iterator[Sample]:
        """A sample of each of the ``metrics``, by the key under which ``parse`` finds its value."""
        if text := self.text(path):
            values = self.sound(path, parse(text), metrics)
            yield from (metric(values[key]) for key, metric in metrics.items() if key in values)

    def names(self, folder: Path, *, expected: bool = False) -> list[str]:
        """What a folder holds, in natural order (card2 before card10); empty if unreadable."""
        try:
            found = os.listdir(folder)
        except OSError as error:
            if expected or error.errno not in _ABSENT:
                self.complain(folder, f"cannot be listed: {error.strerror or error}")
            return []
        return sorted(found, key=natural)

    def is_folder(self, path: Path) -> bool:
        """Whether a folder is there; one that may not be looked up counts as missing."""
        return self._mode(path, stat.S_ISDIR)

    def is_file(self, path: Path) -> bool:
        """Whether a regular file is there; one that may not be looked up counts as missing."""
        return self._mode(path, stat.S_ISREG)

    def _mode(self, path: Path, kind: Callable[[int], bool]) -> bool:
        # ``Path.is_dir`` raises where a folder above may not be searched.
        try:
            return kind(path.stat().st_mode)
        except ValueError:
            return False
        except OSError as error:
            if error.errno not in _ABSENT:
                self.complain(path, f"cannot be looked up: {error.strerror or error}")
            return False

    def bounded(self, items: Sequence[T], most: int, what: str) -> Sequence[T]:
        """At most ``most`` of the items; if some are left out, that is logged once."""
        if len(items) > most:
            self.complain(what, f"there are more than {most}; the rest is left out")
        return items[:most]

    def _cut(self, path: Path) -> bool:
        """Whether other files of the tree end in a newline, as the kernel's do."""
        for folder in (path.parent, *self._roots):
            if not self._newlines and not of_running_kernel(folder):
                around = (
                    Path(place) / file for place, _, files in os.walk(folder) for file in files
                )
                some = islice((file for file in around if file != path), 64)
                self._newlines = any(_ends_in_newline(file) for file in some)
        return self._newlines


def read_file(path: Path, limit: int) -> bytes:
    """Up to ``limit`` bytes of a file that is no device; never waits for a writer.

    Raises OSError.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:
        # A name that another file gave may hold a null byte.
        raise OSError(errno.EINVAL, str(error)) from error
    try:
        if stat.S_ISCHR(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "is a device, not a file")
        chunks = []
        while limit > 0 and (chunk := os.read(handle, min(limit, 1 << 18))):
            chunks.append(chunk)
            limit -= len(chunk)
        return b"".join(chunks)
    finally:
        os.close(handle)


def of_running_kernel(folder: Path) -> bool:
    """A folder of procfs or sysfs, which take no space. Not any of their files may be read just to
    look: what is read from /proc/kmsg is gone for others."""
    try:
        return os.statvfs(folder).f_blocks == 0
    except OSError:
        return True


def _ends_in_newline(path: Path) -> bool:
    try:
        return read_file(path, 1 << 16).endswith(b"\n")
    except OSError:
        return False


def counter(text: str) -> int | None:
    """A whole number that is not negative, else None. ``int()`` would take ``1_0`` and ``٣``.

    >>> counter("18446744073709551615"), counter("-1"), counter("N/A (no PMA)")
    (18446744073709551615, None, None)
    """
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 40 else None


def decimal(text: str) -> float | None:
    """A number such as ``0.27``, else None; never NaN or infinity."""
    return float(text) if re.fullmatch(r"-?[0-9]{1,30}(\.[0-9]{1,30})?", text) else None


def clean(text: str) -> str:
    """A label's value: valid Unicode, no control characters, at most ``MAX_LABEL`` characters.

    File names that are not UTF-8 come with surrogates (PEP 383), which no exposition can carry.
    """
    text = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    text = "".join(char if char.isprintable() else "�" for char in text)
    return text if len(text) <= MAX_LABEL else text[: MAX_LABEL - 1] + "…"


def pairs(text: str) -> Iterable[tuple[str, list[str]]]:
    """The lines of a file as (first word without its colon, the other words)."""
    for line in text.splitlines():
        words = line.split()
        if words:
            yield words[0].rstrip(":"), words[1:]
