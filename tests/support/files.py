"""Files for tests."""

from __future__ import annotations

from pathlib import Path


def write(path: Path, text: str) -> Path:
    """Write a file, and make the folders that it lies in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path
