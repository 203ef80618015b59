"""What each file of tests costs in processor seconds, all that it starts included.

Wall times of tests say little: three streams share two cores, and tests of clusters wait half of
the time. Where a stream is in a container of its own (``apart``), the kernel counts what it spends.
Elsewhere there is no summary.

When each stream had nothing left to do, and with which file it ended, tells whether the files are
shared out well.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest

SPENT = "processor seconds"
COLLECTION = "(imports and collection of all streams)"
MOST = 40
"""Files that are listed."""


class Worker:
    """Plugin of a stream: the last report of each file carries what the file cost."""

    def __init__(self, count: Path) -> None:
        self._count = count
        self._last = self._seconds()
        self._collection = 0.0
        self._file_ends = False

    def _seconds(self) -> float:
        return int(self._count.read_text()) / 1e9

    def _since(self) -> float:
        before, self._last = self._last, self._seconds()
        return self._last - before

    def pytest_collection_finish(self) -> None:
        self._collection = self._since()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        self._file_ends = nextitem is None or nextitem.path != item.path
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.when == "teardown" and self._file_ends:
            report.user_properties.append((SPENT, [self._collection, self._since()]))
            self._collection = 0.0
        return report


class Summary:
    """Plugin of the process that shares out: the files that cost most, at the end."""

    def __init__(self) -> None:
        self._files: Counter[str] = Counter()
        self._last: dict[str, tuple[float, str]] = {}
        """Of each stream: when its last report came, and of which file."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if stream := getattr(report, "worker_id", ""):
            self._last[stream] = time.monotonic(), report.nodeid.split("::", 1)[0]
        for name, value in report.user_properties:
            if name == SPENT and report.when == "teardown" and isinstance(value, list):
                self._files[COLLECTION] += value[0]
                self._files[report.nodeid.split("::", 1)[0]] += value[1]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._files:
            return
        total = sum(self._files.values())
        terminalreporter.section(f"{total:.0f} processor seconds, {MOST} most expensive files")
        for file, seconds in self._files.most_common(MOST):
            terminalreporter.write_line(f"{seconds:7.1f} s  {file}")
        end = max(at for at, _ in self._last.values())
        for stream, (at, file) in sorted(self._last.items()):
            terminalreporter.write_line(f"{stream} ended {end - at:.0f} s before the end: {file}")
