"""Prometheus's data folders: found, inspected and mirrored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ray_sentinel.errors import InputError
from ray_sentinel.store.prometheus.mirror import mirror
from ray_sentinel.store.prometheus.tsdb import find_database, inspect, listen_address, lock_holder

ULID = "01M7WKNY0802537T9WYAKWGJGN"


def block(folder: Path, name: str = ULID, start: int = 1000, end: int = 7200000) -> Path:
    path = folder / name
    (path / "chunks").mkdir(parents=True)
    (path / "meta.json").write_text(json.dumps({"ulid": name, "minTime": start, "maxTime": end}))
    (path / "index").write_bytes(b"\xba\xaa\xd7\x00" + b"\0" * 100)
    (path / "chunks" / "000001").write_bytes(b"\x85\xbd\x40\xdd" + b"\0" * 20)
    return path


@pytest.mark.parametrize("inside", ["", "prometheus", "prometheus/data", "data"])
def test_the_data_folder_is_found(tmp_path: Path, inside: str) -> None:
    block(tmp_path / inside)
    assert find_database(tmp_path) == tmp_path / inside
    assert inspect(tmp_path / inside).span == (1.0, 7200.0)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: None, "no such folder"),
        (lambda path: path.write_text("x"), "is a file"),
        (lambda path: path.mkdir(), "not a Prometheus data folder"),
        (lambda path: (path / "prometheus").mkdir(parents=True), "never started"),
    ],
)
def test_what_is_no_database_says_what_it_is(tmp_path: Path, make, says: str) -> None:  # type: ignore[no-untyped-def]
    make(tmp_path / "job")
    with pytest.raises(InputError, match=says):
        find_database(tmp_path / "job")


@pytest.mark.parametrize(
    ("file", "content"),
    [("meta.json", b"{"), ("meta.json", b"[]"), ("index", b"xx"), ("index", b"")],
)
def test_a_broken_block_is_named_and_the_others_stay(
    tmp_path: Path, file: str, content: bytes
) -> None:
    block(tmp_path)
    bad = block(tmp_path, ULID[:-1] + "0")
    (bad / file).write_bytes(content)
    found = inspect(tmp_path)
    assert [Path(one.path).name for one in found.blocks] == [ULID]
    assert len(found.broken) == 1
    assert bad.name in found.broken[0]


def test_a_mirror_leaves_the_data_untouched(tmp_path: Path) -> None:
    block(tmp_path / "data")
    (tmp_path / "data" / "lock").touch()
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "data").rglob("*")}
    mirror(inspect(tmp_path / "data"), tmp_path / "mirror")
    copied = tmp_path / "mirror" / ULID
    assert (copied / "index").read_bytes()[:4] == b"\xba\xaa\xd7\x00"
    assert not (tmp_path / "mirror" / "lock").exists()
    (copied / "meta.json").write_text("changed")
    (copied / "index").unlink()
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "data").rglob("*")} == before


def test_the_holder_of_a_lock_is_read_from_the_kernels_table(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.touch()
    status = lock.stat()
    proc = tmp_path / "proc"
    (proc / "4242").mkdir(parents=True)
    device = f"{status.st_dev >> 8 & 0xFFF:02x}:{status.st_dev & 0xFF:02x}:{status.st_ino}"
    (proc / "locks").write_text(
        "1: POSIX  ADVISORY  WRITE 1 00:01:99 0 EOF\n"
        f"2: FLOCK  ADVISORY  WRITE 4242 {device} 0 EOF\n"
    )
    (proc / "4242" / "cmdline").write_bytes(b"prometheus\0--web.listen-address=0.0.0.0:9191\0--x\0")
    assert lock_holder(lock, proc) == 4242
    assert listen_address(4242, proc) == "127.0.0.1:9191"
    assert lock_holder(tmp_path / "none", proc) == 0
    assert listen_address(77, proc) == ""
