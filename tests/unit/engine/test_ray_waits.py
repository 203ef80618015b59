"""What holds Ray jobs up, story by story: who is named, when, and what is no incident."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from ray_sentinel.model.ray_calls import EndedCalls
from ray_sentinel.model.stacks import Activity, StackFact
from tests.support import ray_story
from tests.support.ray_stories import stories
from tests.support.ray_stories.call_streams import asynchronous, compiled_graph, one_of_many
from tests.support.ray_stories.jobs import WARM, rollouts
from tests.support.ray_stories.placement import pending
from tests.support.ray_stories.processes import (
    asleep,
    asleep_below_threads,
    blocked,
    circle,
    detached,
    driver_asleep,
    driver_spins,
    ends_unnoticed,
    first_constructor,
    loops,
    spins,
    stopped,
    two_jobs,
)
from tests.support.ray_stories.ranks import (
    mute,
)
from tests.support.ray_story import (
    COMPUTES,
    GETS,
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
        told = story.engine.status(story.now)
        state, sentence = told.state, told.verdict
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

    def test_a_rollout_that_spins_while_its_agent_could_not_look_for_a_moment(self) -> None:
        """On a crowded machine an agent may get no CPU for seconds, and then not know whether a
        process has rested meanwhile."""
        story, main, (first, _) = rollouts()
        first.spins("generate", story.now)
        story.call(main, first, "generate")
        begun = story.now

        def work() -> None:
            first.works(story.now)
            if first.busy_since == begun and story.now > begun + 12.0:
                first.busy_since = story.now

        story.run(60, work)
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
        assert "driver: " + why in story.engine.status(story.now).jobs[0].waits

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
        assert story.engine.status(story.now).state == "hung"

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

    def test_one_of_two_jobs(self) -> None:
        story = two_jobs()
        assert story.incident().job == "train_rl-2"
        assert [one.pid for one in story.culprits()] == [10]
        states = {job.job: job.state for job in story.engine.status(story.now).jobs}
        assert states == {"train_rl-2": "hung", "train_rl-3": "healthy"}


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
        assert story.engine.status(story.now).state == "healthy"
        looks = story.looks
        story.train(60)
        assert story.looks - looks <= 1, "what is over is not looked at for ever"

    def test_a_driver_that_ends(self) -> None:
        story = asleep()
        story.processes = []
        story.tell_table()
        story.run(90)
        assert story.incident().state == "resolved"
        assert story.engine.status(story.now).jobs == ()


class TestNoIncident:
    def test_calls_that_follow_one_another(self) -> None:
        story = asynchronous()
        assert story.engine.incidents(everything=True) == ()
        assert story.engine.status(story.now).state == "healthy"

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
        assert story.engine.status(story.now).state == "healthy"

    def test_actors_that_idle_while_the_driver_computes(self) -> None:
        story, main, _ = rollouts()
        main.stack, main.goes_on = COMPUTES, True
        story.run(600, lambda: main.works(story.now))
        assert story.engine.incidents(everything=True) == ()
        told = story.engine.status(story.now)
        state, sentence = told.state, told.verdict
        assert state == "slow"
        assert "has nothing to do until it is called by driver → which goes on" in sentence

    @pytest.mark.parametrize("activity", ["network-wait", "sleep", "unknown"])
    def test_a_driver_that_polls_for_work(self, activity: Activity) -> None:
        story, main, _ = rollouts()
        main.stack = msgspec.structs.replace(SLEEPS, activity=activity, active=False)
        main.goes_on = True
        story.run(600)
        assert story.engine.incidents(everything=True) == ()
        assert story.engine.status(story.now).state == "healthy"

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
        told = story.engine.status(story.now)
        state, sentence = told.state, told.verdict
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


@pytest.mark.parametrize("play", stories().values(), ids=stories())
def test_a_restart_on_the_way_changes_nothing(play: Callable[[], RayStory]) -> None:
    events = play().log
    goes_on_alike(events, set(range(0, len(events), 7)))
