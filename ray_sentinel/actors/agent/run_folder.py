"""The agent's own folder on a local disk: collectors run from copies that lie there."""

from __future__ import annotations

import logging
import os
import tempfile
from pathlib import Path

from ray_sentinel.model.identity import Node
from ray_sentinel.trusted_path import claim_private_folder

log = logging.getLogger(__name__)


def run_folder(node: Node) -> Path:
    """The folder, the same for every life of this node's agent.

    Where somebody else has made it first, and could put programs there for us to run, a new one
    each time: what an earlier agent left running is not found then. Raises OSError where none can
    be made.
    """
    root = Path(tempfile.gettempdir()) / f"ray_sentinel-{os.getuid()}"
    if problem := claim_private_folder(root):
        made = Path(tempfile.mkdtemp(prefix="ray_sentinel-"))
        log.warning("%s: %s; the agent works in %s: remove the former", root, problem, made)
        return made
    folder = root / "nodes" / node.id[:16]
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder
