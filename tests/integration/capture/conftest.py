"""Processes to look at, and the debuggers to do it with."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.parts import require
from tests.support.traced import Processes, Terminal


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    found = Processes(tmp_path)
    yield found
    found.end()


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    found = Terminal()
    yield found
    found.end()


@pytest.fixture
def gdb_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    add_to_path(monkeypatch, require("gdb"))


@pytest.fixture
def cuda_gdb_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    add_to_path(monkeypatch, require("cuda-gdb"))


def add_to_path(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.setenv("PATH", f"{os.path.dirname(program)}:{os.environ['PATH']}")
