"""A path walked part by part, each opened in the folder before it, so that each can be judged.

The kernel's own walk follows every link on the way, and does not show who made it. Here links are
read and resolved by us; those of ``/proc`` (``cwd``, ``fd/3``) lead where their text says, not
where the kernel would jump. Nothing can be put into the place of what was judged: the next part is
opened in the descriptor of that folder.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Iterator
from pathlib import Path

READ_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Flags for opening the last part of a path: links are refused, and a FIFO without a writer does
not block us."""

# A folder may be passed without being readable; where there is no O_PATH (macOS), it is read.
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_MOST_LINKS = 40
"""Most symbolic links on one path, as in the kernel; beyond that, opening fails."""


class PathWalk:
    """Walks from ``root``, which no link and no ``..`` leaves. The two judges raise to refuse."""

    def __init__(self, root: str = "/") -> None:
        self._root = root
        self._passed: list[str] = []
        """The names of the folders that lead to the present one, links resolved."""

    def judge_link(self, info: os.stat_result, shown: str) -> None:
        """Called for each symbolic link on the way."""

    def judge_folder(self, handle: int, shown: str, *, last: bool) -> None:
        """Called for each folder on the way, ``last`` if it is the destination."""

    def shown(self, name: str = "") -> str:
        """The path of ``name`` in the present folder, below the root, links resolved."""
        return "/" + "/".join([*self._passed, *([name] if name else [])])

    def walk(self, path: Path, *, to_folder: bool) -> tuple[int, str]:
        """(a descriptor of the last folder, the name in it to open a file by, which is no link).

        The name is empty if the way is ``to_folder``. Whether the file is there is the caller's
        to see: only its folder must be. The descriptor is the caller's to close. Raises OSError,
        and what the judges raise.
        """
        parts = deque(_names(os.path.join(os.getcwd(), path)))
        links = 0
        here = self._enter("/", None, last=to_folder and not parts)
        try:
            while parts:
                name = parts.popleft()
                info = os.lstat(name, dir_fd=here)
                if stat.S_ISLNK(info.st_mode):
                    links += 1
                    if links > _MOST_LINKS:
                        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
                    self.judge_link(info, self.shown(name))
                    target = os.readlink(name, dir_fd=here)
                    parts.extendleft(reversed(list(_names(target))))
                    if target.startswith("/"):
                        here = self._enter("/", here, last=to_folder and not parts)
                elif parts or to_folder:
                    here = self._enter(name, here, last=to_folder and not parts)
                else:
                    return os.dup(here), name
            if not to_folder:
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
            return os.dup(here), ""
        finally:
            os.close(here)

    def _enter(self, name: str, above: int | None, *, last: bool) -> int:
        """The folder ``name``, judged; ``above``, which it lies in, is closed if it is well."""
        if name == "/" or (name == ".." and not self._passed):
            # The root may itself be a link of the kernel's, such as /proc/1/root.
            handle = os.open(self._root, _FOLDER)
            self._passed.clear()
        else:
            handle = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=above)
            if name == "..":
                self._passed.pop()
            else:
                self._passed.append(name)
        try:
            self.judge_folder(handle, self.shown(), last=last)
        except BaseException:
            os.close(handle)
            raise
        if above is not None:
            os.close(above)
        return handle


def _names(path: str) -> Iterator[str]:
    return (part for part in path.split("/") if part not in ("", "."))
