"""The agent's own folder on a local disk: collectors run from copies that lie there."""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import tempfile
from pathlib import Path

from ray_sentinel.model.identity import Node

log = logging.getLogger(__name__)


def run_folder(node: Node) -> Path:
    """The folder, the same for every life of this node's agent.

    Where somebody else has made it first, and could put programs there for us to run, a new one
    each time: what an earlier agent left running is not found then. Raises OSError where none can
    be made.
    """
    root = Path(tempfile.gettempdir()) / f"ray_sentinel-{os.getuid()}"
    if problem := _why_not(root):
        made = Path(tempfile.mkdtemp(prefix="ray_sentinel-"))
        log.warning("%s: %s; the agent works in %s: remove the former", root, problem, made)
        return made
    folder = root / "nodes" / node.id[:16]
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def _why_not(root: Path) -> str:
    """Why the folder, made where missing, cannot be trusted; empty where it is ours alone."""
    with contextlib.suppress(FileExistsError):
        root.mkdir(mode=0o700)
    status = os.lstat(root)
    if not stat.S_ISDIR(status.st_mode):
        return "is no folder"
    if status.st_uid != os.geteuid():
        return f"belongs to user {status.st_uid}"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        os.chmod(root, stat.S_IRWXU)
    return ""
