"""Running a collector once: whose files they are."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from ray_sentinel.collect.once import host_of
from ray_sentinel.collect.protocol import Roots

HERE = socket.gethostname().split(".")[0]


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    path = tmp_path / "sys/kernel/hostname"
    path.parent.mkdir(parents=True)
    return path


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (b"gpu-0017\n", "gpu-0017"),
        (b"gpu_17.cluster.example\n", "gpu_17"),
        (b"a.\n", "a"),
        (b"", HERE),
        (b".example\n", HERE),
        (b'a"b\n\xff\\c.example\n', HERE),
        (b"a" * 3_000_000, HERE),
    ],
    ids=["short", "whole", "dot", "empty", "domain", "hostile", "long"],
)
def test_the_host_of_a_captured_tree(stored: Path, text: bytes, name: str) -> None:
    stored.write_bytes(text)
    assert host_of(Roots(proc=stored.parents[2])) == name


def test_what_is_no_file_is_not_waited_for(stored: Path) -> None:
    os.mkfifo(stored)
    assert host_of(Roots(proc=stored.parents[2])) == HERE
    stored.unlink()
    stored.mkdir()
    assert host_of(Roots(proc=stored.parents[2])) == HERE
