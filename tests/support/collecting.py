"""A node's collectors with plugins written on the spot, real processes and short intervals."""

from __future__ import annotations

import os
import signal
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ray_sentinel.collect.plugins import install_plugin
from ray_sentinel.collect.runner import Runner, RunnerSettings
from ray_sentinel.config import Config
from ray_sentinel.model.metrics import CollectorStatus, Event, Family
from tests.support.waiting import eventually

HEAD = """
import os, sys, time
from ray_sentinel.api import Collector, Event, Family, Metric, NoData, Sample, Skip
"""
GOOD = """
    X = Metric("good_value", "gauge", "X.")
    class Good(Collector):
        name = "good"
        interval = 0.2
        metrics = (X,)
        def collect(self):
            yield X(os.getpid())
"""


def state(pid: int) -> str:
    """The process's state letter; X where there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return "X"
    return stat.rpartition(")")[2].split()[0]


def alive(pid: int) -> bool:
    """Whether the process is there and not a corpse that waits to be reaped."""
    return state(pid) not in "ZX"


def stop(pid: int) -> None:
    """SIGSTOP the process and wait until every thread of it stands."""
    os.kill(pid, signal.SIGSTOP)
    eventually(lambda: state(pid) == "T", f"{pid} stands still")


class CollectingNode:
    """A runner over the plugins in ``folder``; only those, none that are installed."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder, self.plugins = folder, folder / "plugins"
        self.logs, self.run_dir = folder / "logs", folder / "run"
        self.events: list[Event] = []
        self._last: tuple[Family, ...] = ()
        self._tables: dict[str, dict[str, Any]] = {}
        self.settings = settings
        self.runner: Runner | None = None

    def configure(self, name: str, **table: Any) -> None:
        """A table ``[collectors.NAME]``."""
        self._tables[name] = table

    def write(self, file: str, source: str, *, head: str = HEAD) -> None:
        """A plugin in Python: ``source`` comes after the usual imports."""
        install_plugin(self.plugins, file, (head + textwrap.dedent(source)).encode())

    def write_script(self, file: str, *lines: str, first: str = "#!/bin/sh") -> None:
        """A plugin that is a program."""
        install_plugin(self.plugins, file, "\n".join([first, *lines, ""]).encode())

    def start(self) -> None:
        """Begin to collect."""
        settings: dict[str, Any] = {
            "host": "node1",
            "run_dir": self.run_dir,
            "log_dir": self.logs,
            "plugin_dirs": (self.plugins,),
            "plugin_interval": 0.1,
            "installed": False,
            **self.settings,
        }
        self.runner = Runner(
            RunnerSettings(**settings),
            Config(collectors=self._tables),
            on_events=self.events.extend,
        )
        self.runner.start()

    def stop(self) -> None:
        """End all of it."""
        if self.runner is not None:
            self.runner.stop()
            self._last, self.runner = self.runner.families, None

    @property
    def published(self) -> tuple[Family, ...]:
        """All that is served, or was at the end."""
        return self.runner.families if self.runner is not None else self._last

    def status(self, name: str) -> CollectorStatus | None:
        """How a collector fares; None while it is not known."""
        assert self.runner is not None
        return {status.name: status for status in self.runner.statuses()}.get(name)

    def until(
        self, name: str, wanted: Callable[[CollectorStatus], bool], seconds: float = 30.0
    ) -> CollectorStatus:
        """The collector's status once ``wanted`` holds of it."""

        def look() -> CollectorStatus | None:
            status = self.status(name)
            return status if status is not None and wanted(status) else None

        try:
            return eventually(look, name, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.status(name)}\n{self.log(name)}") from None

    def value(self, metric: str) -> float | None:
        """The value of the only series of ``metric``, if it is served."""
        samples = [s for family in self.published for s in family.samples if s.name == metric]
        assert len(samples) <= 1
        return samples[0].value if samples else None

    def log(self, name: str) -> str:
        """The collector's log so far."""
        file = self.logs / f"collector-{name}.log"
        return file.read_text() if file.exists() else ""


def still_good(node: CollectingNode) -> None:
    """The collector ``GOOD`` goes on to be run, and is served."""
    before = node.until("good", lambda status: status.success is True).last_success
    assert before is not None
    node.until("good", lambda status: (status.last_success or 0) > before)
    eventually(lambda: node.value("good_value") is not None, "it is served")
