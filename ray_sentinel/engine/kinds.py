"""The kind of fault of one rank, from what its process, its stacks and the recorder show."""

from __future__ import annotations

from ray_sentinel.engine.ranks import RankView
from ray_sentinel.model.incident import FaultKind
from ray_sentinel.model.recorder import RecorderKind
from ray_sentinel.model.stacks import Activity, StackFact

BY_ACTIVITY: dict[Activity, FaultKind] = {
    "input-wait": "input-wait",
    "network-wait": "input-wait",
    "storage-wait": "storage-wait",
    "checkpoint": "storage-wait",
    "lock-wait": "lock-deadlock",
    "device-wait": "device-stuck",
    "gil-wait": "gil-held",
    "compile": "startup-stuck",
    "startup": "startup-stuck",
}

BY_RECORDER: dict[RecorderKind, FaultKind] = {
    "device-stuck": "device-stuck",
    "collective-mismatch": "collective-mismatch",
}


def fault_kind(
    view: RankView, fact: StackFact | None, stuck: bool, recorder: RecorderKind | None
) -> FaultKind:
    """The most certain word on why a rank stands still. ``stuck``: no stack of it changed."""
    if view.exit is not None:
        return "oom-killed" if view.exit.oom_killed else "rank-dead"
    if not view.alive:
        return "rank-dead"
    if "stopped" in view.state_since:
        return "rank-stopped"
    if "gil-held" in view.state_since or _keeps_gil(view, fact, stuck):
        return "gil-held"
    if "blocked" in view.state_since:
        return "kernel-blocked"
    if recorder in BY_RECORDER:
        return BY_RECORDER[recorder]
    if fact is not None and fact.activity in BY_ACTIVITY:
        return BY_ACTIVITY[fact.activity]
    if "starved" in view.state_since:
        return "starved"
    return "cpu-spin" if view.spinning else "host-stuck"


def _keeps_gil(view: RankView, fact: StackFact | None, stuck: bool) -> bool:
    # A rank with a companion thread tells by its stamp; without one, the same frame holding the
    # GIL at every look does.
    if fact is None or not fact.holds_gil or not stuck:
        return False
    return view.process.interpreter in ("unknown", "gil-held")
