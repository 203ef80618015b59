"""Lists a checkpoint folder for ``evidence.checkpoints``; reads nothing but small tracker files."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

from ray_sentinel.errors import InputError
from ray_sentinel.evidence.checkpoints import (
    Checkpoint,
    CheckpointFacts,
    FolderEntry,
    is_tracker,
    read_listing,
)
from ray_sentinel.regular_file import read_regular

_MAX_ENTRIES = 500_000
_MAX_DEPTH = 6


def scan_checkpoints(root: Path, now: float | None = None) -> CheckpointFacts:
    """The checkpoints below ``root``. Raises InputError if it cannot be listed."""
    root = root.expanduser()
    if not root.is_dir():
        raise InputError(f"{root}: is no folder; give the folder that checkpoints are written to")
    entries: list[FolderEntry] = []
    links: dict[str, str] = {}
    texts: dict[str, str] = {}
    for folder, folders, files in os.walk(root):
        relative = os.path.relpath(folder, root)
        prefix = "" if relative == "." else relative.replace(os.sep, "/") + "/"
        if prefix.count("/") >= _MAX_DEPTH:
            folders[:] = []
        for name in (*folders, *files):
            path = os.path.join(folder, name)
            if os.path.islink(path):
                links[prefix + name] = os.readlink(path)
        for name in files:
            _add(os.path.join(folder, name), prefix + name, entries, texts)
        if len(entries) > _MAX_ENTRIES:
            raise InputError(f"{root}: holds more than {_MAX_ENTRIES} files; give a smaller folder")
    return read_listing(entries, links, texts, time.time() if now is None else now)


def _add(path: str, label: str, entries: list[FolderEntry], texts: dict[str, str]) -> None:
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            return  # no writer makes such a file
        if is_tracker(label) and status.st_size < 4096:
            texts[label] = read_regular(Path(path), 4096).decode("utf-8", "replace")
    except OSError:
        return  # removed while we listed: old checkpoints go at any time
    entries.append(FolderEntry(path=label, size=status.st_size, modified=status.st_mtime))


def newest_checkpoint(root: Path) -> Checkpoint | None:
    """The newest complete checkpoint below ``root``, or None."""
    return scan_checkpoints(root).latest_complete
