"""The last hour of what ranks and roles did."""

from __future__ import annotations

import gzip

import msgspec
import pytest

from ray_sentinel.engine.last_hour.lanes import (
    MOST_LANES,
    MOST_ODD,
    MOST_OF_LANE,
    MOST_SINGLE,
    MOST_STRETCHES,
    Lanes,
)
from ray_sentinel.engine.last_hour.lanes_report import lanes_report
from ray_sentinel.model.lanes import JobLanes
from ray_sentinel.report.trace_events import trace_of
from tests.support.engine_sim import Sim
from tests.support.ray_story import RayStory, actors, driver
from tests.support.restarts import restarted


def lanes_of(sim: Sim) -> JobLanes:
    (job,) = lanes_report(sim.engine.view, sim.now).jobs
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
    (job,) = [j for j in lanes_report(story.engine.view, story.now).jobs if j.of == "roles"]
    assert {"Rollout", "Trainer"} <= {lane.name for lane in job.lanes}
    assert "Rollout.generate" in job.kinds
    assert all(length >= 0 for lane in job.lanes for _, _, length in lane.stretches)


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


def test_it_outlives_the_coordinator() -> None:
    sim = Sim(world=4)
    sim.run(60)
    before = lanes_report(sim.engine.view, sim.now)
    assert lanes_report(restarted(sim.engine).view, sim.now) == before


def test_of_many_ranks_an_answer_is_small() -> None:
    sim = Sim(world=1024, nodes=128)
    sim.run(8)
    report = lanes_report(sim.engine.view, sim.now)
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
    report = lanes_report(sim.engine.view, sim.now)
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
