"""Files that we run or obey, read only where nobody but root and we can have written them.

The rule is that of OpenSSH's ``StrictModes``, made stricter for links. A path is walked from ``/``,
each part opened in the folder before it, so that what was judged is what is opened:

- Every folder, every symbolic link on the way and the file itself belong to root or to the user
  that we run as. The folders that a link lies in and those that it leads to are both walked.
- No folder and no file may be written by others, nor by a group, except by a group that is one
  user's own (named like root or like us, primary group of that user only, without members, and no
  ACL stands behind it), as distributions with ``umask 002`` make them.
- A folder that others may write to is passed all the same if its sticky bit is set (``/tmp``):
  what is ours in it cannot be replaced by them. A folder of *programs* (``in_closed_folder``) must
  not be one: others could lay modules beside the program that it imports.
- What lies on a file system that is mounted read-only has no writers (a ConfigMap of Kubernetes is
  a folder with mode 0777 on such a mount): whoever mounted it answers for it.

Where files rightly belong to somebody else (a home of user 1000 mounted into a container whose user
is root, NFS that maps root to nobody), ``RAY_SENTINEL_TRUSTED_UIDS`` names users to be trusted like
root, with commas between, or is ``all``, which switches the check off: right only where nobody
else reaches these file systems. It comes from the environment alone: a file could speak for itself.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from ray_sentinel.errors import ConfigError, InputError
from ray_sentinel.path_walk import READ_FILE, PathWalk

TRUSTED_UIDS_VARIABLE = "RAY_SENTINEL_TRUSTED_UIDS"
_EVERYBODY = "all"
_ACL = "system.posix_acl_access"
_ROOT = 0


class UntrustedPathError(InputError):
    """A file that somebody else can have written: names it, or its folder, and the remedy."""

    def about(self, path: str | os.PathLike[str]) -> str:
        """What is wrong, beginning with the file that was asked for."""
        text = str(self)
        return text if text.startswith(f"{path}:") else f"{path}: is not used: {text}"


class TrustedFile(msgspec.Struct, frozen=True):
    """A file's bytes, and what the file was when they were read."""

    data: bytes
    mode: int
    """Type and permissions of the file, as ``st_mode``."""


def trusted_uids(environ: Mapping[str, str] = os.environ) -> frozenset[int] | None:
    """The users whose files are trusted: root, ourselves and whom the environment names.

    None where everybody is. Raises ConfigError for a value that is no list of numbers.
    """
    named = environ.get(TRUSTED_UIDS_VARIABLE, "").strip()
    if named == _EVERYBODY:
        return None
    uids = {_ROOT, os.geteuid()}
    for one in filter(None, (word.strip() for word in named.split(","))):
        if not (one.isascii() and one.isdigit() and len(one) < 12):
            raise ConfigError(
                f"{TRUSTED_UIDS_VARIABLE}: {one[:40]!r} is no user's number: write numbers with "
                f"commas between, such as 1000,1001, or {_EVERYBODY}"
            )
        uids.add(int(one))
    return frozenset(uids)


def are_trusted(users: Collection[int]) -> bool:
    """Whether all of these users are trusted. Of an environment that is wrong nobody is, but root
    and us: who reads a file says so."""
    try:
        trusted = trusted_uids()
    except ConfigError:
        trusted = frozenset({_ROOT, os.geteuid()})
    return trusted is None or trusted.issuperset(users)


def read_trusted(
    path: str | os.PathLike[str], *, most: int, in_closed_folder: bool = False
) -> TrustedFile:
    """Read a file that will be run or obeyed, ``most`` bytes at most.

    Raises UntrustedPathError, for a larger file too; OSError where it cannot be read.
    """
    walk = _Walk(trusted_uids(), in_closed_folder=in_closed_folder)
    handle = walk.open_file(Path(path))
    with open(handle, "rb") as file:
        info = os.fstat(handle)
        if info.st_size > most:
            raise UntrustedPathError(f"{path}: larger than {most} bytes")
        data = file.read(most + 1)
    if len(data) > most:
        raise UntrustedPathError(f"{path}: larger than {most} bytes")
    return TrustedFile(data, info.st_mode)


def check_trusted_folder(path: str | os.PathLike[str]) -> None:
    """Check a folder of programs: nobody else may write into it, nor into any above it.

    Raises UntrustedPathError; OSError where it cannot be looked at.
    """
    os.close(_Walk(trusted_uids(), in_closed_folder=True).open_folder(Path(path)))


def check_trusted_file(path: str | os.PathLike[str]) -> None:
    """Check a file that another program will open by its path.

    Nobody who is not trusted can change what the path leads to afterwards. Raises
    UntrustedPathError; OSError where it cannot be read.
    """
    os.close(_Walk(trusted_uids(), in_closed_folder=False).open_file(Path(path)))


