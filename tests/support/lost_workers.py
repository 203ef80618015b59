"""Why a worker of the tests was lost: told in the failure of the test that it ran.

pytest-xdist says only that it is gone. A library in C++, such as Ray's, may have aborted it, or the
kernel may have killed it for its memory. Another worker takes its place and runs the rest of its
file, unless it collects other tests: xdist leaves it idle then, without a word.
"""

from __future__ import annotations

import faulthandler
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from xdist.workermanage import WorkerController

FILE = "last_words"
"""Where a worker is told the name of its file."""
MOST = 6000
"""Characters that are told of one worker's file."""


class Worker:
    """Plugin of a worker: Python writes to its file what runs when a signal ends it."""

    def __init__(self, file: str) -> None:
        self._file = open(file, "a")  # noqa: SIM115  (for as long as the process lives)

    def pytest_sessionstart(self) -> None:
        faulthandler.enable(file=self._file)  # after pytest, which tells it to standard error


class Lost:
    """Plugin of the process that shares out."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="last-words-")
        self._collected: Sequence[str] = ()
        self._told: list[str] = []

    def _words(self, node: WorkerController) -> Path:
        return Path(self._folder.name) / node.gateway.id

    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput[FILE] = str(self._words(node))

    def pytest_xdist_node_collection_finished(
        self, node: WorkerController, ids: Sequence[str]
    ) -> None:
        self._collected = self._collected or ids
        if differs := sorted({*ids} ^ {*self._collected}):
            self._told.append(f"{node.gateway.id} has other tests than the first: {differs[:5]}")

    def pytest_handlecrashitem(self, report: pytest.TestReport) -> None:
        node = report.node  # type: ignore[attr-defined]
        words = self._words(node).read_text(errors="replace") if self._words(node).exists() else ""
        how = words.splitlines()[0] if words else "without a word, as by SIGKILL or an exit"
        self._told.append(
            f"{node.gateway.id} was lost in {report.nodeid}: {how} ({state_of_the_machine()})"
        )
        report.longrepr = f"{report.longrepr}: {self._told[-1]}\n{words[-MOST:]}"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for line in self._told:
            terminalreporter.write_line(line)

    def pytest_unconfigure(self) -> None:
        self._folder.cleanup()


def state_of_the_machine() -> str:
    """What memory is left, how many processes the kernel has killed for it, and the load."""
    memory = Path("/proc/meminfo").read_text().splitlines()[:3]
    killed = [line for line in Path("/proc/vmstat").read_text().splitlines() if "oom_kill" in line]
    lines = [" ".join(line.split()) for line in (*memory, *killed)]
    return f"{', '.join(lines)}, load {os.getloadavg()[0]:.0f}"
