"""The name under which the coordinator knows the job that a run supervises."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from ray_sentinel.errors import UnreachableError
from ray_sentinel.model.status import JobStatus
from ray_sentinel.watched_page import WatchedPage
from ray_sentinel.whole_file import write_whole

LOOK_SECONDS = 10.0
"""Seconds between two questions: the answer has a line for every rank."""


class JobName:
    """Mostly the run's own name, which ranks get from ``RAY_SENTINEL_JOB``.

    The workers of a Ray cluster that runs already are not: a run of Ray Train, and actors that call
    ``attach(job=...)``, have names of their own. So where the coordinator knows no job of the run's
    name, a job counts that it did not know before, if it is the only one.
    """

    def __init__(
        self, job: str, page: WatchedPage | None, say: Callable[[str], None], file: Path
    ) -> None:
        """``page`` is the coordinator's; None for none. ``say`` is called if the name is another,
        and ``file`` keeps it for a supervisor that takes the run up again."""
        self._job, self._page, self._say, self._file = job, page, say, file
        self._found = _read(file)
        self._others = self._live() - {job, self._found}
        self._looked = time.monotonic()

    @property
    def last(self) -> str:
        """The name as of the last look."""
        return self._found or self._job

    def now(self) -> str:
        """The name as now known; asks the coordinator now and then."""
        if time.monotonic() - self._looked >= LOOK_SECONDS:
            self._refresh()
        return self.last

    def _refresh(self) -> None:
        self._looked = time.monotonic()
        names = self._live()
        if self._job in names:
            self._found = self._job
        elif self._found not in names:
            new = names - self._others
            if len(new) == 1:
                self._found = new.pop()
                self._say(f"the coordinator knows the job as {self._found}")
                with suppress(OSError):
                    write_whole(self._file, self._found.encode())
        if self._found in names:
            # Whoever comes while ours is there is somebody else.
            self._others |= names - {self._found}

    def _live(self) -> set[str]:
        return {job.job for job in jobs_on(self._page) if _trains(job)}


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


def _trains(job: JobStatus) -> bool:
    """Whether it has not ended, and is more than an inference engine that a training started."""
    return not job.ended and any(rank.role != "engine" for rank in job.ranks)


def jobs_on(page: WatchedPage | None) -> list[JobStatus]:
    """The jobs that the coordinator knows; none if it does not answer, or there is no page."""
    if page is None:
        return []
    try:
        return msgspec.convert(page.get_json("/api/v1/ranks"), list[JobStatus])
    except (UnreachableError, msgspec.ValidationError):
        return []  # it is away, is not proven, or is of a version that speaks otherwise
