"""A libnvidia-ml.so.1 built for the test, and the collector that finds it in the normal search."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.nvml_library import STAND_IN, build

DEADLINE = 20.0


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def old_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As drivers before 535 are: with fewer functions, some under older names."""
    return build(tmp_path_factory.mktemp("nvml-old"), "-DOLD_DRIVER")


class Driven:
    """A process that collects when told to."""

    def __init__(self, process: subprocess.Popen[str], script: Path) -> None:
        self.process, self.script = process, script

    def collect(self) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.answer()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read() if self.process.stderr else ""
        return dict(json.loads(line))

    def rewrite(self, *lines: str) -> None:
        """Put lines before the script's own: the first that fits is the answer."""
        self.script.write_text("\n".join(lines) + "\n" + self.script.read_text())


Drive = Callable[..., Driven]


@pytest.fixture
def drive(tmp_path: Path, library: Path) -> Iterator[Drive]:
    started: list[subprocess.Popen[str]] = []

    def start(
        *lines: str, ranks: tuple[int, ...] = (), lib: Path = library, kmsg: bool = True
    ) -> Driven:
        for folder in ("proc", "sys", "dev", "state"):
            (tmp_path / folder).mkdir(exist_ok=True)
        if kmsg:
            (tmp_path / "dev" / "kmsg").touch()
        boot = tmp_path / "proc" / "sys" / "kernel" / "random" / "boot_id"
        boot.parent.mkdir(parents=True, exist_ok=True)
        boot.write_text("6b7d2a52-0000-4000-8000-000000000000\n")
        script = tmp_path / "script"
        script.write_text("\n".join(lines) + "\n" + (STAND_IN / "h100.txt").read_text())
        roots = [str(tmp_path / folder) for folder in ("proc", "sys", "dev", "state")]
        process = subprocess.Popen(
            [sys.executable, str(STAND_IN / "drive.py"), *roots, *map(str, ranks)],
            env={**os.environ, "LD_LIBRARY_PATH": str(lib), "NVML_STAND_IN": str(script)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return Driven(process, script)

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=DEADLINE)
