"""How ``pytest -n`` shares the tests out: a file goes to one worker, and each worker is apart.

Tests of clusters and trainings wait about as long as they compute, unit tests only compute. So
there is one worker more than processors for the former, which begin with the longest files, and one
more that runs unit tests in what the others leave of the processors (``apart.BEHIND``), and after
them what else starts no cluster: else that would be left idle while the others are at their second
half. It never starts a cluster, so the others have to share with no more of them than themselves;
when they have no other files left, they take unit tests, too.

Where workers cannot be apart, there is none behind: one of them runs all that starts ranks or
clusters, one after the other, and the others what is left, the last of them from the end.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.support import apart

ALONE = ("tests/adversary/", "tests/faults/", "tests/integration/")
"""Start ranks or agents, which other tests' agents and ranks would see."""
NO_RANKS = tuple(f"tests/integration/{part}/" for part in ("collect", "exporters", "store"))
LONG = (
    "tests/integration/test_verdicts.py",
    "tests/faults/",
    "tests/integration/supervise/test_run.py",
    "tests/integration/actors/test_bad_surroundings.py",
    "tests/integration/triage/test_monitor.py",
    "tests/integration/actors/test_ray_jobs.py",
    "tests/integration/supervise/test_verdict.py",
    "tests/integration/actors/test_torchrun.py",
    "tests/integration/actors/test_inference_server.py",
    "tests/adversary/test_lost_control_store.py",
    "tests/adversary/test_control_store.py",
    "tests/integration/supervise/test_ray_jobs.py",
    "tests/integration/frameworks/",
    "tests/integration/test_examples.py",
    "tests/integration/actors/",
    "tests/integration/supervise/",
    "tests/integration/",
    "tests/adversary/",
    "tests/packaging/",
)
"""Where the long files are, the longest first."""
SHARED_WATCH = "watched_by_files"
"""The fixture of files whose tests share a watch: a worker runs them one after the other."""
FAULTS = "tests/faults/"
"""Files that share a cluster of their own: one worker runs them."""
UNIT = "tests/unit/"
"""What the worker behind the others runs first."""
BEHIND = (UNIT, "tests/packaging/", "tests/integration/store/", "tests/integration/web/")
"""Where what it runs is, but for the files that start a cluster."""
CLUSTER = "RayCluster"
"""The class that these name."""
MOST = 8
"""Workers of ``-n auto``, but for the one behind them. Each may have a cluster of its own, of some
2 GB."""


def workers() -> int:
    """For ``-n auto``: one more than the processors that we may use, within bounds."""
    return min(len(os.sched_getaffinity(0)) + 1, MOST)


class Files(LoadScopeScheduling):
    """File by file. Where workers are apart, the last of several runs unit tests only."""

    def __init__(self, config: pytest.Config, log: Producer, together: bool) -> None:
        """With ``together`` all that would disturb one another is one unit of work."""
        config.option.loadscopereorder = False
        super().__init__(config, log)
        self.together = together
        self._watching: set[WorkerController] = set()
        """Workers whose last file has left the watch that others share."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::", 1)[0]
        if file.startswith(FAULTS) and not self.together:
            return FAULTS
        disturbing = file.startswith(ALONE) and not file.startswith(NO_RANKS)
        return "ranks" if disturbing and self.together else file

    def _assign_work_unit(self, node: WorkerController) -> None:
        watching = node in self._watching
        ordered = sorted(
            self.workqueue,
            key=lambda file: (watching and not self._shares_watch(file), _place(file)),
        )
        if apart.BEHIND in str(node.gateway.spec.python):
            ordered = [file for file in reversed(ordered) if self._starts_no_cluster(file)]
            if not ordered:
                node.shutdown()
                return
        last = self.together and node.gateway.id == f"gw{self.numnodes - 1}" and self.numnodes > 1
        file = ordered[-1 if last else 0]
        self._watching.discard(node)
        if self._shares_watch(file):
            self._watching.add(node)
        self.workqueue.move_to_end(file, last=False)
        super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        """A worker runs a test only once it knows the next: one that takes the place of another,
        and gets a file with a single test, would wait with it until all others have ended."""
        super()._reschedule(node)
        alone = not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2
        if alone and self.workqueue:
            super()._reschedule(node)

    def _shares_watch(self, file: str) -> bool:
        """Whether tests of this file use what others have begun."""
        if file in ("ranks", FAULTS) or file.startswith(UNIT):
            return False
        return _mentions(self.config.rootpath / file, SHARED_WATCH)

    def _starts_no_cluster(self, file: str) -> bool:
        """Whether the worker behind the others may run this file."""
        if file.startswith(UNIT):
            return True
        return file.startswith(BEHIND) and not _mentions(self.config.rootpath / file, CLUSTER)


@functools.cache
def _mentions(file: Path, word: str) -> bool:
    return word in file.read_text()


def _place(file: str) -> int:
    """The lower, the earlier."""
    if file == "ranks":
        return -1
    if file.startswith(UNIT):
        return len(LONG) + 1
    return next((place for place, start in enumerate(LONG) if file.startswith(start)), len(LONG))


class Streams:
    """A plugin of pytest, for the process that shares out."""

    def __init__(self, config: pytest.Config) -> None:
        self.python = apart.python()
        if self.python:
            behind = [apart.python(apart.BEHIND)] if len(config.option.tx) > 1 else []
            each = [self.python for _ in config.option.tx] + behind
            config.option.tx = [f"popen//python={python}" for python in each]

    def pytest_report_header(self) -> str:
        return "workers: apart" if self.python else "workers: not apart, ranks in one only"

    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Producer) -> Files:
        return Files(config, log, together=self.python is None)
