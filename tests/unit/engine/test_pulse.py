"""The last hour of steps and calls, as the page draws it."""

from __future__ import annotations

import math

import msgspec
import pytest

from ray_sentinel.config import Config
from ray_sentinel.engine.cluster import ClusterView
from ray_sentinel.engine.last_hour.pulse import (
    MOST_BYTES,
    MOST_LANES,
    MOST_PHASES,
    PLACES,
    SHOWN_LANES,
    WIDTH,
    Pulse,
)
from ray_sentinel.engine.last_hour.pulse_report import PulsePicture
from ray_sentinel.engine.ray.job_view import RayJobView
from ray_sentinel.model.alert import Alert
from ray_sentinel.model.metrics import Event
from ray_sentinel.model.ray_calls import RayDriver
from tests.support.engine_sim import Sim
from tests.support.ray_story import RayStory, actors, driver
from tests.support.restarts import restarted


def test_steps_are_counted_once_and_summed_up_by_ten_seconds() -> None:
    sim = Sim(world=8, nodes=2)
    sim.run(120)
    report = PulsePicture(sim.engine.view, sim.now, ()).report()
    (job,) = report.jobs
    (lane,) = job.lanes
    assert (job.counts, lane.name, report.places, report.width) == ("steps", "", PLACES, WIDTH)
    assert report.begin <= sim.now - 3590 <= report.begin + 2 * WIDTH
    steps = sum(count for _, count, _, _ in lane.points)
    assert 120 / sim.step_seconds - 12 <= steps <= 120 / sim.step_seconds
    assert all(mean == longest == sim.step_seconds for *_, mean, longest in lane.points)
    places = [place for place, *_ in lane.points]
    assert places == sorted(set(places))
    assert places[-1] in (PLACES - 2, PLACES - 1)


def test_a_long_step_is_the_longest_of_its_place() -> None:
    pulse = Pulse()
    for number in range(20):
        pulse.add("", 0.5, 1000.0 + 0.5 * number)
    pulse.add("", 9.0, 1009.9)
    (lane,) = pulse.shown_lanes(100)
    assert lane.points == ((0, 21, 0.9048, 9.0),)


def test_what_is_older_than_an_hour_is_forgotten_whatever_the_pace() -> None:
    pulse = Pulse()
    for number in range(40_000):
        pulse.add("", 1.0, float(number))
    assert len(pulse.lanes[""]) <= PLACES + 1
    first = int(39_999 // WIDTH) - PLACES + 1
    (lane,) = pulse.shown_lanes(first)
    assert [place for place, *_ in lane.points] == list(range(PLACES))


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -1.0])
def test_what_is_no_duration_is_left_out(seconds: float) -> None:
    pulse = Pulse()
    pulse.add("", seconds, 10.0)
    assert not pulse.lanes


def test_of_many_methods_those_are_shown_that_take_most_of_the_time() -> None:
    pulse = Pulse()
    for number in range(100):
        pulse.add(f"A.m{number:03}", float(number % 7), 100.0 + number)
    assert len(pulse.lanes) == MOST_LANES
    shown = [lane.name for lane in pulse.shown_lanes(0)]
    assert len(shown) == SHOWN_LANES
    assert shown == sorted(shown)
    assert {"A.m097", "A.m090", "A.m083"} < set(shown)


def test_a_phase_that_all_ranks_go_through_is_one() -> None:
    pulse = Pulse()
    for begin in (100.0, 500.0):
        for rank in range(64):
            pulse.note_phase("checkpoint", begin + rank / 100, begin + 20 + rank / 100)
    assert pulse.phases == [("checkpoint", 100.0, 120.63), ("checkpoint", 500.0, 520.63)]
    for number in range(1000):
        pulse.note_phase(f"epoch {number}", 1000.0 + number, 1000.5 + number)
    assert len(pulse.phases) == MOST_PHASES


def test_a_checkpoint_that_lasts_is_shown_as_open() -> None:
    sim = Sim(world=4)
    sim.run(30)
    for rank in sim.ranks:
        rank.phase, rank.phase_since = "checkpoint", sim.now
    sim.run(5)
    (job,) = PulsePicture(sim.engine.view, sim.now, ()).report().jobs
    (phase,) = job.phases
    assert (phase.phase, phase.end) == ("checkpoint", None)
    assert sim.now - 7 <= phase.start <= sim.now
    for rank in sim.ranks:
        rank.phase = ""
    sim.run(5)
    (job,) = PulsePicture(sim.engine.view, sim.now, ()).report().jobs
    (phase,) = job.phases
    assert phase.end is not None
    assert 3 <= phase.end - phase.start <= 8


def test_a_job_of_actors_has_a_lane_for_each_method() -> None:
    story = RayStory([driver(), *actors("Rollout", 2, 10), *actors("Trainer", 1, 20)])
    story.train(120)
    jobs = {job.job: job for job in PulsePicture(story.engine.view, story.now, ()).report().jobs}
    (job,) = [one for one in jobs.values() if one.counts == "calls"]
    names = [lane.name for lane in job.lanes]
    assert "Rollout.generate" in names
    assert not any(name.endswith("__init__") for name in names)
    assert all(longest > 0 for lane in job.lanes for *_, longest in lane.points)


def test_it_outlives_the_coordinator() -> None:
    sim = Sim(world=4)
    sim.run(60)
    before = PulsePicture(sim.engine.view, sim.now, ()).report()
    assert PulsePicture(restarted(sim.engine).view, sim.now, ()).report() == before


