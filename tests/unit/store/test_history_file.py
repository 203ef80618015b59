"""What can happen to a history on disk."""

from __future__ import annotations

import fcntl
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ray_sentinel.diagnose.series import Selector
from ray_sentinel.errors import InputError
from ray_sentinel.store.history.file import FRESH_SECONDS, HistoryFile, open_history
from ray_sentinel.store.history.source import HistorySource
from ray_sentinel.store.history.writer import History, RowPacker, Rows

NOW = 1.7e9


def rows(at: float, value: float = 1.0, host: str = "n1") -> list[Rows]:
    return RowPacker().pack(at, host, {"hw_load1": value, "train_step": at})


def moments(path: Path | None) -> list[float]:
    assert path is not None
    source = HistorySource.open(path)
    found = source.samples(Selector("hw_load1"), 0, 1e12)
    source.close()
    return [float(at) for one in found for at in one.times]


def aged(path: Path | None, seconds: float) -> None:
    assert path is not None
    for file in (path, path.with_name(path.name + "-wal")):
        if file.exists():
            os.utime(file, (NOW - seconds, NOW - seconds))


def test_it_is_read_while_it_is_written_and_after(tmp_path: Path) -> None:
    file = HistoryFile(tmp_path / "history", "one")
    assert file.put(rows(NOW), NOW)
    assert file.put(rows(NOW + 5), NOW + 5)
    assert moments(file.path) == [NOW, NOW + 5]
    path, before = file.path, sorted(tmp_path.rglob("*"))
    assert moments(path) == [NOW, NOW + 5]
    assert sorted(tmp_path.rglob("*")) == before, "a reader leaves nothing behind"
    assert not any(name.name.endswith("-shm") for name in before)
    file.close()
    assert moments(path) == [NOW, NOW + 5]
    assert {one.name for one in path.parent.iterdir()} == {path.name, f".{path.name}.lock"}  # type: ignore[union-attr]


WRITER = """
import sys
from pathlib import Path
from ray_sentinel.store.history.writer import RowPacker
from ray_sentinel.store.history.file import HistoryFile
file, packer = HistoryFile(Path(sys.argv[1]), "one"), RowPacker()
for second in range(100000):
    at = 1.7e9 + second
    assert file.put(packer.pack(at, "n1", {"hw_load1": 1.0}), at), file.problem
    if second == 300: print(at, flush=True)
"""


def test_a_killed_writer_loses_nothing_and_the_next_goes_on_in_its_file(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        told = float(writer.stdout.readline())
        other = HistoryFile(tmp_path, "two")
        assert other.put(rows(NOW), NOW)
        (first,) = set(tmp_path.glob("series-*.db")) - {other.path}
        os.kill(writer.pid, signal.SIGKILL)
    other.close()
    assert other.path is None
    assert moments(first)[-1] >= told
    for path in tmp_path.glob("series-*.db"):
        aged(path, 10 * FRESH_SECONDS)
    again = HistoryFile(tmp_path, "one")
    assert again.put(rows(told + 1e6), told + 1e6)
    assert again.path == first, "its own, however old it is"
    assert moments(first)[0] - NOW <= 480.0
    assert moments(first)[-1] == told + 1e6


def test_a_file_of_others_is_gone_on_with_while_it_is_fresh(tmp_path: Path) -> None:
    file = HistoryFile(tmp_path, "one")
    assert file.put(rows(NOW), NOW)
    path = file.path
    file.close()
    aged(path, 60.0)
    second = HistoryFile(tmp_path, "two")
    assert second.put(rows(NOW + 60), NOW + 60)
    assert second.path == path
    second.close()
    aged(path, FRESH_SECONDS)
    third = HistoryFile(tmp_path, "three")
    assert third.put(rows(NOW + 60), NOW + 60)
    assert third.path != path
    assert moments(third.path) == [NOW + 60]


def test_two_at_once_write_two_files(tmp_path: Path) -> None:
    files = [HistoryFile(tmp_path, "one") for _ in range(3)]
    for number, file in enumerate(files):
        assert file.put(rows(NOW + number), NOW)
    assert len({file.path for file in files}) == 3
    assert [moments(file.path) for file in files] == [[NOW], [NOW + 1], [NOW + 2]]


def test_where_nothing_can_be_locked_only_the_own_file_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refused)
    first = HistoryFile(tmp_path, "one")
    assert first.put(rows(NOW), NOW)
    path = first.path
    first.close()
    second = HistoryFile(tmp_path, "two")
    assert second.put(rows(NOW + 1), NOW + 1)
    assert second.path != path
    second.close()
    third = HistoryFile(tmp_path, "one")
    assert third.put(rows(NOW + 2), NOW + 2)
    assert third.path == path


@pytest.mark.parametrize("content", [b"", b"rubbish" * 5000, b"SQLite format 3\0" + b"\7" * 9000])
def test_a_damaged_file_is_set_aside_and_said(tmp_path: Path, content: bytes) -> None:
    bad = tmp_path / "series-20230101T000000Z.db"
    bad.write_bytes(content)
    aged(bad, 1.0)
    file = HistoryFile(tmp_path, "one")
    while not file.put(rows(NOW), NOW):
        assert file.path is None, "a new one is begun at the next turn"
    assert moments(file.path) == [NOW]
    if content:
        assert any(bad.name in note and "damaged" in note for note in file.notes)
        assert (tmp_path / f"{bad.name}.damaged").read_bytes()[:7] == content[:7]


