"""Finds event files and runs' parameters below a job's folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

MAX_DEPTH = 6
"""Levels of folders below the job's that are searched: ``lightning_logs/version_0/...`` and a few
of the user's own."""
MAX_FOLDERS = 512
"""Most folders that are searched on each level."""
_SKIPPED = frozenset({"prometheus", "ray_logs", "xla_dump", "incidents", "checkpoints"})


def find_files(folder: Path, wanted: Callable[[str], bool]) -> list[Path]:
    """Files with the given names, by name; links to folders are not followed."""
    found: list[Path] = []
    level = [folder]
    for _ in range(MAX_DEPTH):
        deeper: list[Path] = []
        for place in level:
            try:
                entries = sorted(place.iterdir())
            except OSError:
                continue
            found += [entry for entry in entries if wanted(entry.name) and entry.is_file()]
            deeper += [
                entry
                for entry in entries
                if entry.is_dir() and not entry.is_symlink() and entry.name not in _SKIPPED
            ]
        level = deeper[:MAX_FOLDERS]
    return sorted(found, key=lambda file: file.name)


def find_event_files(folder: Path) -> list[Path]:
    """Event files in a job's folder, the oldest first."""
    return find_files(folder, lambda name: "tfevents" in name)
