"""Small files of the kernel: stripped, and empty where they cannot be read."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from ray_sentinel.kernel_files import boot_id, kernel_number, kernel_text, parse_environ


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


def test_of_two_variables_with_one_name_the_first_counts() -> None:
    data = b"RANK=1\0RANK=2\0EMPTY=\0EMPTY=x\0no equals\0=nameless\0A=b=c\0\0"
    assert parse_environ(data) == {"RANK": "1", "EMPTY": "", "A": "b=c"}
    assert parse_environ(b"") == {}


def test_what_is_no_text_is_kept_or_replaced() -> None:
    assert os.fsencode(parse_environ(b"DIR=/\xff")["DIR"]) == b"/\xff"
    assert parse_environ(b"DIR=/\xff", "replace") == {"DIR": "/\N{REPLACEMENT CHARACTER}"}


@given(st.binary())
def test_any_bytes_are_an_environment(data: bytes) -> None:
    for name, value in parse_environ(data).items():
        assert os.fsencode(f"{name}={value}") in data.split(b"\0")


def test_a_number_is_all_of_a_file_or_none(tmp_path: Path) -> None:
    said = {"4096\n": 4096, "-1": -1, "": None, "4 KiB": None, "--1": None, "\u00b2": None}
    for text, number in said.items():
        (tmp_path / "size").write_text(text, encoding="utf-8")
        assert kernel_number(tmp_path / "size") == number
    assert kernel_number(tmp_path / "none") is None
