"""The file by which programs of the same user on the same machine find the coordinator's page.

It holds the page's address and the deployment's secret, is 0600, and lies in a folder that only its
user can write to: ``/dev/shm/ray_sentinel-<uid>``, else the same name in the temporary folder, else
``~/.ray_sentinel``, because anybody can take the first two names. Nothing in a folder or a file of
another user is believed, and the one in question is reported.

The coordinator holds a lock on its file (``flock``) as long as it lives, also across containers
that share the folder, and the kernel drops it after SIGKILL too: a file without a lock is what a
coordinator left behind.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from ray_sentinel.config import safe_name
from ray_sentinel.errors import SentinelError
from ray_sentinel.http.access import PageCredential
from ray_sentinel.kernel_files import boot_id
from ray_sentinel.trusted_path import claim_private_folder

PREFIX, SUFFIX = "page-", ".json"
MOST_BYTES = 64 << 10
"""Most bytes that are read of a file; usual ones have some hundred."""
MOST_FILES = 256
"""Most files of a folder that are looked at."""


class PageEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a page's file; times in Unix seconds."""

    url: str
    """Address of the page on this machine: ``http://127.0.0.1:PORT/``."""
    secret: bytes
    """Secret with which requests are signed; Base64 in the file."""
    deployment: str
    wanted_port: int = 0
    """The configured port; ``url`` has another if that was taken."""
    job: str = ""
    cluster: str = ""
    """Address of the Ray cluster's control store, as ``HOST:PORT``."""
    since: float = 0.0
    network: str = ""
    """Boot and network namespace that the loopback address belongs to."""

    @property
    def address(self) -> str:
        """``HOST:PORT``, as clients dial it."""
        return urlsplit(self.url).netloc

    def credential(self) -> PageCredential:
        """What a client on this machine signs with."""
        return PageCredential.of_secret(self.secret, self.address)


class _UntrustedError(SentinelError):
    """A folder or a file that another user made, or could have."""


def folders() -> list[Path]:
    """Where pages' files may lie, best first."""
    name = f"ray_sentinel-{os.geteuid()}"
    found = [Path("/dev/shm") / name, Path(tempfile.gettempdir()) / name]
    with contextlib.suppress(RuntimeError):  # a user without a home
        found.append(Path.home() / ".ray_sentinel")
    return list(dict.fromkeys(found))


def network() -> str:
    """Identifies a loopback network: processes with the same value reach each other there; empty if
    unknown."""
    try:
        return f"{boot_id()} {os.stat('/proc/self/ns/net').st_ino}"
    except OSError:
        return ""


class PageFile:
    """Written when it is created, and kept until ``close``. ``problems`` are the folders that could
    not be used; ``path`` is None if none could."""

    def __init__(self, entry: PageEntry, where: Iterable[Path] | None = None) -> None:
        self.path: Path | None = None
        self.problems: list[str] = []
        self._handle = -1
        self._entry = entry
        self._folders = folders() if where is None else list(where)
        self._place()

    def _place(self) -> None:
        self.problems = []
        for folder in self._folders:
            try:
                self.path = self._write(folder, self._entry)
                break
            except (OSError, _UntrustedError) as error:
                self.problems.append(_reason(error, folder))

    def _write(self, folder: Path, entry: PageEntry) -> Path:
        if problem := claim_private_folder(folder):
            raise _UntrustedError(problem)
        directory = _open_folder(folder)
        name = f"{PREFIX}{safe_name(entry.deployment)}{SUFFIX}"
        try:
            _remove_stale(directory)
            self._handle = _write_locked(directory, name, msgspec.json.encode(entry))
        finally:
            os.close(directory)
        return folder / name

    def restore(self) -> None:
        """Write it again if somebody has removed it."""
        if self._is_there() or self._handle < 0:
            return
        os.close(self._handle)
        self._handle, self.path = -1, None
        self._place()

    def _is_there(self) -> bool:
        try:
            return self.path is not None and os.path.samestat(
                os.lstat(self.path), os.fstat(self._handle)
            )
        except OSError:
            return False

    def close(self) -> None:
        """Remove it, unless a later coordinator has written its own."""
        if self._handle < 0:
            return
        if self._is_there() and self.path is not None:
            with contextlib.suppress(OSError):
                self.path.unlink()
        os.close(self._handle)
        self._handle = -1