def test_what_is_made_of_a_picture_is_of_its_moment() -> None:
    sim = Sim(world=4, nodes=2)
    sim.run(65)
    at, picture = sim.now, PulsePicture(sim.engine.view, sim.now, ())
    told = PulsePicture(sim.engine.view, at, ()).report()
    link = Event(time=at, kind="kernel.link_down", message="mlx5_0: Link DOWN", severity="warning")
    sim.report(sim.nodes[0].id, (link,))
    for rank in sim.ranks:
        rank.phase, rank.phase_since = "checkpoint", sim.now
    sim.run(30)
    assert picture.report() == told
    (before,), (after,) = told.jobs, PulsePicture(sim.engine.view, at, ()).report().jobs
    assert before.lanes != after.lanes
    assert (before.phases, before.marks) == ((), ())
    assert after.phases
    assert after.marks


def test_what_is_made_of_a_picture_of_actors_is_of_its_moment() -> None:
    story = RayStory([driver(), *actors("Rollout", 2, 10), *actors("Trainer", 1, 20)])
    story.train(65)
    at, picture = story.now, PulsePicture(story.engine.view, story.now, ())
    told = PulsePicture(story.engine.view, at, ()).report()
    story.train(30)
    assert picture.report() == told != PulsePicture(story.engine.view, at, ()).report()


def test_what_kernels_say_of_a_jobs_hosts_is_marked_once_in_its_place() -> None:
    sim = Sim(world=4, nodes=2)
    sim.run(30)
    xid = "NVRM: Xid (PCI:0000:41:00): 94, pid=7, Contained ECC error"
    told = [
        ("kernel.xid", xid, "critical", {"xid": "94", "gpu": "3"}),
        ("kernel.link_up", "mlx5_0: Link UP", "info", {}),
        ("kernel.link_down", "mlx5_0: Link DOWN", "warning", {}),
        ("log.error", "all is lost", "error", {}),
        *[("kernel.oom", f"Out of memory: {pid} {200 * 'x'}", "warning", {}) for pid in range(9)],
    ]
    events = [
        Event(time=sim.now - 1.0, kind=kind, message=text, severity=severity, attributes=facts)
        for kind, text, severity, facts in told
    ]
    sim.report(sim.nodes[0].id, tuple(events))
    down = Alert(
        rule="net.port_down",
        severity="critical",
        text="the port has gone down",
        kind="network",
        host=sim.nodes[1].host,
        port="mlx5_1/1",
        since=sim.now - 30,
    )
    hot = msgspec.structs.replace(down, kind="unknown", port="", gpu="0")
    elsewhere = msgspec.structs.replace(down, host="elsewhere")
    (job,) = PulsePicture(sim.engine.view, sim.now, (down, hot, elsewhere)).report().jobs
    found = {(mark.about, mark.host): (mark.text, mark.count) for mark in job.marks}
    assert len(job.marks) == len(found) == 4
    assert found["gpu", sim.nodes[0].host] == (f"GPU 3 Xid 94: {xid}"[:120], 1)
    assert found["network", sim.nodes[0].host] == ("mlx5_0: Link DOWN", 1)
    assert found["network", sim.nodes[1].host] == ("mlx5_1/1: the port has gone down", 1)
    text, count = found["host", sim.nodes[0].host]
    assert (len(text), count) == (120, 9)
    assert [mark.at for mark in job.marks] == sorted(mark.at for mark in job.marks)


def test_its_answer_is_small() -> None:
    pulse = Pulse()
    for number in range(36_000):
        pulse.add("Trainer.step", 0.1234567 * (number % 13), number / 10)
    assert len(msgspec.json.encode(pulse.shown_lanes(0))) < 12_000


def busy(ray_job: str, ended_at: float | None, changed_at: float) -> RayJobView:
    """A Ray job all of whose lanes are full."""
    job = RayJobView(
        id=ray_job,
        driver=RayDriver(job=ray_job, address="10.0.0.1", pid=7),
        first_seen=0.0,
        changed_at=changed_at,
        ended_at=ended_at,
    )
    for lane in range(MOST_LANES):
        for place in range(PLACES):
            job.pulse.add(f"Worker.method_{lane:02}", 1.2345, place * WIDTH)
    return job


def test_hundreds_of_jobs_of_many_methods_stay_within_bytes_and_the_first_to_end_go_first() -> None:
    view = ClusterView().bind(Config())
    for number in range(30):
        ended = 5000.0 - number if number < 20 else None
        view.ray.jobs[f"{number:02}"] = busy(f"{number:02}", ended, 4000.0 - number)
    view.advance(5001.0)
    whole = {key for key, job in view.ray.jobs.items() if job.pulse.lanes}
    assert len(whole) == 30
    for number in range(30, 50):
        view.ray.jobs[f"{number}"] = busy(f"{number}", None, 4000.0 - number)
    view.advance(5001.0)
    packed = len(msgspec.msgpack.encode([job.pulse for job in view.ray.jobs.values()]))
    assert 0.7 * MOST_BYTES < packed <= MOST_BYTES
    gone = {int(key) for key, job in view.ray.jobs.items() if not job.pulse.lanes}
    assert gone == set(range(20 - len(gone), 20))
    for number in range(50, 600):
        view.ray.jobs[f"{number}"] = RayJobView(
            id=str(number),
            driver=RayDriver(job=str(number), address="10.0.0.1", pid=7),
            first_seen=0.0,
            changed_at=4000.0 - number,
            pulse=Pulse(lanes=view.ray.jobs["20"].pulse.lanes),
        )
    view.advance(5002.0)
    kept = [job for job in view.ray.jobs.values() if job.pulse.lanes]
    assert len(msgspec.msgpack.encode([job.pulse for job in kept])) <= MOST_BYTES
    assert min(int(job.id) for job in kept) == 20
