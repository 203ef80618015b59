"""This node alone, without a cluster."""

from __future__ import annotations

import time
from pathlib import Path

from ray_sentinel.errors import UnreachableError
from ray_sentinel.evidence.node.judge import Seen, checkpoint_health, judge
from ray_sentinel.inspection.node import view_node
from ray_sentinel.logs.checkpoints import scan_checkpoints
from ray_sentinel.logs.find import live_session
from ray_sentinel.model.health import Health, NodeView


def local_view() -> NodeView:
    """This node now, with the logs of the Ray session that it may have."""
    try:
        session: Path | None = live_session() / "logs"
    except UnreachableError:
        session = None
    return view_node(session=session)


def local_health(checkpoints: Path | None = None) -> Health:
    """The report over this node. Raises InputError where ``checkpoints`` cannot be listed."""
    saved = (
        checkpoint_health(str(checkpoints), scan_checkpoints(checkpoints)) if checkpoints else None
    )
    return judge(
        Seen(
            nodes=(local_view(),),
            checkpoints=saved,
            notes=("only this node was looked at",),
            time=time.time(),
        )
    )
