"""Paths that hold nothing to be read."""

from __future__ import annotations

import os
from pathlib import Path

EACH = ("missing", "empty", "garbage", "folder", "fifo", "loop", "long")


def bad(folder: Path, what: str, name: str) -> str:
    """A path in ``folder`` to ``what``, one of EACH or "folder of garbage"."""
    path = folder / name
    if what == "empty":
        path.write_bytes(b"")
    elif what == "garbage":
        path.write_bytes(bytes(range(256)) * 40)
    elif what == "folder":
        path.mkdir()
    elif what == "folder of garbage":
        path.mkdir()
        (path / "train.log").write_bytes(bytes(range(256)) * 40)
    elif what == "fifo":
        os.mkfifo(path)
    elif what == "loop":
        path.symlink_to(path)
    elif what == "long":
        path = folder / ("a" * 300)
    return str(path)