def claim_private_folder(folder: Path) -> str:
    """Make ``folder`` ours alone (0700), where it is missing too; else says why it cannot be.

    The folders above it are judged too. One of ours that others could write into is taken only
    while it is empty: what lies in it may be theirs. Raises OSError if it cannot be made.
    """
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=stat.S_IRWXU)
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode):
        return "is no folder"
    if status.st_uid != os.geteuid():
        return f"belongs to user {status.st_uid}"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        try:
            folder.rmdir()
        except OSError:
            return "others could write into it"
        folder.mkdir(mode=stat.S_IRWXU)
    elif status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        folder.chmod(stat.S_IRWXU)
    try:
        check_trusted_folder(folder)
    except UntrustedPathError as error:
        return str(error)
    return ""


class _Walk(PathWalk):
    """One walk from ``/``; ``uids`` are the trusted ones, None for everybody."""

    def __init__(self, uids: frozenset[int] | None, *, in_closed_folder: bool) -> None:
        super().__init__()
        self._uids = uids
        self._closed = in_closed_folder

    def open_file(self, path: Path) -> int:
        """A descriptor for reading of a regular file. Raises UntrustedPathError, OSError."""
        if self._closed:
            # The folder that the path names; a link in it may lead to a file in any other.
            os.close(_Walk(self._uids, in_closed_folder=True).open_folder(path.parent))
        folder, name = self.walk(path, to_folder=False)
        try:
            if not stat.S_ISREG(os.lstat(name, dir_fd=folder).st_mode):
                raise UntrustedPathError(f"{path}: is no regular file")
            handle = os.open(name, READ_FILE, dir_fd=folder)
        finally:
            os.close(folder)
        try:
            self._judge(handle, os.fstat(handle), self.shown(name))
        except UntrustedPathError:
            os.close(handle)
            raise
        return handle

    def open_folder(self, path: Path) -> int:
        """A descriptor of a folder, not for reading. Raises UntrustedPathError, OSError."""
        return self.walk(path, to_folder=True)[0]

    def judge_link(self, info: os.stat_result, shown: str) -> None:
        """Raises UntrustedPathError."""
        self._judge_owner(info, shown)

    def judge_folder(self, handle: int, shown: str, *, last: bool) -> None:
        """Raises UntrustedPathError."""
        info = os.fstat(handle)
        if not info.st_mode & stat.S_ISVTX or (last and self._closed):
            self._judge(handle, info, shown)
        else:
            self._judge_owner(info, shown)

    def _judge(self, handle: int, info: os.stat_result, shown: str) -> None:
        """Whether nobody but trusted users may write to what is open."""
        self._judge_owner(info, shown)
        if self._uids is None or not info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return
        if _is_read_only(handle):
            return
        what = "into it" if stat.S_ISDIR(info.st_mode) else "to it"
        if info.st_mode & stat.S_ISVTX and stat.S_ISDIR(info.st_mode):
            raise UntrustedPathError(
                f"{shown}: others may make files in it, so no program is run from it; use a folder "
                "of your own in it, with mode 0700"
            )
        if info.st_mode & stat.S_IWOTH:
            raise UntrustedPathError(
                f"{shown}: everybody may write {what}, so it is not trusted; chmod o-w it"
            )
        if not _is_private(info.st_gid, self._uids) or _has_acl(handle):
            raise UntrustedPathError(
                f"{shown}: others of group {info.st_gid} may write {what}, so it is not trusted; "
                "chmod g-w it"
            )

    def _judge_owner(self, info: os.stat_result, shown: str) -> None:
        if self._uids is None or info.st_uid in self._uids:
            return
        raise UntrustedPathError(
            f"{shown}: belongs to user {info.st_uid}, who is neither root nor the user that this "
            f"runs as ({os.geteuid()}), so it is not trusted; chown it, or, if that user may run "
            f"anything as us, set {TRUSTED_UIDS_VARIABLE}={info.st_uid} in the environment"
        )


def _is_read_only(handle: int) -> bool:
    try:
        return bool(os.fstatvfs(handle).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def _has_acl(handle: int) -> bool:
    """Whether an access list stands behind the group's bits; also where that is not known."""
    try:
        os.getxattr(f"/proc/self/fd/{handle}", _ACL)
    except OSError as error:
        return error.errno not in (errno.ENODATA, errno.EOPNOTSUPP)
    except AttributeError:  # no Linux: there the bits do not hide a list
        return False
    return True


def _is_private(gid: int, uids: frozenset[int]) -> bool:
    """Whether the group is one trusted user's own: named like the user, and nobody else in it."""
    # Imported here: their databases may be on the network, and hardly ever are they needed.
    import grp
    import pwd

    try:
        group = grp.getgrgid(gid)
        user = pwd.getpwnam(group.gr_name)
    except (KeyError, OSError):
        return False
    if user.pw_gid != gid or user.pw_uid not in uids or set(group.gr_mem) - {user.pw_name}:
        return False
    return _has_as_primary(gid) <= {user.pw_name}


def _has_as_primary(gid: int) -> set[str]:
    """The local users with that primary group: asking a directory service for all may take long."""
    names = set()
    with contextlib.suppress(OSError), open("/etc/passwd", encoding="utf-8", errors="replace") as f:
        for line in f:
            fields = line.split(":")
            if len(fields) > 3 and fields[3] == str(gid):
                names.add(fields[0])
    return names
