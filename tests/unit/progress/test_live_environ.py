"""The environment that a process has now, read from its memory."""

import os
import re
import struct
from pathlib import Path

import pytest

from ray_sentinel.progress.discovery.live_environ import LiveEnviron, find_symbol


def test_what_a_process_sets_itself_is_read(monkeypatch):
    monkeypatch.setenv("RANK", "5")
    monkeypatch.setenv("MASTER_ADDR", "10.1.2.3")
    monkeypatch.setenv("SOMETHING_ELSE", "x")
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    live = LiveEnviron()
    found = live.read(os.getpid())
    assert found is not None
    assert (found["RANK"], found["MASTER_ADDR"]) == ("5", "10.1.2.3")
    assert "SOMETHING_ELSE" not in found, "only the launcher's variables are looked at"
    assert "WORLD_SIZE" not in found
    assert b"RANK=5" not in Path("/proc/self/environ").read_bytes().split(b"\0")
    monkeypatch.setenv("RANK", "6")
    assert live.read(os.getpid())["RANK"] == "6"


def test_a_process_that_is_gone_or_has_no_memory(tmp_path):
    assert LiveEnviron().read(2**22 + 1) is None
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "maps").write_text("garbage\n00-01 r--p 0 0:0 1 /x/libc.so.6\n")
    assert LiveEnviron(tmp_path).read(7) is None


def test_files_that_are_no_elf():
    assert find_symbol(b"") is None
    assert find_symbol(b"#!/bin/sh\n") is None
    assert find_symbol(b"\x7fELF\x01\x01" + bytes(200)) is None, "32 bits"
    with pytest.raises(struct.error):
        find_symbol(b"\x7fELF\x02\x01" + bytes(10))


def test_a_program_without_the_symbol():
    library = next(
        line.split()[-1]
        for line in Path("/proc/self/maps").read_text().splitlines()
        if re.search(r"/libc[.-]", line)
    )
    data = Path(library).read_bytes()
    assert find_symbol(data)
    assert find_symbol(data.replace(b"environ", b"nothing")) is None
