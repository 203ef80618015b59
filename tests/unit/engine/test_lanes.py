"""The last hour of what ranks and roles did."""

from __future__ import annotations

import gzip
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ray_sentinel.config import HangConfig
from ray_sentinel.engine.events import Tick
from ray_sentinel.engine.jobs import JobView
from ray_sentinel.engine.last_hour.lanes import (
    HOUR,
    MOST_LANES,
    MOST_NAME,
    MOST_ODD,
    MOST_OF_LANE,
    MOST_SINGLE,
    MOST_STRETCHES,
    MOST_TOGETHER,
    Lanes,
)
from ray_sentinel.engine.last_hour.lanes_report import LanesPicture
from ray_sentinel.engine.phases import PhaseBook
from ray_sentinel.model.last_hour import JobLanes
from ray_sentinel.report.trace_events import trace_of
from tests.support.engine_sim import Sim
from tests.support.ray_story import RayStory, actors, driver
from tests.support.restarts import goes_on_alike, restarted


def lanes_of(sim: Sim) -> JobLanes:
    (job,) = LanesPicture(sim.engine.view, sim.now).report().jobs
    return job


def kinds_in(job: JobLanes, name: str) -> list[str]:
    (lane,) = [lane for lane in job.lanes if lane.name == name]
    return [job.kinds[kind] for kind, _, _ in lane.stretches]


def test_each_rank_has_a_lane_with_its_phases() -> None:
    sim = Sim(world=8, nodes=2)
    sim.run(40)
    for rank in sim.ranks:
        rank.phase, rank.phase_since = "checkpoint", sim.now
    sim.run(20)
    for rank in sim.ranks:
        rank.phase = ""
    sim.run(20)
    job = lanes_of(sim)
    assert [lane.name for lane in job.lanes] == [f"rank {number}" for number in range(8)]
    assert kinds_in(job, "rank 3")[-3:] == ["step", "checkpoint", "step"]
    (checkpoint,) = [s for s in job.lanes[3].stretches if job.kinds[s[0]] == "checkpoint"]
    assert 160 <= checkpoint[2] <= 240


def test_a_large_job_has_lanes_of_nodes_and_of_the_ranks_that_differ() -> None:
    sim = Sim(world=256, nodes=128)
    sim.run(20)
    for rank in sim.ranks[7:9]:
        rank.phase, rank.phase_since = "dataset", sim.now
    sim.run(10)
    job = lanes_of(sim)
    names = [lane.name for lane in job.lanes]
    assert names[:2] == ["rank 7", "rank 8"]
    assert len(names) == MOST_SINGLE + 2
    assert kinds_in(job, "rank 7")[-1] == "dataset"


def test_a_lost_node_renames_no_other_lane() -> None:
    sim = Sim(world=256, nodes=128)
    sim.run(20)
    before = [lane.name for lane in lanes_of(sim).lanes]
    assert (before[0], before[-1]) == ("ranks 0 to 3", "ranks 252 to 255")
    sim.dead_nodes.add("n5")
    for rank in sim.ranks[10:12]:
        rank.exited = True
    sim.run(20)
    assert set(before) <= {lane.name for lane in lanes_of(sim).lanes}


def test_time_in_which_all_ranks_were_gone_is_empty() -> None:
    lanes, sim = Lanes(), Sim(world=2)
    sim.run(4)
    (view,) = sim.engine.view.jobs.values()
    for at in (0.0, 2.0, 4.0, 64.0, 66.0):
        lanes.record(view.live, 1000.0, "step", sim.now + at)
    _, drawn = lanes.drawn(sim.now, {})
    assert [lane.stretches for lane in drawn] == [((0, 0, 40), (0, 640, 20))] * 2


