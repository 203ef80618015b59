"""The kind of fault of one rank, from what its process, its stacks and the recorder show."""

from __future__ import annotations

import msgspec

from ray_sentinel.engine.ranks import RankView
from ray_sentinel.evidence.stacks.compare import Movement
from ray_sentinel.evidence.stacks.context import fault_kind as kind_of_stack
from ray_sentinel.model.incident import FaultKind
from ray_sentinel.model.recorder import RecorderKind
from ray_sentinel.model.stacks import StackFact

BY_RECORDER: dict[RecorderKind, FaultKind] = {
    "device-stuck": "device-stuck",
    "collective-mismatch": "collective-mismatch",
}


def fault_kind(
    view: RankView, fact: StackFact | None, movement: Movement, recorder: RecorderKind | None
) -> FaultKind:
    """The most certain word on why a rank stands still. ``movement``: of its stack."""
    if view.exit is not None and recorder != "collective-mismatch":
        return "oom-killed" if view.exit.oom_killed else "rank-dead"
    if not view.alive and recorder != "collective-mismatch":
        return "rank-dead"
    if "stopped" in view.state_since:
        return "rank-stopped"
    if "gil-held" in view.state_since or _keeps_gil(view, fact, movement):
        return "gil-held"
    if "blocked" in view.state_since:
        return "kernel-blocked"
    if recorder in BY_RECORDER:
        return BY_RECORDER[recorder]
    return _from_stack(view, fact, movement)


def _from_stack(view: RankView, fact: StackFact | None, movement: Movement) -> FaultKind:
    if fact is None:
        return "cpu-spin" if view.spinning else "host-stuck"
    # A tool sees the GIL held or a thread active for a moment in everyday work.
    told = msgspec.structs.replace(fact, keeps_gil=False)
    found = kind_of_stack(told, movement)
    if found == "host-stuck" and view.process.state == "t":
        return "rank-stopped"
    if found == "host-stuck" and "starved" in view.state_since:
        return "starved"
    if found == "cpu-spin" and view.unfed:
        return "starved"
    return "cpu-spin" if found == "host-stuck" and view.spinning else found


def _keeps_gil(view: RankView, fact: StackFact | None, movement: Movement) -> bool:
    # A rank with a companion thread tells by its stamp; without one, a thread that has the GIL and
    # does not run. One that runs may be in a loop of Python: rank.gil-seen takes more looks at it.
    if fact is None or movement != "stuck":
        return False
    if not fact.keeps_gil and (not fact.holds_gil or fact.active):
        return False
    return view.process.interpreter in ("unknown", "gil-held")
