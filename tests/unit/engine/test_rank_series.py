"""The series of one rank, from what its node sent and from its own record."""

from __future__ import annotations

import pytest

from ray_sentinel.engine.last_hour.rank_gpus import gpus_of
from ray_sentinel.engine.last_hour.rank_series import find_rank, rank_series
from ray_sentinel.engine.telemetry.series import KEPT_SECONDS, NodeTelemetry, Telemetry
from ray_sentinel.model.identity import Node, ProcessId, Rank, RankId
from ray_sentinel.model.last_hour import RankAsked, RankPlot, RankSeries
from ray_sentinel.model.progress import Snapshot
from tests.support.engine_sim import Sim
from tests.support.samples import sampled

NODE = Node(id="n0", host="host0", address="10.0.0.0")


def told(telemetry: Telemetry, at: float, values: dict[str, float]) -> None:
    telemetry.add(Snapshot(node=NODE, time=at, sequence=1, samples=sampled(values)), at, 0.0)


def asked(rank: int, place: str = "", *, attempt: int = 0) -> RankAsked:
    return RankAsked(job="job", attempt=attempt, rank=rank, place=place)


def series_of(sim: Sim, number: int) -> RankSeries:
    view = sim.engine.view
    rank = find_rank(view, asked(number))
    assert rank is not None
    return rank_series(view, rank, sim.now)


def plot(found: RankSeries, name: str) -> RankPlot:
    (one,) = [one for one in found.plots if one.name == name]
    return one


def test_steps_of_the_record_and_what_the_node_told_of_its_cpus() -> None:
    sim = Sim(world=4, nodes=2)
    sim.run(60)
    for second in range(0, 60, 5):
        idle, used = 3.0 * second, 1.0 * second
        told(sim.engine.view.telemetry, sim.now - 60 + second, {
            'hw_cpu_seconds_total{mode="idle"}': idle, 'hw_cpu_seconds_total{mode="user"}': used,
        })  # fmt: skip
    found = series_of(sim, 1)
    assert found.end - found.begin == KEPT_SECONDS
    steps = plot(found, "time per step")
    assert [value for _, value in steps.points] == pytest.approx([0.5] * len(steps.points))
    assert steps.points[-1][0] == pytest.approx(KEPT_SECONDS, abs=10.0)
    used = plot(found, "CPUs of its node").points
    assert [value for _, value in used] == pytest.approx([0.25] * len(used))


def test_a_plot_has_a_point_for_ten_seconds_and_none_where_nothing_came() -> None:
    sim = Sim(world=4, nodes=2)
    sim.run(20)
    for second in (-100, -98, -96):
        told(sim.engine.view.telemetry, sim.now + second,
             {'train_step_seconds{job="job",rank="1"}': 100.0 + second})  # fmt: skip
    points = plot(series_of(sim, 1), "time per step").points
    assert points[0] == (pytest.approx(KEPT_SECONDS - 98, abs=1), pytest.approx(2.0))
    assert points[1][0] > KEPT_SECONDS - 30


def test_without_anything_held_there_is_nothing_to_plot() -> None:
    sim = Sim(world=4, nodes=2, attached=False)
    sim.run(20)
    assert series_of(sim, 1).plots == ()
    assert find_rank(sim.engine.view, asked(9)) is None
    assert find_rank(sim.engine.view, asked(1, attempt=1)) is None


def test_of_several_processes_with_the_number_the_one_that_is_meant() -> None:
    sim = Sim(world=4, nodes=2)
    sim.run(20)
    view = sim.engine.view
    found = find_rank(view, asked(1, "host0 1001"))
    assert found is not None
    assert found.rank.process.pid == 1001
    assert find_rank(view, asked(1, "gone 7")) is found


def gpus(*, given: tuple[str, ...], local: int | None) -> tuple[tuple[str, ...], bool]:
    telemetry = Telemetry()
    told(telemetry, 1000.0, {
        f'hw_gpu_info{{gpu="{index}",uuid="GPU-{index}"}}': 1.0 for index in range(4)
    })  # fmt: skip
    rank = Rank(
        id=RankId("job", 0, 9), process=ProcessId("host0", 7), node="n0",
        local_rank=local, gpus=given,
    )  # fmt: skip
    return gpus_of(rank, telemetry.of("n0"))


@pytest.mark.parametrize(
    ("given", "local", "expected"),
    [
        (("2",), 0, (("2",), False)),
        (("GPU-3",), 1, (("3",), False)),
        (("3", "2", "1", "0"), 1, (("2",), True)),
        (("0", "1"), None, (("0", "1"), False)),
        ((), 2, (("2",), True)),
        ((), 9, ((), True)),
        (("0", "1"), 5, ((), True)),
        ((), None, ((), False)),
        (("MIG-1",), 0, ((), False)),
    ],
)
def test_which_gpu_a_rank_has(
    given: tuple[str, ...], local: int | None, expected: tuple[tuple[str, ...], bool]
) -> None:
    assert gpus(given=given, local=local) == expected


def test_a_node_without_series_has_no_gpu() -> None:
    rank = Rank(id=RankId("job", 0, 0), process=ProcessId("h", 1), node="n", local_rank=0)
    assert gpus_of(rank, NodeTelemetry()) == ((), True)
