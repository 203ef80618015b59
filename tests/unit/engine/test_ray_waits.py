"""What holds Ray jobs up, story by story: who is named, when, and what is no incident."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from ray_sentinel.engine.telemetry.inference import deployment_of
from ray_sentinel.model.ray_calls import EndedCalls, PendingGroup
from ray_sentinel.model.stacks import Activity, StackFact
from tests.support import ray_story
from tests.support.ray_stories import (
    WARM,
    all_reduce,
    asked_meanwhile,
    asleep,
    asleep_below_threads,
    asynchronous,
    awaits,
    awaits_after_a_failure,
    awaits_another,
    background_thread_rests,
    blocked,
    circle,
    circle_with_a_rank,
    compiled_graph,
    detached,
    driver_asleep,
    driver_spins,
    ends_unnoticed,
    event_loop_rests,
    first_constructor,
    group_full,
    in_thread,
    library_function,
    loops,
    mute,
    no_worker,
    one_of_many,
    pending,
    rank_stuck,
    ranks_wait,
    rollouts,
    served,
    spins,
    stopped,
    thread_spins,
    thread_stands,
    thread_stands_beside_others,
    two_jobs,
    with_ranks,
)
from tests.support.ray_story import (
    COMPUTES,
    GETS,
    JOB,
    PLACES,
    REDUCES,
    SLEEPS,
    WRITES,
    RayStory,
    actors,
    driver,
)
from tests.support.restarts import goes_on_alike


class TestNamed:
    def test_with_the_stacks_of_the_culprit_and_of_one_who_waits(self) -> None:
        story = asleep()
        (culprit,) = story.culprits()
        verdict = story.incident().verdict
        assert verdict is not None
        assert verdict.stacks[0].process.pid == culprit.pid
        assert verdict.stacks[0].signature == SLEEPS.signature
        assert len(verdict.stacks) == 2
        assert verdict.stacks[1].signature != SLEEPS.signature

    def test_a_rollout_that_sleeps(self) -> None:
        story = asleep()
        incident, (culprit,) = story.incident(), story.culprits()
        assert (incident.job, incident.kind, incident.state) == (
            "train_rl-2",
            "actor-stuck",
            "explained",
        )
        assert (culprit.role, culprit.actor, culprit.method) == (
            "Rollout",
            "Rollout 0",
            "Rollout.generate",
        )
        assert (culprit.host, culprit.pid, culprit.rank) == ("host1", 10, None)
        assert culprit.reason == "sleeping in score (reward.py:88)"
        assert story.chain() == [("driver", "Rollout.generate at Rollout 0", "ray.get")]
        assert incident.confirmed_at is not None
        assert 15.0 < incident.confirmed_at - (ray_story.START + WARM) <= 20.0
        state, sentence, _ = story.engine.status(story.now)
        assert (state, sentence) == ("hung", incident.summary)

    def test_a_rollout_that_spins(self) -> None:
        story = spins()
        (culprit,) = story.culprits()
        assert story.incident().kind == "cpu-spin"
        assert (culprit.actor, culprit.pid) == ("Rollout 0", 10)
        assert "score (reward.py:88)" in culprit.reason
        assert "Rollout 0 on host1 spins in Rollout.generate: " in story.incident().summary

    def test_a_rollout_that_goes_round_in_a_loop(self) -> None:
        """Each look shows another line of it."""
        story = loops()
        assert story.incident().kind == "cpu-spin"
        assert [one.pid for one in story.culprits()] == [10]

    def test_a_rollout_that_spins_and_keeps_its_gil(self) -> None:
        story = spins(msgspec.structs.replace(COMPUTES, holds_gil=True))
        assert story.incident().kind == "actor-stuck", "a loop of one line is seen alike"
        assert [one.pid for one in story.culprits()] == [10]

    def test_one_of_many_that_spins_while_the_others_go_on(self) -> None:
        story = one_of_many(COMPUTES)
        assert story.incident().kind == "cpu-spin"
        assert [one.actor for one in story.culprits()] == ["Rollout 0"]
        assert story.chain() == [("driver", "Rollout.generate at Rollout 0", "ray.wait")]
        confirmed = story.incident().confirmed_at
        assert confirmed is not None
        assert confirmed - (ray_story.START + WARM + 200) <= 20.0

    @pytest.mark.parametrize(
        ("stack", "kind", "why"),
        [
            (SLEEPS, "driver-stuck", "sleeping in score (reward.py:88)"),
            (
                msgspec.structs.replace(SLEEPS, keeps_gil=True),
                "gil-held",
                "holds the GIL in score (reward.py:88)",
            ),
        ],
    )
    def test_a_driver_of_tasks_for_whom_no_actor_waits(
        self, stack: StackFact, kind: str, why: str
    ) -> None:
        main = driver()
        story = RayStory([main])
        story.ended = {"preprocess": EndedCalls(count=20, longest=0.4)}
        story.drives(main)
        main.stack = stack
        story.run(60)
        incident, (culprit,) = story.incident(), story.culprits()
        assert (incident.kind, culprit.role, culprit.reason) == (kind, "driver", why)
        assert story.chain() == []
        assert "driver: " + why in story.engine.status(story.now)[2][0].waits

    def test_a_stage_of_a_compiled_graph_that_stands_still(self) -> None:
        story = compiled_graph(stands_for=10)
        assert [one.actor for one in story.culprits()] == ["Stage 0"]
        assert story.incident().kind == "actor-stuck"

    @pytest.mark.parametrize("driver_stands", [False, True], ids=["a stage", "the driver"])
    def test_in_each_round_of_a_compiled_graph_one_may_stand_still(
        self, driver_stands: bool
    ) -> None:
        story = compiled_graph(seconds=900, driver_stands=driver_stands)
        assert not story.engine.incidents(everything=True)

    def test_an_actor_whose_end_ray_has_not_noticed(self) -> None:
        incident = ends_unnoticed().incident()
        assert incident.kind == "actor-dead"
        assert incident.verdict is not None
        told = "was killed by SIGKILL, which Ray has not noticed"
        assert incident.verdict.summary == f"Rollout 0 on host1 {told}; 1 process waits"
        assert [one.reason for one in incident.verdict.culprits] == [told]
        assert incident.verdict.evidence[0].text.endswith(told)

    def test_an_end_that_ray_may_yet_notice_is_no_incident(self) -> None:
        assert not ends_unnoticed(noticed_after=12).engine.incidents()

    @pytest.mark.parametrize("own", [True, False], ids=["by an actor", "by the driver"])
    def test_an_actor_that_outlives_its_job_and_is_called(self, own: bool) -> None:
        story = detached(own=own)
        assert story.incident().job == "train_rl-2"
        (culprit,) = story.culprits()
        assert (culprit.actor, culprit.method) == ("Scorer 0", "Scorer.score")
        assert story.chain()[-1][1] == "Scorer.score at Scorer 0"

    def test_an_actor_for_which_a_thread_of_the_driver_waits(self) -> None:
        story = asleep_below_threads()
        assert [one.actor for one in story.culprits()] == ["Rollout 0"]
        assert story.chain()[-1] == ("driver", "Rollout.generate at Rollout 0", "await")

    def test_a_driver_that_spins(self) -> None:
        story = driver_spins()
        (culprit,) = story.culprits()
        assert story.incident().kind == "driver-stuck"
        assert (culprit.role, culprit.pid) == ("driver", 1)

    def test_a_driver_that_sleeps(self) -> None:
        story = driver_asleep()
        (culprit,) = story.culprits()
        assert story.incident().kind == "driver-stuck"
        assert (culprit.role, culprit.actor, culprit.pid) == ("driver", "", 1)

    def test_calls_in_a_circle(self) -> None:
        story = circle()
        assert story.incident().kind == "call-deadlock"
        assert sorted(one.actor for one in story.culprits()) == ["Rollout 0", "Rollout 1"]
        assert {one.method for one in story.culprits()} == {"Rollout.ask"}
        assert story.engine.status(story.now)[0] == "hung"

    def test_a_stopped_rollout_at_once(self) -> None:
        story = stopped()
        incident = story.incident()
        assert incident.kind == "rank-stopped"
        assert [one.actor for one in story.culprits()] == ["Rollout 0"]
        assert incident.confirmed_at is not None
        assert incident.confirmed_at - (ray_story.START + WARM) <= 10.0

    def test_a_rollout_that_the_kernel_blocks(self) -> None:
        story = blocked()
        assert story.incident().kind == "kernel-blocked"
        assert [one.method for one in story.culprits()] == ["Rollout.save"]

    def test_a_group_that_cannot_be_placed(self) -> None:
        story = pending()
        incident = story.incident()
        assert incident.kind == "pending"
        assert story.culprits() == ()
        assert incident.summary == (
            "nothing in the cluster has placement group big (64 CPU); free are 1 CPU on node1; "
            "1 process waits"
        )
        assert story.engine.status(story.now)[0] == "stalled"

    def test_what_is_free_is_told_by_node_and_only_of_what_is_asked_for(self) -> None:
        story = pending(node1={"CPU": 48.0, "GPU": 8.0}, node2={"CPU": 56.0}, node3={"GPU": 8.0})
        assert story.incident().summary == (
            "nothing in the cluster has placement group big (64 CPU); free are 56 CPU on node2, "
            "48 CPU on node1; 1 process waits"
        )

    def test_of_many_nodes_those_with_most_are_told(self) -> None:
        story = pending(**{f"node{n}": {"CPU": float(n)} for n in range(1, 8)})
        told = (
            "7 CPU on node7, 6 CPU on node6, 5 CPU on node5, 4 CPU on node4 and no more on 3 others"
        )
        assert f"free are {told};" in story.incident().summary

    def test_a_task_in_the_group_does_not_add_the_parts_of_the_group(self) -> None:
        story, main, others = rollouts()
        group = PendingGroup(
            id="29a1" * 8, name="big", job=JOB, bundles=({"CPU": 64.0},), since=0.0
        )
        needs = {f"CPU_group_0_{group.id}": 1.0}
        story.call(main, others[0], "generate", "unplaced")
        story.calls[-1] = msgspec.structs.replace(story.calls[-1], needs=needs)
        main.stack, story.groups = PLACES, (group,)
        story.tell_table()
        story.run(60)
        assert "free are 1 CPU on node1;" in story.incident().summary

    def test_nothing_is_free_of_what_is_asked_for(self) -> None:
        assert (
            "; nothing of it is free on any node;" in pending(node1={"GPU": 8.0}).incident().summary
        )

    def test_the_first_constructor_after_minutes(self) -> None:
        story = first_constructor()
        incident, (culprit,) = story.incident(), story.culprits()
        assert (incident.kind, culprit.method, culprit.pid) == (
            "actor-stuck",
            "Rollout.__init__",
            10,
        )
        assert incident.confirmed_at is not None
        assert incident.confirmed_at - ray_story.START > 300.0

    def test_nobody_where_the_last_one_cannot_be_seen(self) -> None:
        story = mute()
        assert story.incident().kind == "unknown"
        assert story.culprits() == ()
        assert "py-spy may not look (ptrace): allow it by" in story.incident().summary

    def test_one_of_many_whose_calls_follow_one_another(self) -> None:
        story = one_of_many()
        assert story.incident().kind == "actor-stuck"
        assert [one.actor for one in story.culprits()] == ["Rollout 0"]

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

    def test_one_whose_thread_keeps_the_gil(self) -> None:
        story = thread_spins()
        incident, (culprit,) = story.incident(), story.culprits()
        assert (incident.kind, culprit.method) == ("actor-stuck", "Rollout.generate")
        assert incident.confirmed_at is not None
        assert incident.confirmed_at - ray_story.START - WARM < 40.0

    def test_one_whose_thread_has_not_run(self) -> None:
        story = thread_stands()
        incident, (culprit,) = story.incident(), story.culprits()
        assert (incident.kind, culprit.method) == ("actor-stuck", "Rollout.generate")
        assert incident.confirmed_at is not None
        assert incident.confirmed_at - ray_story.START - WARM < 40.0

    def test_one_whose_thread_goes_on_in_the_end_no_longer(self) -> None:
        incident = thread_stands_beside_others(seconds=60).incident()
        assert incident.confirmed_at is not None
        assert incident.resolved_at is not None
        assert incident.resolved_at - ray_story.START - WARM < 60.0 + 50.0

    def test_a_task_without_room_soon_and_one_without_a_worker_later(self) -> None:
        story = no_worker(60, 0.5)
        assert story.incident().kind == "pending"
        assert "nothing in the cluster has a node with 1 CPU free" in story.incident().summary
        story = no_worker(180)
        assert story.incident().kind == "pending"
        assert story.incident().summary == (
            "Ray starts no worker for score, although a node has room for it; 1 process waits"
        )

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

    def test_one_of_two_jobs(self) -> None:
        story = two_jobs()
        assert story.incident().job == "train_rl-2"
        assert [one.pid for one in story.culprits()] == [10]
        states = {job.job: job.state for job in story.engine.status(story.now)[2]}
        assert states == {"train_rl-2": "hung", "train_rl-3": "healthy"}


class TestRanks:
    def test_one_in_a_circle_is_told_of_at_once(self) -> None:
        story = circle_with_a_rank()
        incident = story.incident()
        assert (incident.kind, incident.job) == ("call-deadlock", "train_rl-2")
        assert sorted(one.actor for one in story.culprits()) == ["Rollout 0", "Trainer 0"]
        assert incident.confirmed_at is not None
        assert incident.confirmed_at - ray_story.START - WARM < 25.0

    def test_wait_for_a_rollout(self) -> None:
        story = ranks_wait()
        assert story.incident().kind == "actor-stuck", "and their own job has no incident"
        assert [one.actor for one in story.culprits()] == ["Rollout 0"]
        assert story.chain() == [
            ("driver", "Trainer.update at Trainer 0", "ray.get"),
            ("Trainer.update at Trainer 0", "Rollout.generate at Rollout 0", "ray.get"),
        ]

    def test_a_stuck_one_is_told_of_by_its_own_case(self) -> None:
        story = rank_stuck()
        incident, (culprit,) = story.incident(), story.culprits()
        assert (incident.job, incident.kind) == ("train_rl-2.Trainer", "host-stuck")
        assert (culprit.rank, culprit.role, culprit.actor) == (1, "Trainer", "Trainer 1")
        assert culprit.method == "Trainer.update"
        assert story.chain() == [("driver", "Trainer.update at Trainer 1", "ray.get")]

    def test_one_that_was_hardly_seen_to_work_is_told_of_once(self) -> None:
        """Their calls show that they train before their own job does: they poll their devices."""
        main, rollout = driver(), actors("Rollout", 1, 10)
        trainers = actors("Trainer", 2, 50, ranks=True)
        story = RayStory([main, *rollout, *trainers])

        def poll() -> None:
            story.iterate()
            for one in trainers:
                one.worked += one.title == "Trainer.update"

        story.run(WARM - 4, poll)
        story.train(4)
        rollout[0].rests(story.now)
        story.drives(main)
        for trainer, stack in zip(trainers, (REDUCES, SLEEPS), strict=True):
            trainer.begins("update", story.now, stack)
            story.call(main, trainer, "update")
        story.run(300)
        assert [(one.pid, one.rank, one.actor) for one in story.culprits()] == [
            (51, 1, "Trainer 1")
        ]

    def test_all_in_one_collective(self) -> None:
        story = all_reduce()
        incident = story.incident()
        assert (incident.job, incident.kind) == ("train_rl-2.Trainer", "unknown")
        assert story.culprits() == ()

    @pytest.mark.parametrize("stack", [REDUCES, SLEEPS], ids=["reduces", "sleeps"])
    def test_are_judged_without_a_look(self, stack: object) -> None:
        story, main, _, trainers = with_ranks(answers=False)
        for trainer in trainers:
            trainer.begins("update", story.now, REDUCES)
            story.call(main, trainer, "update")
        trainers[1].stack = stack  # type: ignore[assignment]
        story.run(200)
        assert story.looks == 0
        assert story.incident().job == "train_rl-2.Trainer"
        assert [one.rank for one in story.culprits()] == ([1] if stack is SLEEPS else [])


def test_only_a_replica_is_of_a_deployment() -> None:
    assert deployment_of("ServeReplica:app:Model") == "serve-app-Model"
    assert deployment_of("ServeController") == ""


class TestOver:
    @pytest.mark.parametrize("play", [asleep, circle, stopped, pending, blocked])
    def test_what_goes_on_again(self, play: Callable[[], RayStory]) -> None:
        story = play()
        story.groups = ()
        story.tell_table()
        story.drives(story.processes[0])
        for one in story.processes:
            one.state, one.stack = "S", ray_story.RESTS if one.kind else GETS
        story.train(60)
        assert story.incident().state == "resolved"
        assert story.engine.status(story.now)[0] == "healthy"
        looks = story.looks
        story.train(60)
        assert story.looks - looks <= 1, "what is over is not looked at for ever"

    def test_a_driver_that_ends(self) -> None:
        story = asleep()
        story.processes = []
        story.tell_table()
        story.run(90)
        assert story.incident().state == "resolved"
        assert story.engine.status(story.now)[2] == ()


class TestNoIncident:
    def test_a_coroutine_that_awaits_what_another_may_bring(self) -> None:
        assert awaits_another().engine.incidents(everything=True) == ()

    @pytest.mark.parametrize(("share", "longest"), [(0.7, 0.5), (1.0, 20.0)])
    def test_a_thread_that_computes_for_long_or_rests_between(
        self, share: float, longest: float
    ) -> None:
        story = thread_spins(share=share, longest=longest)
        assert story.engine.incidents(everything=True) == ()

    def test_a_task_that_has_room_and_waits_for_its_worker_to_start(self) -> None:
        assert no_worker().engine.incidents(everything=True) == ()

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
            lambda: served(awaited=False),
        ],
        ids=["small-steps", "others-took-as-long", "from-outside"],
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

    def test_calls_that_follow_one_another(self) -> None:
        story = asynchronous()
        assert story.engine.incidents(everything=True) == ()
        assert story.engine.status(story.now)[0] == "healthy"

    def test_a_long_generation(self) -> None:
        story, main, (first, _) = rollouts()
        first.begins("generate", story.now, COMPUTES)
        first.goes_on = True
        story.call(main, first, "generate")
        story.run(900, lambda: first.works(story.now))
        assert story.engine.incidents(everything=True) == ()

    def test_a_long_generation_without_a_rest(self) -> None:
        """It is seen in several functions."""
        story, main, (first, _) = rollouts()
        first.spins("generate", story.now)
        first.goes_on = True
        story.call(main, first, "generate")
        story.run(900, lambda: first.works(story.now))
        assert story.engine.incidents(everything=True) == ()

    def test_a_long_loop_that_rests_now_and_then(self) -> None:
        story, main, (first, _) = rollouts()
        first.begins("generate", story.now, COMPUTES)
        first.goes_round = True
        story.call(main, first, "generate")

        def work() -> None:
            first.works(story.now)
            first.busy_since = story.now - story.now % 10.0

        story.run(900, work)
        assert story.engine.incidents(everything=True) == ()

    def test_a_checkpoint_that_is_written_at_one_line(self) -> None:
        story, main, (first, _) = rollouts()
        place = "save_checkpoint (trainer.py:70)"
        first.spins("generate", story.now, msgspec.structs.replace(COMPUTES, signature=(place,)))
        story.call(main, first, "generate")
        story.run(300, lambda: first.works(story.now))
        assert story.engine.incidents(everything=True) == ()

    def test_a_call_that_computes_ten_times_as_long_as_others_before_it(self) -> None:
        story, main, (first, _) = rollouts()
        first.spins("generate", story.now)
        story.ended = {"Rollout.generate": EndedCalls(count=15, longest=10.0)}
        story.call(main, first, "generate")
        story.run(100, lambda: first.works(story.now))
        assert story.engine.incidents(everything=True) == ()

    def test_a_large_file_that_is_written(self) -> None:
        story, main, (first, _) = rollouts()
        first.begins("save", story.now, WRITES)
        first.state = "D"
        story.call(main, first, "save")
        story.run(8, lambda: first.works(story.now))
        assert story.engine.incidents(everything=True) == ()

    def test_a_notebook_that_nobody_uses(self) -> None:
        main, workers = driver(), actors("Rollout", 2, 10)
        story = RayStory([main, *workers])
        story.train(20)
        for one in workers:
            one.rests(story.now)
        main.stack = ray_story.RESTS
        story.run(3600)
        assert story.engine.incidents(everything=True) == ()
        assert story.engine.status(story.now)[0] == "healthy"

    def test_actors_that_idle_while_the_driver_computes(self) -> None:
        story, main, _ = rollouts()
        main.stack, main.goes_on = COMPUTES, True
        story.run(600, lambda: main.works(story.now))
        assert story.engine.incidents(everything=True) == ()
        state, sentence, _ = story.engine.status(story.now)
        assert state == "slow"
        assert "has nothing to do until it is called by driver → which goes on" in sentence

    @pytest.mark.parametrize("activity", ["network-wait", "sleep", "unknown"])
    def test_a_driver_that_polls_for_work(self, activity: Activity) -> None:
        story, main, _ = rollouts()
        main.stack = msgspec.structs.replace(SLEEPS, activity=activity, active=False)
        main.goes_on = True
        story.run(600)
        assert story.engine.incidents(everything=True) == ()
        assert story.engine.status(story.now)[0] == "healthy"

    def test_an_actor_that_polls(self) -> None:
        main, (poller,) = driver(), actors("Poller", 1, 10)
        story = RayStory([main, poller])
        story.drives(main)
        poller.begins("run", story.now, SLEEPS)
        story.call(main, poller, "run")

        def poll() -> None:
            if int(story.now) % 40 == 0:
                poller.moved_at = story.now

        story.run(600, poll)
        assert story.engine.incidents(everything=True) == ()
        state, sentence, _ = story.engine.status(story.now)
        assert state == "unknown"
        assert sentence.startswith("train_rl-2 waits: driver waits ")


class TestUsual:
    def test_a_wait_as_long_as_others_before_it(self) -> None:
        """Rollouts that stand still for a minute in each call may stand for two, not for five."""
        story, main, (first, _) = rollouts()
        for _ in range(4):
            first.begins("wait", story.now, SLEEPS)
            first.moved_at = story.now
            story.run(60)
            first.rests(story.now)
            story.run(2)
        told = len(story.engine.incidents())
        first.begins("wait", story.now, SLEEPS)
        story.call(main, first, "wait")
        begun = story.now
        story.run(150)
        assert len(story.engine.incidents()) == told
        story.run(120)
        last = story.engine.incidents()[-1]
        assert len(story.engine.incidents()) == told + 1
        assert last.confirmed_at is not None
        assert 180.0 <= last.confirmed_at - begun <= 190.0

    def test_calls_too_short_to_be_seen_are_known_by_what_ray_tells(self) -> None:
        main, (first,) = driver(), actors("Rollout", 1, 10)
        story = RayStory([main, first])
        story.ended = {"Rollout.score": EndedCalls(count=50, longest=20.0)}
        story.drives(main)
        first.begins("score", story.now, SLEEPS)
        story.call(main, first, "score")
        begun = story.now
        story.run(120)
        confirmed = story.incident().confirmed_at
        assert confirmed is not None
        assert 60.0 <= confirmed - begun <= 70.0, "three times the longest of them"


STORIES = (
    asleep, spins, loops, driver_spins, driver_asleep, circle,
    circle_with_a_rank, stopped, blocked, pending,
    first_constructor, mute, ranks_wait, rank_stuck, all_reduce, one_of_many, two_jobs,
    asked_meanwhile, awaits, event_loop_rests, in_thread, thread_spins, thread_stands,
    thread_stands_beside_others, group_full, library_function, served,
)  # fmt: skip


@pytest.mark.parametrize("play", STORIES, ids=lambda play: play.__name__)
def test_a_restart_on_the_way_changes_nothing(play: Callable[[], RayStory]) -> None:
    events = play().log
    goes_on_alike(events, set(range(0, len(events), 7)))