def test_hundreds_of_ranks_that_flap_keep_to_the_bounds() -> None:
    lanes, sim = Lanes(), Sim(world=192, nodes=96)
    sim.run(3)
    (job,) = sim.engine.view.jobs.values()
    for turn in range(1, 600):
        for view in job.live:
            flaps = (turn * view.rank.id.rank + turn // 3) % 3 == 0
            view.state_since = {"stopped": 0.0} if flaps else {}
        lanes.record(job.live, 1.0, "step", sim.now + 2.0 * turn)
        assert len(lanes.lanes) <= MOST_LANES
        assert len(lanes.odd) <= MOST_ODD
        assert sum(map(len, lanes.lanes.values())) <= MOST_STRETCHES
    assert len(msgspec.msgpack.encode(lanes)) < 350_000


def test_long_names_are_cut() -> None:
    lanes = Lanes()
    lanes.call("R" * 500, 0.0, 1.0)
    lanes.call("Rollout." + "m" * 500, 0.0, 1.0)
    kinds, drawn = lanes.drawn(0.0, {})
    assert sorted(map(len, kinds)) == [MOST_NAME, MOST_NAME]
    assert max(len(lane.name) for lane in drawn) <= MOST_NAME


PHASES = ("", "train", "checkpoint", "<b>\x1b", "x" * 200)
TURNS = st.lists(
    st.tuples(
        st.sampled_from([0.5, 2.0, 7.0, 40.0]), st.integers(0, 3), st.sampled_from(PHASES),
        st.sampled_from(["S", "T"]), st.booleans(),
    ),
    min_size=1, max_size=12,
)  # fmt: skip


@settings(deadline=None, max_examples=20)
@given(TURNS, st.data())
def test_after_any_restart_lanes_are_as_if_there_had_been_none(
    turns: Sequence[tuple[float, int, str, str, bool]], data: st.DataObject
) -> None:
    """Neither is a snapshot changed by what happens while it is packed, nor a picture by what
    happens while its report is made."""
    sim = Sim(world=4, nodes=2)
    sim.run(6)
    pictures = []
    for seconds, number, phase, state, renamed in turns:
        rank = sim.rank(number)
        rank.phase, rank.phase_since, rank.state = phase, sim.now, state
        rank.job = "renamed" if renamed else "job"
        sim.run(seconds)
        told = LanesPicture(sim.engine.view, sim.now).report()
        assert LanesPicture(restarted(sim.engine).view, sim.now).report() == told
        pictures.append((LanesPicture(sim.engine.view, sim.now), told))
        for job in told.jobs:
            for lane in job.lanes:
                ends = [begin + length for _, begin, length in lane.stretches]
                begins = [begin for _, begin, _ in lane.stretches]
                assert (begins, ends) == (sorted(begins), sorted(ends))
                assert 0 <= begins[0] <= ends[-1] <= 10 * HOUR
    assert all(picture.report() == told for picture, told in pictures)
    goes_on_alike(sim.log, data.draw(st.sets(st.integers(0, len(sim.log) - 1), max_size=4)))


def test_what_a_clock_that_was_set_back_left_in_the_future_is_not_drawn() -> None:
    lanes = Lanes()
    lanes.call("Rollout.generate", HOUR - 1.0, HOUR + 9.0)
    lanes.call("Trainer.update", HOUR + 50.0, HOUR + 60.0)
    kinds, drawn = lanes.drawn(0.0, {})
    assert kinds == ("Rollout.generate",)
    assert drawn[0].stretches == ((0, 35_990, 10),)


def test_calls_of_a_role_that_overlap_are_one_and_bubbles_stay() -> None:
    lanes = Lanes()
    for turn in range(3):
        for actor in range(4):
            begin = 100.0 + 20 * turn + actor / 10
            lanes.call("Rollout.generate", begin, begin + 5)
        lanes.call("Trainer.update", 106.0 + 20 * turn, 112.0 + 20 * turn)
    kinds, drawn = lanes.drawn(100.0, {})
    assert kinds == ("Rollout.generate", "Trainer.update")
    assert drawn[0].stretches == ((0, 0, 53), (0, 200, 53), (0, 400, 53))
    assert drawn[1].stretches == ((1, 60, 60), (1, 260, 60), (1, 460, 60))


def test_a_job_of_actors_has_a_lane_for_each_role() -> None:
    story = RayStory([driver(), *actors("Rollout", 2, 10), *actors("Trainer", 1, 20)])
    story.train(120)
    (job,) = [
        j for j in LanesPicture(story.engine.view, story.now).report().jobs if j.of == "roles"
    ]
    assert {"Rollout", "Trainer"} <= {lane.name for lane in job.lanes}
    assert "Rollout.generate" in job.kinds
    assert all(length >= 0 for lane in job.lanes for _, _, length in lane.stretches)


def test_what_is_made_of_a_picture_of_roles_is_of_its_moment() -> None:
    story = RayStory([driver(), *actors("Rollout", 2, 10), *actors("Trainer", 1, 20)])
    story.train(63)
    at, picture = story.now, LanesPicture(story.engine.view, story.now)
    told = LanesPicture(story.engine.view, at).report()
    story.train(30)
    assert picture.report() == told != LanesPicture(story.engine.view, at).report()


@pytest.mark.parametrize("roles", [1, MOST_LANES + 20])
def test_what_is_kept_is_bounded_whatever_the_pace(roles: int) -> None:
    lanes = Lanes()
    for number in range(40_000):
        lanes.call(f"Role{number % roles}.m{number % 7}", number / 20, number / 20 + 0.02)
    assert len(lanes.lanes) <= MOST_LANES
    assert sum(map(len, lanes.lanes.values())) <= MOST_STRETCHES
    assert max(map(len, lanes.lanes.values())) <= MOST_OF_LANE
    assert len(msgspec.msgpack.encode(lanes)) < 350_000


def test_lanes_that_had_more_room_make_place_for_others() -> None:
    lanes = Lanes()
    for role in range(MOST_LANES):
        for number in range(1200):
            lanes.call(f"Role{role}.step", number, number + 0.5)
        assert sum(map(len, lanes.lanes.values())) <= MOST_STRETCHES


def test_lanes_of_many_jobs_are_bounded_together() -> None:
    sim = RayStory([driver(), *actors("Rollout", 2, 10)])
    sim.train(60)
    known = sim.engine.view.jobs
    full = Lanes()
    for number in range(MOST_STRETCHES):
        full.call(f"Role{number % 16}.m", number / 4, number / 4 + 0.5)
    for number in range(30):
        lanes = msgspec.msgpack.decode(msgspec.msgpack.encode(full), type=Lanes)
        known["old", number] = JobView(
            number=1000 + number, job="old", attempt=number, first_seen=0.0,
            last_moved=sim.now - 99, ended_at=sim.now - 30 + number, lanes=lanes,
        ).bind(HangConfig(), PhaseBook())  # fmt: skip
    sim.engine.handle(Tick(time=sim.now + 1))
    left = [number for number in range(30) if known["old", number].lanes.size]
    assert 0 < MOST_TOGETHER - sum(job.lanes.size for job in known.values()) <= MOST_STRETCHES
    assert left == list(range(left[0], 30)), "those that ended first have gone"


def test_it_outlives_the_coordinator() -> None:
    sim = Sim(world=4)
    sim.run(60)
    before = LanesPicture(sim.engine.view, sim.now).report()
    assert LanesPicture(restarted(sim.engine).view, sim.now).report() == before


def test_of_many_ranks_an_answer_is_small() -> None:
    sim = Sim(world=1024, nodes=128)
    sim.run(8)
    report = LanesPicture(sim.engine.view, sim.now).report()
    assert len(report.jobs[0].lanes) <= MOST_SINGLE + MOST_ODD
    assert len(msgspec.json.encode(report)) < 20_000


def test_the_largest_answer_is_small_when_packed() -> None:
    lanes = Lanes()
    for number in range(20_000):
        role, at = f"Role{number % MOST_LANES}", number / 8 + (number * number % 97) / 500
        lanes.call(f"{role}.m{number % 3}", at, at + (number % 11) / 90)
    body = msgspec.json.encode(lanes.drawn(0.0, {}))
    assert len(gzip.compress(body, 4)) < 50_000


def test_a_trace_is_what_perfetto_reads() -> None:
    sim = Sim(world=4)
    sim.run(40)
    report = LanesPicture(sim.engine.view, sim.now).report()
    trace = msgspec.json.decode(msgspec.json.encode(trace_of(report)))
    named = {
        e["tid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"
    }
    assert sorted(named.values()) == [f"rank {number}" for number in range(4)]
    slices = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert {e["tid"] for e in slices} == set(named)
    for event in slices:
        assert {"name", "cat", "pid", "tid", "ts", "dur"} < event.keys()
        assert isinstance(event["ts"], int)
        assert 0 <= event["ts"] <= event["ts"] + event["dur"] <= 3_600_000_000