def pages() -> tuple[list[PageEntry], list[str]]:
    """This user's pages that are served on this machine's loopback now, latest first; and which
    files were not trusted, and why."""
    found: list[PageEntry] = []
    problems: list[str] = []
    for folder in folders():
        try:
            directory = _open_folder(folder)
        except FileNotFoundError:
            continue
        except (OSError, _UntrustedError) as error:
            problems.append(_reason(error, folder))
            continue
        try:
            for name in _names(directory):
                try:
                    found += filter(None, [_read(directory, name)])
                except FileNotFoundError:
                    continue  # its coordinator has just ended
                except (OSError, _UntrustedError) as error:
                    problems.append(_reason(error, folder / name))
        finally:
            os.close(directory)
    here = network()
    near = [one for one in found if not (here and one.network and one.network != here)]
    return sorted(near, key=lambda entry: -entry.since), problems


def _write_locked(directory: int, name: str, data: bytes) -> int:
    """The descriptor of a new file, which holds its lock. Raises OSError."""
    partial = f".{name}.{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(partial, flags, 0o600, dir_fd=directory)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.write(handle, data) != len(data):
            raise OSError("the file could not be written whole")
        os.rename(partial, name, src_dir_fd=directory, dst_dir_fd=directory)
    except OSError:
        os.close(handle)
        with contextlib.suppress(OSError):
            os.unlink(partial, dir_fd=directory)
        raise
    return handle


def _open_folder(folder: Path) -> int:
    """The folder's descriptor. Raises OSError, and _UntrustedError where it is not ours alone."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except NotADirectoryError:
        raise _UntrustedError("is no folder, or a link") from None
    status = os.fstat(handle)
    problem = ""
    if status.st_uid not in (0, os.geteuid()):
        problem = f"belongs to user {status.st_uid}"
    elif status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        problem = "can be written to by others"
    if problem:
        os.close(handle)
        raise _UntrustedError(problem)
    return handle


def _names(directory: int) -> list[str]:
    names = (name for name in os.listdir(directory) if name.startswith(PREFIX))
    return sorted(name for name in names if name.endswith(SUFFIX))[:MOST_FILES]


def _read(directory: int, name: str) -> PageEntry | None:
    """The content of a file; None if its coordinator has gone.

    Raises OSError, and _UntrustedError for a file that is not ours alone or says nothing.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    handle = os.open(name, flags, dir_fd=directory)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise _UntrustedError("is no file")
        if status.st_uid not in (0, os.geteuid()):
            raise _UntrustedError(f"belongs to user {status.st_uid}")
        if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise _UntrustedError("can be read or written by others")
        if not _is_locked(handle):
            return None
        entry = msgspec.json.decode(os.read(handle, MOST_BYTES), type=PageEntry)
        if not (entry.secret and entry.address):
            raise _UntrustedError("names no page")
        return entry
    except (ValueError, RecursionError):
        raise _UntrustedError("is no page's file of this version") from None
    finally:
        os.close(handle)


def _is_locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _remove_stale(directory: int) -> None:
    for name in _names(directory):
        with contextlib.suppress(OSError, _UntrustedError):
            if _read(directory, name) is None:
                os.unlink(name, dir_fd=directory)


def _reason(error: Exception, path: Path) -> str:
    if isinstance(error, _UntrustedError):
        return f"{path} {error}: it is not used; remove it"
    if isinstance(error, OSError) and error.errno == errno.ELOOP:
        return f"{path} is a link: it is not used; remove it"
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"{path}: {text}"
