"""Calls in threads and coroutines of actors: who is named, when, and what is no incident."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from ray_sentinel.engine.telemetry.inference import deployment_of
from ray_sentinel.model.ray_calls import EndedCalls
from tests.support import ray_story
from tests.support.ray_stories.jobs import WARM, rollouts
from tests.support.ray_stories.threads import (
    asked_meanwhile,
    awaits,
    awaits_after_a_failure,
    awaits_another,
    background_thread_rests,
    event_loop_rests,
    group_full,
    in_thread,
    library_function,
    served,
    thread_spins,
    thread_stands,
    thread_stands_beside_others,
    thread_writes,
)
from tests.support.ray_story import (
    SLEEPS,
    RayStory,
)


class TestNamed:
    @pytest.mark.parametrize("play", [awaits, in_thread])
    def test_one_whose_main_thread_tells_nothing(self, play: Callable[[], RayStory]) -> None:
        story = play()
        incident, (culprit,) = story.incident(), story.culprits()
        assert (incident.kind, culprit.actor) == ("actor-stuck", "Rollout 0")
        assert culprit.method == "Rollout.generate"
        assert incident.confirmed_at is not None
        assert 120.0 < incident.confirmed_at - ray_story.START - WARM < 160.0

    @pytest.mark.parametrize(
        ("story", "least", "most"),
        [
            (event_loop_rests, 15.0, 22.0),
            (lambda: event_loop_rests(runs=True), 120.0, 160.0),
            (lambda: event_loop_rests(given=True), 120.0, 160.0),
            (lambda: event_loop_rests(beside=True), 120.0, 160.0),
            (lambda: event_loop_rests(feeds=True), 120.0, 160.0),
        ],
        ids=["rests", "runs", "given", "beside", "feeds"],
    )
    def test_one_whose_event_loop_tells(
        self, story: Callable[[], RayStory], least: float, most: float
    ) -> None:
        played = story()
        incident, (culprit,) = played.incident(), played.culprits()
        assert (incident.kind, culprit.method) == ("actor-stuck", "Rollout.generate")
        assert culprit.reason == "awaits something of its own"
        assert incident.confirmed_at is not None
        assert least < incident.confirmed_at - ray_story.START - WARM < most

    def test_one_that_is_asked_meanwhile_is_told_once(self) -> None:
        story = asked_meanwhile()
        incident, (culprit,) = story.incident(), story.culprits()
        assert (incident.kind, incident.state, culprit.method) == (
            "actor-stuck", "explained", "Rollout.run",
        )  # fmt: skip
        assert "Rollout.run" in incident.summary

    def test_one_that_awaits_what_a_failed_call_should_have_brought(self) -> None:
        incident = awaits_after_a_failure().incident()
        told = (
            "Producer.run at Producer 0 failed 2 s before this wait began: ValueError: bad record"
        )
        assert f"awaits something of its own; {told}; 1 process waits" in incident.summary
        assert incident.verdict is not None
        texts = [item.text for item in incident.verdict.evidence]
        assert told in texts
        assert not any("KeyError" in text for text in texts)

    @pytest.mark.parametrize("play", [thread_spins, thread_stands])
    def test_one_whose_thread_keeps_the_gil_or_has_not_run(
        self, play: Callable[[], RayStory]
    ) -> None:
        story = play()
        incident, (culprit,) = story.incident(), story.culprits()
        assert (incident.kind, culprit.method) == ("actor-stuck", "Rollout.generate")
        assert incident.confirmed_at is not None
        assert incident.confirmed_at - ray_story.START - WARM < 40.0

    def test_one_whose_thread_the_kernel_blocks(self) -> None:
        story = thread_writes()
        incident, (culprit,) = story.incident(), story.culprits()
        assert (incident.kind, culprit.method) == ("kernel-blocked", "Rollout.save")
        assert incident.confirmed_at is not None
        assert incident.confirmed_at - ray_story.START - WARM < 30.0
        assert incident.resolved_at is not None
        assert incident.resolved_at - ray_story.START - WARM < 60.0 + 50.0

    def test_one_whose_thread_goes_on_in_the_end_no_longer(self) -> None:
        incident = thread_stands_beside_others(seconds=60).incident()
        assert incident.confirmed_at is not None
        assert incident.resolved_at is not None
        assert incident.resolved_at - ray_story.START - WARM < 60.0 + 50.0

    def test_one_whose_thread_has_not_run_while_the_job_goes_on(self) -> None:
        story = thread_stands_beside_others()
        incident, (culprit,) = story.incident(), story.culprits()
        assert (incident.kind, culprit.actor) == ("actor-stuck", "Rollout 0")
        assert incident.confirmed_at is not None
        assert incident.confirmed_at - ray_story.START - WARM < 60.0

    @pytest.mark.parametrize(
        ("play", "who", "method"),
        [
            (group_full, "Rollout 0", "Rollout.write"),
            (library_function, "ImplicitFunc 0", "ImplicitFunc.train"),
        ],
    )
    def test_one_whose_thread_stands_as_soon_as_a_main_thread(
        self, play: Callable[[], RayStory], who: str, method: str
    ) -> None:
        story = play()
        incident, (culprit,) = story.incident(), story.culprits()
        assert (incident.kind, culprit.actor, culprit.method) == ("actor-stuck", who, method)
        assert culprit.reason == "sleeping in score (reward.py:88)"
        assert incident.confirmed_at is not None
        assert incident.confirmed_at - ray_story.START - WARM <= 25.0

    def test_one_of_whose_calls_too_few_had_ended_when_it_was_looked_at_first(self) -> None:
        story = library_function(told=1)
        incident, (culprit,) = story.incident(), story.culprits()
        assert culprit.actor == "ImplicitFunc 0"
        assert incident.confirmed_at is not None
        assert incident.confirmed_at - ray_story.START <= 30.0

    def test_a_replica_of_ray_serve_for_which_a_client_outside_waits(self) -> None:
        story = served(awaited=False)
        (culprit,) = story.culprits()
        assert (culprit.role, culprit.pid) == ("ServeReplica:app:Model", 10)
        assert story.chain() == []

    def test_a_replica_of_ray_serve_that_stands_in_a_request(self) -> None:
        story = served()
        incident, (culprit,) = story.incident(), story.culprits()
        assert (incident.kind, culprit.role, culprit.pid) == (
            "actor-stuck",
            "ServeReplica:app:Model",
            10,
        )
        assert story.chain()[-1] == (
            "an object whose maker is not known",
            "ServeReplica:app:Model 0",
            "may come from",
        )
        assert incident.confirmed_at is not None
        assert incident.confirmed_at - ray_story.START - WARM <= 25.0


class TestNoIncident:
    def test_a_coroutine_that_awaits_what_another_may_bring(self) -> None:
        assert awaits_another().engine.incidents(everything=True) == ()

    @pytest.mark.parametrize(("share", "longest"), [(0.7, 0.5), (1.0, 20.0)])
    def test_a_thread_that_computes_for_long_or_rests_between(
        self, share: float, longest: float
    ) -> None:
        story = thread_spins(share=share, longest=longest)
        assert story.engine.incidents(everything=True) == ()

    @pytest.mark.parametrize("wakes", ["round", "between looks"])
    def test_a_thread_that_writes_a_lot(self, wakes: str) -> None:
        story = thread_writes(wakes=wakes)
        assert story.looks > 1
        assert story.engine.incidents(everything=True) == ()

    def test_a_thread_that_runs_now_and_then(self) -> None:
        assert thread_stands(runs=True).engine.incidents(everything=True) == ()

    def test_a_thread_that_sleeps_beside_the_calls_of_its_actor(self) -> None:
        story = background_thread_rests()
        assert story.looks > 4
        assert story.engine.incidents(everything=True) == ()

    def test_a_thread_of_a_librarys_function_that_works_in_small_steps(self) -> None:
        assert library_function(runs=True).engine.incidents(everything=True) == ()

    @pytest.mark.parametrize(
        "story",
        [
            lambda: served(runs=True),
            lambda: served(longest=30.0),
            lambda: served(awaited=False, runs=True),
            lambda: served(awaited=False, longest=30.0),
        ],
        ids=[
            "small-steps",
            "others-took-as-long",
            "small-steps-for-clients-outside",
            "others-took-as-long-for-them",
        ],
    )
    def test_a_request_of_ray_serve(self, story: Callable[[], RayStory]) -> None:
        assert story().engine.incidents(everything=True) == ()

    def test_a_long_generation_in_a_thread(self) -> None:
        """It takes a hundred times as long as any before it, at one line."""
        story, main, (first, _) = rollouts()
        story.ended = {"Rollout.generate": EndedCalls(count=20, longest=3.0)}
        first.begins("generate", story.now, msgspec.structs.replace(SLEEPS, tid=99, switches=7))
        story.call(main, first, "generate")
        first.wakes = True
        story.run(300, lambda: first.works(story.now))
        assert story.engine.incidents(everything=True) == ()

    def test_a_thread_that_serves_as_long_as_the_job_lasts(self) -> None:
        assert thread_stands(method="serve").engine.incidents(everything=True) == ()

    def test_a_thread_whose_calls_never_ended_while_the_job_goes_on(self) -> None:
        story = thread_stands_beside_others(usual=False)
        assert story.engine.incidents(everything=True) == ()
        assert story.looks == 0

    def test_a_thread_whose_method_is_not_known(self) -> None:
        story, main, (first, _) = rollouts()
        first.begins("load", story.now, SLEEPS)
        story.call(main, first, "load")
        story.run(300, lambda: first.works(story.now))
        assert story.engine.incidents(everything=True) == ()


def test_only_a_replica_is_of_a_deployment() -> None:
    assert deployment_of("ServeReplica:app:Model") == "serve-app-Model"
    assert deployment_of("ServeController") == ""