def test_a_file_that_is_damaged_in_the_middle_is_found_out(tmp_path: Path) -> None:
    file = HistoryFile(tmp_path, "one")
    for second in range(300):
        assert file.put(rows(NOW + second), NOW)
    path = file.path
    assert path is not None
    file.close()
    data = bytearray(path.read_bytes())
    data[len(data) // 2 :] = os.urandom(len(data) - len(data) // 2)
    path.write_bytes(data)
    aged(path, 1.0)
    again = HistoryFile(tmp_path, "one")
    assert not again.put(rows(NOW), NOW)
    assert again.put(rows(NOW + 400), NOW + 400)
    assert moments(again.path) == [NOW + 400]


def test_a_half_written_log_costs_its_last_commit_only(tmp_path: Path) -> None:
    file = HistoryFile(tmp_path, "one")
    for second in range(50):
        assert file.put(rows(NOW + second), NOW)
    assert file.path is not None
    log = file.path.with_name(f"{file.path.name}-wal")
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / file.path.name).write_bytes(file.path.read_bytes())
    (copy / log.name).write_bytes(log.read_bytes()[:-100])
    found = moments(copy / file.path.name)
    assert found == [NOW + second for second in range(49)]
    aged(copy / file.path.name, 0.0)
    again = HistoryFile(copy, "one")
    assert again.put(rows(NOW + 100), NOW + 100)
    assert moments(again.path) == [*found, NOW + 100]


def test_a_disk_that_is_full_is_said_once_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def noted(*given: Any, **options: Any) -> sqlite3.Connection:
        connections.append(connect(*given, **options))
        return connections[-1]

    monkeypatch.setattr(sqlite3, "connect", noted)
    file = HistoryFile(tmp_path, "one")
    assert file.put(rows(NOW), NOW)
    # SQLite says the same of its own limit as of a disk without room.
    (base,) = connections
    pages = base.execute("PRAGMA page_count").fetchone()[0]
    base.execute(f"PRAGMA max_page_count={pages}")
    values, packer = {"hw_load1": 1.0, "hw_load5": 2.0}, RowPacker()
    many = [row for second in range(1, 1001) for row in packer.pack(NOW + second, "n1", values)]
    for _ in range(5):
        assert not file.put(many, NOW)
    assert "full" in file.problem
    assert len([one for one in caplog.records if "full" in one.getMessage()]) == 1
    assert moments(file.path) == [NOW], "what was there is still there"
    base.execute("PRAGMA max_page_count=1000000")
    assert file.put(many, NOW)
    assert file.problem == ""
    assert len(moments(file.path)) == 1001


def test_a_folder_that_cannot_be_is_said_and_one_that_comes_is_used(tmp_path: Path) -> None:
    (tmp_path / "history").write_text("in the way")
    file = HistoryFile(tmp_path / "history", "one")
    assert not file.put(rows(NOW), NOW)
    assert "history" in file.problem
    (tmp_path / "history").unlink()
    assert file.put(rows(NOW), NOW)
    assert file.problem == ""


def test_a_file_that_was_removed_is_begun_anew(tmp_path: Path) -> None:
    file = HistoryFile(tmp_path, "one")
    assert file.put(rows(NOW), NOW)
    assert file.path is not None
    for one in file.files:
        one.unlink(missing_ok=True)
    assert file.put(rows(NOW + 1), NOW + 1)
    assert moments(file.path) == [NOW + 1]
    assert any("removed" in note for note in file.notes)


def test_a_reader_in_another_folder_that_is_not_ours_or_is_gone(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE t (a)")
    other.close()
    for name in ("other.db", "gone.db", "."):
        with pytest.raises(InputError, match=name):
            HistorySource.open(tmp_path / name)


def test_a_file_that_cannot_be_opened_is_tried_again_by_the_same_name(
    tmp_path: Path,
) -> None:
    refusals = iter(range(5))

    def refused_at_first(path: Path, most: int) -> History:
        if next(refusals, None) is None:
            return open_history(path, most)
        try:
            raise sqlite3.OperationalError("unable to open database file")
        except sqlite3.OperationalError as error:
            raise InputError(f"{path}: {error}") from error

    file = HistoryFile(tmp_path, "one", opened=refused_at_first)
    for later in range(5):
        assert not file.put(rows(NOW), NOW + 60 * later)
    assert "unable to open" in file.problem
    assert len(list(tmp_path.iterdir())) == 1, "its lock"
    assert file.put(rows(NOW), NOW)
    assert file.problem == ""
    assert moments(file.path) == [NOW]


def test_a_reader_without_room_for_a_copy_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = HistoryFile(tmp_path, "one")
    assert file.put(rows(NOW), NOW)
    assert file.path is not None

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copyfile", full)
    with pytest.raises(InputError, match=r"No space left.*TMPDIR"):
        HistorySource.open(file.path)
