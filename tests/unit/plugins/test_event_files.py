"""Following TensorBoard event files as they grow and rotate."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from ray_sentinel.evidence.event_files.records import MAX_RECORD, masked
from ray_sentinel_plugins._event_files.follow import FollowedFolder, event_folders, parse_name
from tests.support.event_files import event, framed


def test_names_of_files() -> None:
    found = parse_name("events.out.tfevents.1700000000.node.a.b.77.3.v2")
    assert found is not None
    assert (found.time, found.host, found.pid, found.number) == (1700000000, "node.a.b", "77", 3)
    old = parse_name("events.out.tfevents.1700000000.node1")
    assert old is not None
    assert (old.host, old.pid) == ("node1", "")
    assert parse_name("checkpoint.pt") is None


def steps(folder: FollowedFolder) -> list[int]:
    folder.scan()
    found = []
    for file in folder.files.values():
        while True:
            found += [e.step for e in file.read() if e.scalars]
            if file.caught_up:
                break
    return found


def test_follows_as_a_file_grows_and_rotates(tmp_path: Path) -> None:
    first = tmp_path / "events.out.tfevents.100.host.7.0"
    folder = FollowedFolder(tmp_path)
    assert steps(folder) == []
    first.write_bytes(framed(event(1)) + framed(event(2))[:20])
    assert steps(folder) == [1]
    assert steps(folder) == []
    with first.open("ab") as file:
        file.write(framed(event(2))[20:] + framed(event(3)))
    assert steps(folder) == [2, 3]
    (tmp_path / "events.out.tfevents.200.host.7.1").write_bytes(framed(event(4)))
    (tmp_path / "events.out.tfevents.300.host.9.0").write_bytes(framed(event(3)))
    assert steps(folder) == [4, 3]
    assert [file.attempt for file in folder.files.values()] == [0, 0, 1]


def test_records_larger_than_a_chunk(tmp_path: Path) -> None:
    large = event(5, file_version=None) + b"\xfa\x01" + b"\x80\x80\x80\x01" + bytes(1 << 21)
    (tmp_path / "events.out.tfevents.1.h").write_bytes(
        framed(event(1)) + framed(large) + framed(event(6)) + framed(large)[:-1]
    )
    folder = FollowedFolder(tmp_path)
    assert steps(folder) == [1, 5, 6]
    assert folder.caught_up
    assert folder.corrupt == 0


def test_a_corrupt_stretch_longer_than_a_chunk_is_counted_once(tmp_path: Path) -> None:
    (tmp_path / "events.out.tfevents.1.h").write_bytes(
        framed(event(1)) + b"\xaa" * (5 << 20) + framed(event(2))
    )
    folder = FollowedFolder(tmp_path)
    assert steps(folder) == [1, 2]
    assert folder.corrupt == 1


def test_an_oversize_record_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.1.h"
    length = struct.pack("<Q", MAX_RECORD + 1)
    with path.open("wb") as file:
        file.write(framed(event(1)) + length + struct.pack("<I", masked(length)))
        file.seek(MAX_RECORD + 1 + 4, 1)
        file.write(framed(event(2)))
    folder = FollowedFolder(tmp_path)
    assert steps(folder) == [1, 2]
    assert next(iter(folder.files.values())).oversize == 1


def test_folders_below(tmp_path: Path) -> None:
    for name in ("a", "b/c"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "events.out.tfevents.1.h").touch()
    (tmp_path / "other").mkdir()
    assert event_folders(tmp_path) == [tmp_path / "a", tmp_path / "b" / "c"]


@pytest.mark.parametrize(
    ("names", "attempts"),
    [
        (["100.a.7.0", "160.a.7.1", "220.a.8.0"], [0, 0, 1]),
        # The same pid again, as in a container that was started again.
        (["100.a.7.0", "160.a.7.1", "220.a.7.0", "280.a.7.1"], [0, 0, 1, 1]),
        (["100.a.7.0", "100.a.7.1", "100.b.7.0"], [0, 0, 1]),
        (["100.a", "200.a"], [0, 1]),
    ],
)
def test_attempts_are_told_apart(tmp_path: Path, names: list[str], attempts: list[int]) -> None:
    for name in names:
        (tmp_path / f"events.out.tfevents.{name}").write_bytes(b"")
    folder = FollowedFolder(tmp_path)
    folder.scan()
    found = {name: file.attempt for name, file in folder.files.items()}
    assert [found[f"events.out.tfevents.{name}"] for name in names] == attempts
