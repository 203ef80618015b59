"""Files that are run or obeyed are read only where nobody else can have written them."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ray_sentinel.errors import ConfigError
from ray_sentinel.trusted_path import (
    TRUSTED_UIDS_VARIABLE,
    UntrustedPathError,
    check_trusted_file,
    check_trusted_folder,
    claim_private_folder,
    read_trusted,
    trusted_uids,
)
from tests.support.parts import lacking, needs_root

SOMEBODY = 4321


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """``…/top/inner/file``, all of it ours alone."""
    inner = tmp_path / "top" / "inner"
    inner.mkdir(parents=True)
    for folder in (inner, inner.parent):
        folder.chmod(0o755)
    file = inner / "file"
    file.write_text("ours")
    file.chmod(0o644)
    return file


def read(file: Path, **how: bool) -> str:
    return read_trusted(file, most=100, **how).data.decode()


def test_what_is_ours_alone_is_read(file: Path) -> None:
    got = read_trusted(file, most=4)
    assert got.data == b"ours"
    assert stat.S_IMODE(got.mode) == 0o644
    assert read(file, in_closed_folder=True) == "ours"
    check_trusted_file(file)
    check_trusted_folder(file.parent)


def test_what_belongs_to_root_is_read() -> None:
    assert read_trusted("/etc/passwd", most=1 << 20).data


def test_a_relative_path_is_taken_from_here(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    assert read(Path("file")) == read(Path("../inner/./file")) == "ours"


@pytest.mark.parametrize(
    ("spoil", "where", "remedy"),
    [
        (lambda file: file.chmod(0o646), "file", "chmod o-w"),
        (lambda file: file.parent.chmod(0o757), "inner", "chmod o-w"),
        (lambda file: file.parent.parent.chmod(0o757), "top", "chmod o-w"),
    ],
)
def test_what_everybody_may_write_is_refused_by_name(
    file: Path, spoil: Callable[[Path], None], where: str, remedy: str
) -> None:
    spoil(file)
    with pytest.raises(UntrustedPathError, match=remedy) as refused:
        read(file)
    assert str(refused.value).partition(":")[0].endswith(f"/{where}")


@needs_root()
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_what_belongs_to_another_user_is_refused_by_name(file: Path, depth: int) -> None:
    path = [file, file.parent, file.parent.parent][depth]
    os.chown(path, SOMEBODY, SOMEBODY)
    with pytest.raises(UntrustedPathError, match=f"{path}: belongs to user {SOMEBODY}"):
        read(file)


@needs_root()
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_what_a_shared_group_may_write_is_refused(file: Path, depth: int) -> None:
    path = [file, file.parent, file.parent.parent][depth]
    os.chown(path, 0, SOMEBODY)
    path.chmod(0o775)
    with pytest.raises(UntrustedPathError, match=rf"{path}: others of group {SOMEBODY}.*chmod g-w"):
        read(file)


@needs_root()
def test_a_group_of_its_own_user_may_write(file: Path) -> None:
    # Group root, named like its user and without members: as "umask 002" leaves files.
    for path in (file, file.parent):
        path.chmod(0o775)
    assert read(file, in_closed_folder=True) == "ours"


@needs_root()
def test_an_access_list_behind_the_group_is_refused(file: Path) -> None:
    entry = "<HHI"
    import struct

    acl = struct.pack("<I", 2) + b"".join(
        struct.pack(entry, *one)
        for one in (
            (0x01, 6, 0xFFFFFFFF),
            (0x02, 6, SOMEBODY),
            (0x04, 4, 0xFFFFFFFF),
            (0x10, 6, 0xFFFFFFFF),
            (0x20, 4, 0xFFFFFFFF),
        )
    )
    try:
        os.setxattr(file, "system.posix_acl_access", acl)
    except OSError:
        lacking("the temporary folder's file system keeps no access lists")
    with pytest.raises(UntrustedPathError, match="chmod g-w"):
        read(file)


def test_a_sticky_folder_is_passed_but_holds_no_programs(file: Path) -> None:
    file.parent.chmod(0o1777)
    assert read(file) == "ours"
    with pytest.raises(UntrustedPathError, match="a folder of your own"):
        read(file, in_closed_folder=True)
    with pytest.raises(UntrustedPathError, match="a folder of your own"):
        check_trusted_folder(file.parent)
    inside = file.parent / "mine"
    inside.mkdir(mode=0o700)
    check_trusted_folder(inside)


@needs_root()
def test_what_others_made_in_a_sticky_folder_is_refused(file: Path) -> None:
    file.parent.chmod(0o1777)
    os.chown(file, SOMEBODY, SOMEBODY)
    with pytest.raises(UntrustedPathError, match="belongs to user"):
        read(file)


def test_links_are_followed_where_both_ends_are_ours(file: Path, tmp_path: Path) -> None:
    (tmp_path / "absolute").symlink_to(file)
    (tmp_path / "relative").symlink_to("top/inner/../inner/file")
    (tmp_path / "folder").symlink_to("top")
    (tmp_path / "chain").symlink_to("folder/inner/file")
    for link in ("absolute", "relative", "folder/inner/file", "chain"):
        assert read(tmp_path / link) == "ours", link
        assert read(tmp_path / link, in_closed_folder=True) == "ours", link


def test_the_folders_that_a_link_leads_to_are_judged(file: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(file)
    file.parent.parent.chmod(0o777)
    with pytest.raises(UntrustedPathError, match="top: everybody"):
        read(tmp_path / "link")


def test_the_folder_that_a_link_lies_in_is_judged(file: Path, tmp_path: Path) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    (open_to_all / "link").symlink_to(file)
    with pytest.raises(UntrustedPathError, match="open: everybody"):
        read(open_to_all / "link")
    with pytest.raises(UntrustedPathError, match="open: everybody"):
        read(tmp_path / "open" / ".." / "top" / "inner" / "file")


@needs_root()
def test_a_link_of_another_user_is_refused_wherever_it_leads(file: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    link = shared / "link"
    link.symlink_to(file)
    os.chown(link, SOMEBODY, SOMEBODY, follow_symlinks=False)
    with pytest.raises(UntrustedPathError, match="link: belongs to user"):
        read(link)


def test_a_circle_of_links_ends(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        read(tmp_path / "a")


def test_a_pipe_is_refused_without_waiting_for_its_writer(file: Path) -> None:
    pipe = file.parent / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(UntrustedPathError, match="no regular file"):
        read(pipe)


def test_a_folder_or_nothing_is_no_file(file: Path) -> None:
    for path in (file.parent, Path("/"), file.parent / ".."):
        with pytest.raises((UntrustedPathError, IsADirectoryError)):
            read(path)
    for path in (file.parent / "none", file.parent / "none" / "file"):
        with pytest.raises(FileNotFoundError):
            read(path)
    with pytest.raises(NotADirectoryError):
        read(file / "below")


def test_too_large_a_file_is_refused(file: Path) -> None:
    with pytest.raises(UntrustedPathError, match="larger than 3"):
        read_trusted(file, most=3)


def test_no_descriptor_is_left_open(file: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(file)
    file.parent.chmod(0o777)
    before = len(os.listdir("/proc/self/fd"))
    for path in (file, tmp_path / "link", tmp_path / "none", Path("/etc/passwd")):
        for closed in (False, True):
            with pytest.raises((UntrustedPathError, OSError)):
                read_trusted(path, most=0, in_closed_folder=closed)
    assert len(os.listdir("/proc/self/fd")) == before


@needs_root()
def test_named_users_are_trusted(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (file, file.parent):
        os.chown(path, SOMEBODY, SOMEBODY)
    monkeypatch.setenv(TRUSTED_UIDS_VARIABLE, f"77, {SOMEBODY}")
    assert read(file) == "ours"
    monkeypatch.setenv(TRUSTED_UIDS_VARIABLE, "all")
    file.chmod(0o666)
    assert read(file, in_closed_folder=True) == "ours"


def test_the_list_of_users_is_checked() -> None:
    assert trusted_uids({}) == {0, os.geteuid()}
    assert trusted_uids({TRUSTED_UIDS_VARIABLE: "7,8"}) == {0, os.geteuid(), 7, 8}
    assert trusted_uids({TRUSTED_UIDS_VARIABLE: "all"}) is None
    for wrong in ("alice", "-1", "1 2", "²", "ALL"):
        with pytest.raises(ConfigError, match=TRUSTED_UIDS_VARIABLE):
            trusted_uids({TRUSTED_UIDS_VARIABLE: wrong})


@needs_root()
def test_a_read_only_mount_has_no_writers(file: Path, tmp_path: Path) -> None:
    file.parent.chmod(0o777)
    script = (
        "import sys; from ray_sentinel.trusted_path import read_trusted as r;"
        "sys.stdout.buffer.write(r(sys.argv[1], most=9, in_closed_folder=True).data)"
    )
    mount = f"mount --bind {file.parent} {file.parent} && mount -o remount,ro,bind {file.parent}"
    unshared = ["unshare", "-m", "sh", "-c", f'{mount} && exec "$@"', "sh"]
    done = subprocess.run(
        [*unshared, sys.executable, "-c", script, str(file)],
        capture_output=True,
        timeout=30,
        check=False,
    )
    if b"mount:" in done.stderr or b"unshare:" in done.stderr:
        pytest.skip("nothing can be mounted here")
    assert done.stdout == b"ours", done.stderr


def test_a_private_folder_is_made_and_closed(tmp_path: Path) -> None:
    folder = tmp_path / "private"
    assert claim_private_folder(folder) == ""
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o755)
    (folder / "kept").write_text("")
    assert claim_private_folder(folder) == ""
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert (folder / "kept").exists()


def test_a_folder_that_others_could_write_into_is_private_only_while_empty(tmp_path: Path) -> None:
    folder = tmp_path / "private"
    folder.mkdir()
    folder.chmod(0o777)
    assert claim_private_folder(folder) == ""
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o777)
    (folder / "planted").write_text("")
    for _ in range(2):
        assert "others could write" in claim_private_folder(folder)


def test_a_private_folder_lies_where_others_cannot_swap_it(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    assert "chmod o-w" in claim_private_folder(tmp_path / "private")
    tmp_path.chmod(0o1777)
    assert claim_private_folder(tmp_path / "private") == ""
