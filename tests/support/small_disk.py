"""A file system that is soon full: a small tmpfs."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.parts import lacking


@contextmanager
def small_disk(folder: Path, size: str, *, mode: str = "755") -> Iterator[Path]:
    """Mounts one of ``size`` (``64k``, ``4m``) at a new folder. Skips where none may be mounted."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size},mode={mode}", "none", str(folder)]
    done = subprocess.run(mount, capture_output=True, check=False, timeout=10, text=True)
    if done.returncode:
        lacking(f"needs the right to mount ({done.stderr.strip()}): run as root")
    try:
        yield folder
    finally:
        # Lazily: a process that was just killed may still have a file open there.
        subprocess.run(["umount", "--lazy", str(folder)], check=True, timeout=10)
