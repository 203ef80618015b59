"""Finds and reads a job's own logs beside its series."""

from __future__ import annotations

from pathlib import Path

from ray_sentinel.diagnose.logs import LogFacts


def read_logs(folder: Path | None) -> LogFacts:
    """What the logs in a job's folder say; empty facts where there are none."""
    return LogFacts()
