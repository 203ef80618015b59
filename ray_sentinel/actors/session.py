"""Where the Ray session that this process belongs to keeps its files on this node."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def session_logs() -> Path | None:
    """The session's ``logs`` folder; None where Ray does not tell or it is not on this node."""
    from ray._private import worker

    node: Any = getattr(worker, "_global_node", None)
    if node is None:
        return None
    folder = Path(node.get_logs_dir_path())
    return folder if folder.is_dir() else None
