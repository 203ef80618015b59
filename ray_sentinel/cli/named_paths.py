"""Files and folders named on a command line: each is read, or the reason is reported."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ray_sentinel.cli.output import print_error
from ray_sentinel.errors import InputError
from ray_sentinel.text import natural

MAX_FILES = 100_000
"""Most files of one folder; the rest is not looked at, as somebody may name / by mistake."""
MAX_DEPTH = 12
"""Most levels of folders below the one that was named."""


def is_folder(name: str) -> bool:
    """Whether ``name`` is a folder, and not a file. Raises InputError with the reason if it does
    not exist or cannot be examined."""
    try:
        folder = stat.S_ISDIR(os.stat(name).st_mode)
        if folder:
            os.scandir(name).close()
    except FileNotFoundError:
        raise InputError(f"{name}: there is no such file or folder") from None
    except OSError as error:
        raise InputError(f"{name}: cannot be read: {error.strerror}") from None
    return folder


def source(name: str) -> str:
    """``name`` as it is if it is an address or an existing path; otherwise as ``is_folder``."""
    if not name.startswith(("http://", "https://")):
        is_folder(os.path.expanduser(name))
    return name


def regular(path: str | os.PathLike[str]) -> None:
    """Raises InputError for anything but a regular file: opening a FIFO would wait for a writer."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(mode):
        raise InputError("is not a regular file")


def files_below(
    top: Path, left_out: Callable[[Path, str], None] = lambda path, why: None
) -> Iterator[Path]:
    """The regular files below a folder in natural order, without hidden ones and those behind links
    to folders. ``left_out`` is called with what else is there, and why it is not given."""
    count = 0
    for where, folders, names in os.walk(top):
        depth = len(Path(where).relative_to(top).parts)
        folders[:] = sorted(folders, key=natural) if depth < MAX_DEPTH else []
        for name in sorted(names, key=natural):
            path = Path(where, name)
            if name.startswith("."):
                continue
            try:
                regular(path)
            except InputError as error:
                left_out(path, str(error))
                continue
            if (count := count + 1) > MAX_FILES:
                left_out(top, f"only its first {MAX_FILES} files were looked at")
                return
            yield path


def exit_code(code: int, failed: Sequence[str]) -> int:
    """``code``, but 2 instead of 0 where something that was named could not be read (``failed``,
    which is reported on stderr): half of the evidence must not pass for all of it."""
    for reason in failed:
        print_error(reason)
    return code or (2 if failed else 0)
