"""Work for which Ray has no room, or no worker."""

from __future__ import annotations

from ray_sentinel.model.placement import Placement
from ray_sentinel.model.ray_calls import PendingGroup, RayCall
from tests.support.ray_stories.jobs import rollouts
from tests.support.ray_story import (
    GETS,
    JOB,
    PLACES,
    RayStory,
)


def pending(**free_on: dict[str, float]) -> RayStory:
    story, main, _ = rollouts()
    story.free_on = free_on or story.free_on
    main.stack = PLACES
    group = PendingGroup(
        id="29a1" * 8, name="big", job=JOB, bundles=({"CPU": 64.0},), since=story.now
    )
    story.groups = (group,)
    story.tell_table()
    story.run(60)
    return story


def no_worker(seconds: int = 90, free: float = 4.0, *, full: str = "") -> RayStory:
    """A driver waits for a task that asks for a CPU, and to which no worker has been given; on one
    node, "node1", so many CPUs are ``free``. ``full``: a node whose object store is."""
    story, main, _ = rollouts()
    story.free_on = {"node1": {"CPU": free}}
    story.placement = Placement(short_of_memory=(full,)) if full else None
    task = RayCall(
        id="7a5c", parent=f"d{JOB}", job=JOB, kind="task", name="score", state="unplaced",
        since=story.now, made=story.now, needs={"CPU": 1.0},
    )  # fmt: skip
    story.calls.append(task)
    main.stack = GETS
    story.run(seconds)
    return story
