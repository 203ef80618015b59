"""A runtime environment that is being built is reported, and stuck only if nothing moves."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from ray_sentinel.model.placement import Placement
from ray_sentinel.model.runtime_env import EnvironmentBuild, NodeEnvironments
from tests.support.ray_story import NODE, START, RayStory, actors, driver

KEY = "ab" * 8
BUILD = NodeEnvironments(
    node=NODE.id,
    host="host1",
    building=(EnvironmentBuild(key=KEY, what="pip: torch"),),
    line="Collecting torch",
    moves=7,
    moved=False,
)
MADE = NodeEnvironments(node="n2", host="host2", made={KEY: 41.2})
SILENT = msgspec.structs.replace(BUILD, answers=False)


def newcomer(needs: float = 1.0) -> RayStory:
    """A job whose first actor is asked for, with a runtime environment."""
    main, (only,) = driver(), actors("Rollout", 1, 10)
    only.actor_state = "PENDING_CREATION"
    story = RayStory([main, only])
    story.drives(main)
    story.call(main, only, "__init__", "unplaced", kind="actor-creation")
    story.calls[-1] = msgspec.structs.replace(
        story.calls[-1], environment=KEY, needs={"CPU": needs}
    )
    story.call(main, only, "generate", "unplaced")
    return story


def waits(story: RayStory) -> str:
    (job,) = story.engine.status(story.now).jobs
    return job.waits


def test_one_that_goes_on_is_told_and_accuses_nobody() -> None:
    story = newcomer()

    def goes_on() -> None:
        moves = int(story.now)
        now = msgspec.structs.replace(BUILD, moves=moves, moved=True, line=f"step {moves}")
        story.environments = (now, MADE)

    story.run(900, goes_on)
    assert not story.engine.incidents()
    text = waits(story)
    assert "Rollout.__init__ → waits " in text
    assert "for the runtime environment (pip: torch; 41 s on host2) on host1 to be built" in text
    assert "which goes on, last seen being built; its log ends with 'step " in text


def test_a_child_that_does_nothing_for_a_minute_is_stuck() -> None:
    story = newcomer()
    story.environments = (BUILD,)
    story.run(60)
    assert not story.engine.incidents(), "it may wait for a server"
    assert "nothing that builds it has moved" in waits(story)
    story.run(60)
    incident = story.incident()
    assert incident.kind == "pending"
    assert incident.summary == (
        "the runtime environment (pip: torch) on host1 is not being built any more: nothing that "
        "builds it has moved; its log ends with 'Collecting torch'; 1 process waits"
    )
    assert incident.verdict is not None
    assert "runtime_env_setup-*.log" in incident.verdict.next_steps[0]


def test_one_that_moves_now_and_then_is_not_stuck() -> None:
    story = newcomer()

    def now_and_then() -> None:
        story.environments = (msgspec.structs.replace(BUILD, moves=int(story.now) // 40),)

    story.run(600, now_and_then)
    assert not story.engine.incidents()


def test_an_agent_that_answers_nobody_and_stands_still_is_stuck_soon() -> None:
    story = newcomer()
    story.environments = (SILENT,)
    story.run(60)
    incident = story.incident()
    assert "the agent that builds it on host1 answers nobody and does not move" in incident.summary
    assert incident.confirmed_at is not None
    assert incident.confirmed_at - START < 20.0


def test_what_an_agent_that_answers_nobody_has_not_begun_waits_for_it() -> None:
    story = newcomer()
    story.environments = (msgspec.structs.replace(SILENT, building=()),)
    story.run(60)
    assert story.incident().summary.startswith("the runtime environment on host1 is not being bui")


def too_large(story: RayStory) -> None:
    story.placement = Placement(total_on={NODE.id: {"CPU": 4.0}})


def of_another(story: RayStory) -> None:
    (build,) = BUILD.building
    other = msgspec.structs.replace(build, key="cd" * 8)
    story.environments = (msgspec.structs.replace(BUILD, building=(other,)),)


@pytest.mark.parametrize("change", [too_large, of_another])
def test_what_cannot_be_placed_waits_for_no_environment(
    change: Callable[[RayStory], None],
) -> None:
    story = newcomer(needs=8.0)
    story.environments = (BUILD,)
    change(story)
    story.run(60)
    summary = story.incident().summary
    assert "8 CPU" in summary
    assert "environment" not in summary


def test_whether_it_moves_may_not_be_known() -> None:
    story = newcomer()
    story.environments = (msgspec.structs.replace(BUILD, moves=None, moved=None),)
    story.run(600)
    assert not story.engine.incidents()
    assert "whether anything builds it cannot be told" in waits(story)
