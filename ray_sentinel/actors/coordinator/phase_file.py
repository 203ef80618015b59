"""The durations of jobs' phases, stored beside the incidents for a job's next run."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ray_sentinel.whole_file import write_whole

log = logging.getLogger(__name__)

NAME = "phases.json"
MOST_JOBS = 64
"""Most jobs whose phases are kept: those that were seen last."""
MAX_BYTES = 1 << 20
"""Most bytes of the file; a longer one is not read, and phases are learned anew."""

Phases = dict[str, dict[str, tuple[float, ...]]]
"""Durations in seconds by phase, by job."""


class PhaseFile:
    """``<log_dir>/phases.json``: the last 64 jobs' phases. Nothing here raises."""

    def __init__(self, root: Path | None) -> None:
        self._path = root / NAME if root else None
        self._saved: Phases = {}
        self.problem = ""
        """Why nothing is kept; empty otherwise."""

    def load(self) -> Phases:
        """The stored durations; empty if there is no file, or a damaged one."""
        if self._path is None:
            return {}
        try:
            with self._path.open("rb") as file:
                self._saved = msgspec.json.decode(file.read(MAX_BYTES), type=Phases)
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            log.warning("%s is not readable (%s): phases are learned anew", self._path, error)
            return {}
        return self._saved

    def save(self, learned: Mapping[str, Mapping[str, tuple[float, ...]]]) -> None:
        """Store learned durations in addition to the existing ones; writes only if something is
        new."""
        if self._path is None:
            return
        phases = {**self._saved}
        for job, found in learned.items():
            phases.pop(job, None)
            phases[job] = dict(found)
        while len(phases) > MOST_JOBS:
            del phases[next(iter(phases))]
        if phases == self._saved:
            self.problem = ""  # what could not be written is wanted no more
            return
        try:
            write_whole(self._path, msgspec.json.encode(phases))
        except OSError as error:
            self.problem = f"{self._path} cannot be written ({error.strerror})"
            return
        self._saved, self.problem = phases, ""
