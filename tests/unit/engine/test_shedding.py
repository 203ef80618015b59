"""What the engine lets go when memory is short: in its order, and nothing that verdicts need."""

from __future__ import annotations

import msgspec

from ray_sentinel.engine.engine import Engine
from ray_sentinel.engine.events import MemoryShort, SnapshotReceived, Tick
from ray_sentinel.engine.ray.job_view import RayJobView
from ray_sentinel.engine.shedding import LEAST_SERIES
from ray_sentinel.model.identity import Node
from ray_sentinel.model.progress import Snapshot
from ray_sentinel.model.ray_calls import RayDriver
from ray_sentinel.model.samples import SampleBatch
from tests.support.engine_sim import Sim
from tests.support.samples import sampled

HOUR = 1500


def told(engine: Engine, seconds: int, now: float) -> None:
    """A node tells of itself for so long, until ``now``."""
    for number, at in enumerate(range(0, seconds, 5), start=1):
        tell(engine, "n", number, now - seconds + at)


def tell(engine: Engine, name: str, number: int, at: float) -> None:
    """A node tells of itself once."""
    (batch,) = sampled({"hw_load1": float(number)})
    samples: list[SampleBatch] = [
        msgspec.structs.replace(batch, stream=stream, number=number)
        for stream in ("rules", "history")
    ]
    node = Node(id=name, host="h", address="")
    snapshot = Snapshot(node=node, time=at, sequence=number, samples=tuple(samples))
    engine.handle(SnapshotReceived(time=at, snapshot=snapshot))


def short(engine: Engine) -> None:
    engine.handle(MemoryShort(time=engine.now))


def kept(engine: Engine, stream: str) -> float:
    """Seconds of a stream's series."""
    times = engine.view.telemetry.nodes["n"].streams[stream].times  # type: ignore[index]
    return times[-1] - times[0] if times else 0.0


def test_series_that_no_rule_reads_go_first_and_those_of_rules_last_long_enough() -> None:
    engine = Engine()
    told(engine, HOUR, now=10_000.0)
    short(engine)
    assert kept(engine, "history") < 0.6 * HOUR
    assert kept(engine, "rules") == HOUR - 5
    for _ in range(20):
        short(engine)
    assert kept(engine, "history") < 180
    assert LEAST_SERIES - 5 <= kept(engine, "rules") < LEAST_SERIES + 90
    assert list(engine.state.shed) == ["history", "series"]
    assert not engine.view.telemetry.cut, "that is said where they exceed their own bound"
    before = dict(engine.state.shed)
    short(engine)
    assert engine.state.shed == before, "there was nothing to spare"


def test_an_incident_that_is_over_gives_its_stacks_and_an_open_one_does_not() -> None:
    sim = Sim()
    sim.run(60)
    sim.stick(2)
    sim.run(30)
    (incident,) = sim.incidents()
    assert incident.verdict is not None
    assert incident.verdict.stacks
    for _ in range(20):
        short(sim.engine)
    assert sim.incidents() == (incident,)
    sim.rank(2).stuck = False
    sim.begin_step()
    sim.run(10)
    (over,) = sim.incidents()
    assert over.state == "resolved"
    for _ in range(20):
        short(sim.engine)
    (told_now,) = sim.incidents()
    assert told_now.verdict is not None
    assert over.verdict is not None
    assert told_now.verdict == msgspec.structs.replace(over.verdict, stacks=())
    assert sim.engine.state.shed["incidents"] == 1


def test_a_pulse_keeps_its_newer_half() -> None:
    sim = Sim()
    sim.run(900)
    pulse = sim.engine.view.jobs["job", 0].pulse
    before = [place.number for place in pulse.lanes[""]]
    short(sim.engine)
    assert [place.number for place in pulse.lanes[""]] == before[len(before) // 2 :]
    for _ in range(20):
        short(sim.engine)
    rest = pulse.lanes[""]
    assert 280 <= 10 * (rest[-1].number - rest[0].number) <= 320
    sim.run(30)
    assert pulse.lanes[""][-1].number > before[-1], "it goes on"


def test_a_few_series_of_one_node_after_the_other_do_not_keep_the_next_part_waiting() -> None:
    """Nodes that joined one after the other have something to spare at different moments."""
    engine, times = Engine(), 0
    for step in range(100):
        for number in range(min(step + 1, 16)):
            tell(engine, f"n{number}", step + 1, 1000.0 + 5 * step)
        before = dict(engine.state.shed)
        short(engine)
        times += step >= 60 and engine.state.shed != before
    assert 1 <= times <= 5, "of 40, in which each had something to spare twice or three times"


def test_an_incident_without_a_bundle_keeps_its_stacks() -> None:
    sim = Sim()
    sim.run(60)
    sim.stick(2)
    sim.run(30)
    sim.rank(2).stuck = False
    sim.begin_step()
    sim.run(10)
    (over,) = sim.incidents()
    assert over.verdict is not None
    assert over.verdict.stacks
    known = sim.engine.store.incidents
    known[over.id] = msgspec.structs.replace(over, bundle="")
    for _ in range(20):
        short(sim.engine)
    assert known[over.id].verdict == over.verdict, "they are nowhere else"


def test_the_pulse_of_a_job_of_actors_keeps_its_newer_half_too() -> None:
    engine = Engine()
    engine.handle(Tick(time=1000.0))
    driver = RayDriver(job="01000000", address="10.0.0.1", pid=7)
    job = RayJobView(id=driver.job, driver=driver, first_seen=100.0, changed_at=990.0)
    for at in range(100, 1000, 10):
        job.pulse.add("score", 1.0, float(at))
    engine.view.ray.jobs[job.id] = job
    for _ in range(20):
        short(engine)
    assert len(job.pulse.lanes["score"]) <= 31
