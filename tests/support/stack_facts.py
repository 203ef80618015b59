"""What the stacks of ranks say, made up: most wait in a collective, some are elsewhere."""

from __future__ import annotations

from ray_sentinel.model.identity import ProcessId, RankId
from ray_sentinel.model.stacks import StackFact
from ray_sentinel.waitgraph.stacks import Explanation, explain

REDUCE = ("<module> (train.py:30)", "step (train.py:12)", "all_reduce (torch/d.py:3)")


def fact(number: int, **fields: object) -> StackFact:
    """A rank in ``all_reduce`` unless ``fields`` say otherwise."""
    base: dict[str, object] = {
        "process": ProcessId("n", 100 + number, 5),
        "rank": RankId("j", 0, number),
        "tool": "py-spy",
        "signature": REDUCE,
        "activity": "collective-wait",
        "operation": "all_reduce",
        "label": "in all_reduce",
        "waits_for_others": True,
        "active": False,
    }
    return StackFact(**{**base, **fields})  # type: ignore[arg-type]


def elsewhere(number: int, activity: str = "sleep", *places: str, **fields: object) -> StackFact:
    """A rank that is not in the collective but at ``places``, at some ``activity``."""
    waits = fields.pop("waits_for_others", None if activity == "unknown" else False)
    return fact(
        number,
        signature=(REDUCE[0], *(places or (f"{activity} (x.py:4)",))),
        activity=activity,
        operation="",
        label=f"in {activity}",
        waits_for_others=waits,
        **fields,
    )


def ranks(found: Explanation) -> list[int | None]:
    """The culprits' ranks; -1 where a rank is not known."""
    return sorted(c.rank if c.rank is not None else -1 for c in found.culprits)


def looks(*facts: StackFact, times: int = 2) -> Explanation:
    """The verdict on so many looks that all saw the same."""
    return explain([facts] * times)
