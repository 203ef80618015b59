"""Small files of the kernel: stripped, and empty where they cannot be read."""

from __future__ import annotations

from pathlib import Path

from ray_sentinel.kernel_files import boot_id, kernel_text


def test_what_a_file_says(tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"4: ACTIVE \xff\n")
    assert kernel_text(tmp_path / "state") == "4: ACTIVE \N{REPLACEMENT CHARACTER}"


def test_nothing_is_said_where_there_is_no_file_or_it_cannot_be_read(tmp_path: Path) -> None:
    assert kernel_text(tmp_path / "state") == ""
    assert kernel_text(tmp_path) == ""


def test_the_boot_id(tmp_path: Path) -> None:
    folder = tmp_path / "sys/kernel/random"
    folder.mkdir(parents=True)
    assert boot_id(tmp_path) == ""
    (folder / "boot_id").write_text("0d2c-11\n")
    assert boot_id(tmp_path) == "0d2c-11"
