"""Lines on their way to a file: nobody waits, nothing is lost unsaid."""

from __future__ import annotations

import errno
import os
import re
import threading
import time
from functools import partial
from pathlib import Path

from ray_sentinel.log_files import LINE_OVERHEAD, LineWriter, LogFiles
from tests.support.waiting import eventually

LONG = 30.0


def test_files_are_rotated_and_no_line_is_lost(tmp_path: Path) -> None:
    files = LogFiles(tmp_path / "logs", max_bytes=10_000, backups=2)
    for number in range(400):
        files.write("a/b", f"{number:050d}")
    files.close(LONG)
    found = sorted((tmp_path / "logs").iterdir())
    assert [file.name for file in found] == ["a_b.log", "a_b.log.1", "a_b.log.2"]
    assert all(file.stat().st_size <= 10_000 for file in found)
    lines = [int(line) for file in reversed(found) for line in file.read_text().split()]
    assert lines == list(range(400 - len(lines), 400)), "whole lines, the newest"
    assert files.problem == ""


def test_a_writer_that_hangs_keeps_what_fits_and_counts_the_rest() -> None:
    gate, taken = threading.Event(), []

    def append(name: str, data: bytes) -> None:
        assert gate.wait(LONG)
        taken.append(data)

    writer = LineWriter(append, "the disk", waiting_bytes=10 * (100 + LINE_OVERHEAD))
    begun = time.monotonic()
    for _ in range(1000):
        writer.write("x", "y" * 100)
    assert time.monotonic() - begun < LONG / 10
    assert writer.dropped == 990
    assert writer.problem == "990 lines of log were lost: the disk was slow"
    gate.set()
    writer.close(LONG)
    text = b"".join(taken).decode()
    assert text.count("y" * 100) == 10
    lost = re.findall(r"\((\d+) lines were lost: the disk was slow\)", text)
    assert sum(map(int, lost)) == 990


def test_a_disk_that_refuses_is_said_until_it_takes_lines_again(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    files = LogFiles(blocked, max_bytes=1000)
    files.write("x", "lost")
    eventually(lambda: files.problem, "it is said", LONG)
    assert str(blocked) in files.problem
    assert "1 lines of log were lost" in files.problem
    blocked.unlink()
    files.write("x", "kept")
    files.close(LONG)
    lines = "(1 lines were lost: the disk refused them)\nkept\n"
    assert (blocked / "x.log").read_text() == lines


def test_a_disk_that_has_room_again_is_found_though_nothing_more_is_logged(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")

    refused: list[str] = []

    def append(name: str, data: bytes) -> None:
        if blocked.exists():
            refused.append(name)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with (tmp_path / name).open("ab") as file:
            file.write(data)

    writer = LineWriter(append, "the disk", retry_seconds=0.05)
    writer.write("x", "lost")
    eventually(lambda: "No space left" in writer.problem, "it is said", LONG)
    eventually(lambda: len(refused) > 2, "it is tried again, and refused", LONG)
    blocked.unlink()
    eventually(lambda: "No space left" not in writer.problem, "it is written again", LONG)
    assert (tmp_path / "x").read_text() == "(1 lines were lost: the disk refused them)\n"
    writer.write("x", "kept")
    writer.close(LONG)
    assert (tmp_path / "x").read_text().endswith("them)\nkept\n")
    assert writer.dropped == 1


def test_a_disk_that_refuses_does_not_hold_up_the_end(tmp_path: Path) -> None:
    def append(name: str, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    writer = LineWriter(append, "the disk")
    writer.write("x", "lost")
    eventually(lambda: writer.problem, "it is said", LONG)
    begun = time.monotonic()
    writer.close(LONG)
    assert time.monotonic() - begun < LONG / 3


def test_a_line_of_any_length_and_any_text_is_taken(tmp_path: Path) -> None:
    files = LogFiles(tmp_path, max_bytes=1 << 20)
    files.write("x", "z" * 10_000_000)
    files.write("x", "a \udcff b")
    files.close(LONG)
    first, second = (tmp_path / "x.log").read_text().splitlines()
    assert first.endswith("zz [cut off]")
    assert len(first) < 100_000
    assert second == "a \\udcff b"


def test_lines_that_were_refused_are_missed_where_they_should_be(tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.write_text("")

    def append(name: str, data: bytes) -> None:
        if name == "x" and full.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with (tmp_path / name).open("ab") as file:
            file.write(data)

    writer = LineWriter(append, "the disk", retry_seconds=LONG)
    for number in range(3):
        writer.write("x", "lost")
        eventually(partial(lambda n: writer.dropped > n, number), "it is refused", LONG)
    writer.write("y", "other")
    eventually(lambda: (tmp_path / "y").exists(), "another file is written", LONG)
    assert "No space left" in writer.problem, "x does not tell of its loss yet"
    full.unlink()
    writer.write("x", "kept")
    writer.close(LONG)
    assert (tmp_path / "x").read_text() == "(3 lines were lost: the disk refused them)\nkept\n"
    assert (tmp_path / "y").read_text() == "other\n"
    assert writer.problem == "3 lines of log were lost: the disk was slow"
