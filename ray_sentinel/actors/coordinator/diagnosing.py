"""What the job's time series say about an incident: ``diagnose`` over the half hour before it.

It runs as a program of its own, with a deadline and a low priority: reading a large TSDB must cost
the coordinator neither memory nor time, and no bug in a playbook may end the monitoring.
"""

from __future__ import annotations

import logging
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ray_sentinel import process
from ray_sentinel.http.page_client import TOKEN_VARIABLE, split_link
from ray_sentinel.model.incident import Incident
from ray_sentinel.report import series
from ray_sentinel.store.incident_window import window_start

log = logging.getLogger(__name__)

DEADLINE = 180.0
"""Seconds for one diagnosis, which is a process of its own and reads half an hour of every series.
"""
REPORTS = ("diagnosis.json", "diagnosis.md", "diagnosis.html")
WITHOUT = frozenset({"asked", "sentinel"})
"""Kinds of incidents that no series explain."""


class SeriesDiagnoser:
    """Called with an incident that was captured; ``done`` gets its files at least ``seconds``
    later.

    Each incident is diagnosed once, one at a time, on a thread of its own.
    """

    def __init__(self, seconds: float, done: Callable[[Incident, dict[str, bytes]], None]) -> None:
        self.source: Callable[[], str] = lambda: ""
        """Folder of the series, or the page's link; empty where there are none. Set by the
        coordinator."""
        self._seconds, self._done = seconds, done
        self.seen: set[str] = set()
        """Incidents that may still be captured, and are not diagnosed again."""
        self._waiting: set[str] = set()
        self._closing = threading.Event()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="ray-sentinel-diagnose")

    def __call__(self, incident: Incident) -> None:
        if self._seconds <= 0 or incident.kind in WITHOUT or incident.id in self.seen:
            return
        self.seen.add(incident.id)
        self._waiting.add(incident.id)
        self._pool.submit(self._guarded, incident, time.monotonic() + self._seconds)

    def awaits(self, incident: str) -> bool:
        """Whether a result for the incident with this id may still come."""
        return incident in self._waiting

    def forget(self, incidents: Iterable[str]) -> None:
        """Drop incidents that are over and will not be captured again."""
        self.seen.difference_update(incidents)

    def close(self) -> None:
        """Drop what is waiting."""
        self._closing.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _guarded(self, incident: Incident, due: float) -> None:
        try:
            if self._closing.wait(max(due - time.monotonic(), 0.0)):
                return
            self._done(incident, diagnosed(self.source(), incident, time.time()))
        except Exception:  # on its own thread nobody else would hear of it; the watch goes on
            log.exception("incident %s: its series could not be diagnosed", incident.id)
        finally:
            self._waiting.discard(incident.id)


def diagnosed(source: str, incident: Incident, now: float) -> dict[str, bytes]:
    """The reports of ``diagnose`` by file name; empty without an answer, and the log says why."""
    if not source:
        return {}
    # Other users see a command line, not an environment.
    where, token = split_link(source) if "://" in source else (source, "")
    stop = min(incident.last_progress or incident.suspected_at, incident.suspected_at)
    start = window_start(stop, incident.job_since)
    with tempfile.TemporaryDirectory(prefix="ray_sentinel-") as place:
        reports = [word for name in REPORTS for word in ("--report", str(Path(place) / name))]
        ended = process.run(
            [
                *("nice", "-n", "10"),
                *process.python_module("ray_sentinel", "diagnose", where),
                *("--window", f"{start:.3f}..{now:.3f}", "--no-logs", *reports),
                *("--plots", str(Path(place) / series.PLOTS_FILE)),
            ],
            deadline=DEADLINE,
            env={**os.environ, TOKEN_VARIABLE: token} if token else None,
        )
        # Its exit code says whether something was found; only the files prove that it finished.
        names = (*REPORTS, series.PLOTS_FILE)
        written = [path for name in names if (path := Path(place) / name).exists()]
        if not written:
            log.warning("incident %s: diagnose of %s: %s", incident.id, where, ended.explain())
        return {path.name: path.read_bytes() for path in written}
