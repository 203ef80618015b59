"""Actors of Ray jobs that wait for their devices: most ask them over and over, and never rest."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from ray_sentinel.model.ray_calls import EndedCalls
from ray_sentinel.model.stacks import StackFact
from tests.support import ray_story
from tests.support.ray_stories.call_streams import (
    BackToBack,
    after_calls,
    back_to_back,
    device_hangs,
    now_and_then_a_long_one,
)
from tests.support.ray_stories.jobs import WARM, rollouts, with_ranks
from tests.support.ray_story import GETS, ITEMS, REDUCES, SLEEPS, SYNCHRONIZES, RayStory
from tests.support.restarts import goes_on_alike

PLACE = "waiting for the device in synchronize (torch/cuda/__init__.py:1162)"


def told_after(story: RayStory) -> float:
    """Seconds from the begin of the trouble until it was told."""
    confirmed = story.incident().confirmed_at
    assert confirmed is not None
    return confirmed - ray_story.START - WARM


class TestCallsThatFollowEachOther:
    @pytest.mark.parametrize("stack", [ITEMS, SYNCHRONIZES], ids=["items", "synchronizes"])
    @pytest.mark.parametrize("play", [back_to_back, now_and_then_a_long_one])
    def test_are_no_incident(self, play: Callable[[StackFact], RayStory], stack: StackFact) -> None:
        story = play(stack)
        assert story.engine.incidents(everything=True) == ()
        assert story.engine.status(story.now).state == "healthy"

    def test_are_told_apart_in_status(self) -> None:
        story = back_to_back()
        (job,) = story.engine.status(story.now).jobs
        seconds = {one.label: one.seconds for one in job.members}["Rollout 0"]
        assert seconds is not None
        assert seconds < 30.0

    def test_are_looked_at_seldom(self) -> None:
        play = BackToBack(ITEMS)
        play.goes_on(WARM)
        looks = play.story.looks
        play.goes_on(300)
        assert play.story.looks - looks <= 300 / 8

    def test_limits_of_many_that_come_one_after_the_other_hasten_no_looks(self) -> None:
        """A look halts the processes for moments: not one for each of them."""
        story, main, workers = rollouts(60)

        def work() -> None:
            for worker in workers:
                if worker.busy_since is not None:
                    worker.works(story.now)

        for worker in workers:
            worker.spins("generate", story.now)
            story.call(main, worker, "generate")
            story.run(1, work)
        looks = story.looks
        story.run(60, work)
        assert story.looks - looks <= 60 / 5

    def test_that_a_clock_ahead_calls_the_begin_of_a_call_is_no_time_to_come(self) -> None:
        story, main, (first, _) = rollouts()
        first.spins("generate", story.now)
        story.call(main, first, "generate")
        story.calls[-1] = msgspec.structs.replace(story.calls[-1], since=story.now + 60.0)
        story.run(25, lambda: first.works(story.now))
        assert story.looks
        (job,) = story.engine.status(story.now).jobs
        seconds = {one.label: one.seconds for one in job.members}["Rollout 0"]
        assert seconds is not None
        assert seconds >= 0.0

    def test_one_that_spins_is_told_in_time(self) -> None:
        story = after_calls(ITEMS)
        assert (story.incident().kind, story.incident().state) == ("cpu-spin", "explained")
        assert [one.actor for one in story.culprits()] == ["Rollout 0"]
        assert told_after(story) <= 20.0

    @pytest.mark.parametrize(
        ("stack", "kind"), [(ITEMS, "cpu-spin"), (SYNCHRONIZES, "device-stuck")]
    )
    def test_one_that_ray_does_not_list_is_told_once_nothing_else_has_ended(
        self, stack: StackFact, kind: str
    ) -> None:
        story = after_calls(stack, listed=False)
        assert story.incident().kind == kind
        assert [one.pid for one in story.culprits()] == [10]
        assert told_after(story) <= 30.0


class TestDeviceThatDoesNotFinish:
    def test_who_waits_for_it_is_named(self) -> None:
        story = device_hangs()
        incident, (culprit,) = story.incident(), story.culprits()
        assert (incident.kind, incident.state) == ("device-stuck", "explained")
        assert (culprit.actor, culprit.method, culprit.reason) == (
            "Rollout 0",
            "Rollout.generate",
            PLACE,
        )
        assert incident.summary == (
            f"Rollout 0 on host1 stands still in Rollout.generate: {PLACE}; 1 process waits"
        )
        assert told_after(story) <= 20.0
        job = story.engine.status(story.now).jobs[0]
        told = {one.label: one for one in job.members}["Rollout 0"]
        assert (told.seconds, told.state) == (60.0, "silent")
        assert job.waits.endswith(f" in ray.get for Rollout.generate at Rollout 0 → {PLACE}")

    def test_also_where_the_thread_sleeps_meanwhile(self) -> None:
        story, main, (first, _) = rollouts()
        first.begins("generate", story.now, msgspec.structs.replace(SYNCHRONIZES, active=False))
        story.call(main, first, "generate")
        story.run(60)
        assert story.incident().kind == "device-stuck"
        assert [one.pid for one in story.culprits()] == [10]
        assert told_after(story) <= 20.0

    def test_also_below_a_driver(self) -> None:
        story, main, _ = rollouts()
        main.stack, main.busy_since = SYNCHRONIZES, story.now
        story.run(60, lambda: main.works(story.now))
        assert story.incident().kind == "device-stuck"
        assert [one.role for one in story.culprits()] == ["driver"]

    def test_also_in_a_thread(self) -> None:
        story, main, (first, _) = rollouts()
        story.ended = {"Rollout.generate": EndedCalls(count=20, longest=0.5)}
        first.begins("generate", story.now, msgspec.structs.replace(SYNCHRONIZES, tid=99))
        first.stack = msgspec.structs.replace(first.stack, switches=7)
        first.title, first.wakes, first.wants = first.kind, True, 1.0
        story.call(main, first, "generate")
        story.run(60, lambda: first.works(story.now))
        assert story.incident().kind == "device-stuck"
        assert [one.pid for one in story.culprits()] == [10]

    def test_of_several_actors_nobody_is_named(self) -> None:
        """What each waits for on its device may be a kernel of another."""
        story = after_calls(SYNCHRONIZES, count=2)
        assert story.incident().kind == "unknown"
        assert story.culprits() == ()
        assert story.incident().summary == (
            "Rollout 0 and Rollout 1 wait for their devices, and nothing tells them apart; "
            "1 process waits"
        )


class TestRanks:
    """What a rank waits for at its device may be a collective with the others."""

    def test_that_wait_there_for_one_that_waits_for_a_rollout_are_not_named(self) -> None:
        story, main, rollout, trainers = with_ranks()
        for trainer, stack in zip(trainers, (GETS, SYNCHRONIZES), strict=True):
            trainer.begins("update", story.now, stack)
            story.call(main, trainer, "update")
        trainers[1].busy_since = story.now
        rollout.begins("generate", story.now, SLEEPS)
        story.call(trainers[0], rollout, "generate")
        story.run(200, lambda: trainers[1].works(story.now))
        assert story.incident().kind == "actor-stuck"
        assert [one.actor for one in story.culprits()] == ["Rollout 0"]

    @pytest.mark.parametrize(
        ("first", "kind", "named"),
        [(SYNCHRONIZES, "unknown", []), (REDUCES, "device-stuck", ["Trainer 1"])],
        ids=["all-at-devices", "others-wait-for-it"],
    )
    def test_of_which_the_others_do_not_wait_for_anything_else(
        self, first: StackFact, kind: str, named: list[str]
    ) -> None:
        story, main, _, trainers = with_ranks()
        for trainer, stack in zip(trainers, (first, SYNCHRONIZES), strict=True):
            trainer.spins("update", story.now, stack)
            story.call(main, trainer, "update")

        def ask() -> None:
            for trainer in trainers:
                trainer.works(story.now)

        story.run(60, ask)
        assert story.incident().kind == kind
        assert [one.actor for one in story.culprits()] == named


class TestDeviceThatWorks:
    def test_as_long_as_it_has_before(self) -> None:
        def took_long(play: BackToBack) -> None:
            told = EndedCalls(count=200, longest=40.0, last_at=ray_story.START + WARM)
            play.story.ended = {"Rollout.generate": told}

        story = after_calls(SYNCHRONIZES, 300, each=took_long)
        assert story.engine.incidents(everything=True) == ()

    def test_in_a_method_that_is_not_known(self) -> None:
        """It compiles, say, or loads a model."""
        story, main, (first, _) = rollouts()
        first.spins("compile", story.now, SYNCHRONIZES)
        story.call(main, first, "compile")
        story.run(600, lambda: first.works(story.now))
        assert story.engine.incidents(everything=True) == ()

    def test_in_an_evaluation(self) -> None:
        story, main, (first, _) = rollouts()
        places = ("evaluate (rollout.py:30)", SYNCHRONIZES.signature[-1])
        first.spins("generate", story.now, msgspec.structs.replace(SYNCHRONIZES, signature=places))
        story.call(main, first, "generate")
        story.run(600, lambda: first.works(story.now))
        assert story.engine.incidents(everything=True) == ()

    def test_what_is_launched_at_another_line_at_each_look(self) -> None:
        def next_line(play: BackToBack) -> None:
            at = int(play.story.now) // 4 % 5
            places = (f"generate (rollout.py:{14 + at})", SYNCHRONIZES.signature[-1])
            (first,) = play.workers
            first.stack = msgspec.structs.replace(SYNCHRONIZES, signature=places)

        story = after_calls(SYNCHRONIZES, 300, each=next_line)
        assert story.engine.incidents(everything=True) == ()


@pytest.mark.parametrize(
    "play", [device_hangs, now_and_then_a_long_one], ids=lambda play: play.__name__
)
def test_a_restart_on_the_way_changes_nothing(play: Callable[[], RayStory]) -> None:
    events = play().log
    goes_on_alike(events, set(range(0, len(events), 31)))
