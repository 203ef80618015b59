"""Two jobs compared: what differs, by how much, and what does not."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
import pytest

from ray_sentinel.cli.commands.compare import markdown
from ray_sentinel.diagnose.case import JobCase
from ray_sentinel.diagnose.comparison import (
    Delta,
    Side,
    compare,
    config_difference,
)
from ray_sentinel.diagnose.comparison_plots import MOST_PLOTS, POINTS
from ray_sentinel.diagnose.logs import LogFacts, LoggedStep
from ray_sentinel.diagnose.view import View
from ray_sentinel.store.event_files.memory import MemorySource
from tests.support.diagnosis import case_of
from tests.support.tsdb_scenarios.world import World


def side(seed: int, factor: float = 1.0, threads: float = 0.0, retransmits: float = 0.0) -> Side:
    world = World(seed=seed, hosts=3, gpus=2)
    world.step_seconds = 8.0
    world.slowdown *= factor
    world.gauges["hw_procs_running"] += threads
    world.rdma["hw_rdma_tx_retx_pkts_total"][1, 1] += retransmits
    world.play()
    return Side(title=f"job {seed}", case=case_of(world), logs=LogFacts())


def test_equal_jobs_do_not_differ_in_speed() -> None:
    found = compare(side(1), side(1))
    assert found.root_cause == "No significant difference in speed."
    assert found.steps is not None


def test_bad_links_are_the_difference() -> None:
    found = compare(side(1), side(1, factor=1.2, retransmits=500.0))
    pace = next(delta for delta in found.deltas if delta.title == "step time")
    assert pace.significant
    assert 0.15 < pace.relative < 0.25
    assert "RDMA" in found.root_cause


@pytest.mark.parametrize(("replays", "named"), [(1.0, False), (60.0, True)])
def test_a_few_errors_more_name_no_part(replays: float, named: bool) -> None:
    def counted(rate: float) -> Side:
        world = World(seed=1, hosts=3, gpus=2, model="H100")
        world.step_seconds, world.slowdown = 8.0, world.slowdown * (1.2 if rate else 1.0)
        late = np.flatnonzero(world.after(0.5 * world.t[-1]))
        world.errors["hw_gpu_pcie_replay_total"][2, 1, late[:3]] += rate
        world.play()
        return Side(title=str(rate), case=case_of(world), logs=LogFacts())

    found = compare(counted(0.0), counted(replays))
    errors = next(delta for delta in found.deltas if delta.title == "PCIe replays")
    assert (bool(errors.hosts), bool(errors.cause)) == (named, named)
    assert ("PCIe replays" in found.root_cause) is named


def test_a_rise_too_small_to_matter_points_to_nothing() -> None:
    found = compare(side(1, retransmits=0.0), side(1, retransmits=0.5))
    rdma = next(delta for delta in found.deltas if delta.title == "RDMA retransmits")
    assert (rdma.hosts, rdma.cause) == ("", "")


def test_threads_left_behind_are_the_difference() -> None:
    found = compare(side(1), side(1, factor=1.05, threads=17.0))
    assert "17 runnable threads" in found.root_cause


def test_jobs_without_series_are_compared_by_their_logs() -> None:
    def logged(seconds: float) -> Side:
        steps = tuple(LoggedStep(step=n, seconds=seconds + n % 3 / 100) for n in range(1, 90))
        return Side(title=str(seconds), case=None, logs=LogFacts(steps=steps))

    found = compare(logged(5.0), logged(6.0))
    assert found.deltas[0].significant
    assert len(found.notes) == 2


def attempts(*series: tuple[float, range, float], seconds: float = 10.0) -> Side:
    """A job with (begin, steps, loss) for each attempt."""
    points = [
        (begin + seconds * place, float(step), loss)
        for begin, steps, loss in series
        for place, step in enumerate(steps, 1)
    ]
    times, done, losses = zip(*points, strict=True)
    source = MemorySource()
    source.add("tb_step", {}, times, done)
    source.add("tb_learning_loss", {}, times, losses)
    span = source.span()
    assert span is not None
    return Side(title="job", case=JobCase(View(source, *span)), logs=LogFacts())


def test_steps_that_were_done_again_count_by_the_later_attempt() -> None:
    again = attempts((1e6, range(200), 3.0), (1e6 + 2500, range(50, 200), 1.0))
    once = attempts((1e6, range(200), 1.0))
    case = again.case
    assert case is not None
    lost = case.superseded
    steps = case.line.front[lost]
    assert (np.nanmin(steps), np.nanmax(steps)) == (50.0, 199.0)
    loss = next(delta for delta in compare(once, again).deltas if delta.title == "loss")
    assert (loss.first, loss.second) == (1.0, 1.0)


def test_nothing_is_done_again_in_a_job_without_restarts() -> None:
    case = attempts((1e6, range(200), 3.0)).case
    assert case is not None
    assert not case.superseded.any()


def test_where_no_step_time_is_told_the_steps_tell_it() -> None:
    found = compare(
        attempts((1e6, range(200), 1.0)), attempts((2e6, range(200), 1.0), seconds=14.0)
    )
    pace = next(delta for delta in found.deltas if delta.title == "step time")
    assert (pace.first, pace.second, pace.significant) == (10.0, 14.0, True)
    assert found.root_cause.startswith("step time differs by +40.0%")


def test_throughputs_that_count_different_things_are_not_compared() -> None:
    def counted(metric: str, value: float) -> Side:
        source = MemorySource()
        times = [1e6 + 10.0 * place for place in range(200)]
        source.add("tb_step", {}, times, range(200))
        source.add(metric, {}, times, [value] * 200)
        return Side(title=metric, case=JobCase(View(source, 1e6, times[-1])), logs=LogFacts())

    tokens = counted("tb_tokens_per_sec", 5e4)
    found = compare(tokens, counted("tb_perf_per_device_tflops", 400.0))
    assert [delta.title for delta in found.deltas] == ["step time"]
    found = compare(tokens, counted("tb_tokens_per_sec", 4e4))
    assert [delta.title for delta in found.deltas] == ["throughput"]


def test_no_common_steps_and_configuration() -> None:
    one = LogFacts(config={"a": "1", "b": "2"}, steps=(LoggedStep(step=1), LoggedStep(step=5)))
    other = LogFacts(config={"a": "1", "b": "3"}, steps=(LoggedStep(step=9), LoggedStep(step=12)))
    assert config_difference(one, other) == {"b": ("2", "3")}
    found = compare(Side(title="a", case=None, logs=one), Side(title="b", case=None, logs=other))
    assert found.steps is None
    assert found.deltas == ()


def test_what_was_nothing_before_has_no_share_but_is_told() -> None:
    def clean(errors: float) -> Side:
        world = World(seed=1, hosts=3, gpus=2)
        for name, rates in world.rdma.items():
            if name.endswith("retx_pkts_total"):
                rates[:] = errors
        world.play()
        return Side(title=str(errors), case=case_of(world), logs=LogFacts())

    found = compare(clean(0.0), clean(500.0))
    rdma = next(delta for delta in found.deltas if delta.title == "RDMA retransmits")
    assert (rdma.first, rdma.relative) == (0.0, None)
    assert rdma.change.endswith("from 0")
    for delta in found.deltas:
        assert "nan" not in delta.change
        assert "inf" not in delta.change
    text = markdown(found)
    assert "nan" not in text
    assert b"NaN" not in msgspec.json.encode(found)


@pytest.mark.parametrize(
    ("first", "second", "unit", "text"),
    [
        (0.0, 0.0, "s", "none"),
        (0.0, 12.5, "packets/s", "+12.5 packets/s from 0"),
        (0.0, 3.0, "%", "+3% from 0"),
        (2.0, 1.0, "s", "-50.0%"),
        (-2.0, -1.0, "", "+50.0%"),
    ],
)
def test_a_difference_for_people(first: float, second: float, unit: str, text: str) -> None:
    relative = (second - first) / abs(first) if first else None
    delta = Delta(metric="m", title="t", unit=unit, first=first, second=second,
                  relative=relative, significant=True)  # fmt: skip
    assert delta.change == text


def test_the_log_gives_the_pace_where_the_series_hold_none() -> None:
    def of(seconds: float) -> Side:
        source = MemorySource()
        times = [1e9 + seconds * n for n in range(90)]
        source.add("tb_step", {}, times, range(90))
        source.add("tb_loss", {}, times, [1.0] * 90)
        steps = tuple(LoggedStep(step=n, seconds=seconds + n % 3 / 100) for n in range(90))
        case = JobCase(View(source, times[0], times[-1]), LogFacts(steps=steps))
        return Side(title=str(seconds), case=case, logs=case.logs)

    found = compare(of(5.0), of(6.0))
    assert [(one.title, one.significant) for one in found.deltas] == [
        ("step time", True),
        ("loss", False),
    ]


def test_what_could_not_be_read_of_a_job_is_said() -> None:
    source = MemorySource(notes=["one file is damaged"])
    source.add("tb_step", {}, [1e9, 1e9 + 60], [1, 9])
    case = JobCase(View(source, 1e9, 1e9 + 60), LogFacts())
    damaged = Side(title="b", case=case, logs=LogFacts())
    assert "b: one file is damaged" in compare(side(1), damaged).notes


def played(change: Callable[[World], None] = lambda _: None, **logs: object) -> Side:
    world = World(seed=1, hosts=4, gpus=2)
    world.step_seconds = 8.0
    change(world)
    world.play()
    case = case_of(world)
    case.logs = LogFacts(**logs)  # type: ignore[arg-type]
    return Side(title="job", case=case, logs=case.logs)


def slow(world: World) -> None:
    world.slowdown *= 1.25


def test_one_host_with_other_load_is_named() -> None:
    def loaded(world: World) -> None:
        slow(world)
        world.gauges["hw_procs_running"][2] += 180.0

    found = compare(played(), played(loaded))
    assert found.culprits == ("node003",)
    assert "node003 has 179 more runnable threads" in found.root_cause
    assert "node003" in markdown(found)


def test_what_differs_is_drawn_by_step_of_both_jobs() -> None:
    def loaded(world: World) -> None:
        slow(world)
        world.gauges["hw_procs_running"][2] += 180.0

    found = compare(played(), played(loaded))
    titles = [plot.title for plot in found.plots]
    assert titles[0] == "step time"
    assert "runnable threads" in titles
    assert len(titles) <= MOST_PLOTS
    assert found.steps is not None
    for plot in found.plots:
        assert [name for name, _ in plot.series] == ["job A", "job B"]
        assert found.steps[0] <= plot.times[0] < plot.times[-1] <= found.steps[1]
        assert len(plot.times) <= POINTS
        assert all(len(values) == len(plot.times) for _, values in plot.series)
    (_, one), (_, other) = found.plots[0].series
    assert np.nanmean(other) / np.nanmean(one) == pytest.approx(1.25, abs=0.05)


def test_jobs_with_logs_alone_are_drawn_by_their_step_times() -> None:
    def logged(seconds: float) -> Side:
        steps = tuple(LoggedStep(step=n, seconds=seconds) for n in range(1, 90))
        return Side(title=str(seconds), case=None, logs=LogFacts(steps=steps))

    (plot,) = compare(logged(5.0), logged(6.0)).plots
    assert [set(values) for _, values in plot.series] == [{5.0}, {6.0}]


def test_nothing_in_common_is_not_drawn() -> None:
    empty = Side(title="a", case=None, logs=LogFacts())
    assert compare(empty, empty).plots == ()


def test_the_port_that_loses_packets_is_named() -> None:
    def lossy(world: World) -> None:
        slow(world)
        world.rdma["hw_rdma_tx_retx_pkts_total"][1, 3] += 400.0
        world.gauges["hw_procs_running"][0] += 40.0

    assert compare(played(), played(lossy)).culprits == ("node002:rdma3/1",)


def test_tcp_is_no_cause_where_rdma_carries_the_collectives() -> None:
    def storm(world: World) -> None:
        slow(world)
        world.rates["hw_tcp_retransmits_total"][1] += 3000.0

    found = compare(played(), played(storm))
    assert found.culprits == ()
    assert "no source of contention explains it" in found.root_cause
    assert any("TCP retransmits" in text for text in found.standing)


def test_heat_that_holds_a_clock_down() -> None:
    def hot(world: World) -> None:
        slow(world)
        world.temp_extra[3, 1] += 25.0
        world.clock_factor[3, 1] *= 0.75

    assert compare(played(), played(hot)).culprits == ("node004:gpu1",)


FLAG = {"enable_single_replica_ckpt_restoring": "true"}


@pytest.mark.parametrize(
    ("waves", "restored", "found"),
    [(3, 200.0, True), (2, 200.0, False), (3, None, True), (2, None, False)],
)
def test_a_leak_of_a_restore_is_the_root_where_setting_and_waves_agree(
    waves: int, restored: float | None, found: bool
) -> None:
    def threads(world: World) -> None:
        world.slowdown *= 1.05
        world.gauges["hw_procs_running"] += 17.0

    fresh = played(config=FLAG, init_waves={"node001": 2})
    again = played(threads, config=FLAG, init_waves={"node001": waves}, restored_step=restored)
    answer = compare(fresh, again)
    assert ("single replica" in answer.root_cause) is found
    assert bool(answer.source_trace) is found
    assert ("Source code trace" in markdown(answer)) is found


def test_each_job_is_held_against_its_own_log() -> None:
    wrong = played(steps=tuple(LoggedStep(step=n) for n in range(90_000, 90_050)))
    failed = played(failure="oom-host", ended="failed")
    notes = " ".join(compare(wrong, failed).notes)
    assert "wrong job" in notes
    assert "oom-host" in notes


def test_what_the_workers_say_more_often_is_told() -> None:
    found = compare(played(worker_lines={"XLA compilations": 2}),
                    played(worker_lines={"XLA compilations": 9, "NCCL warnings": 1}))  # fmt: skip
    assert "workers' logs: XLA compilations 2 times there, 9 here" in found.notes
    assert "workers' logs: NCCL warnings 0 times there, 1 here" in found.notes
