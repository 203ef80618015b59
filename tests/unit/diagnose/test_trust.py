"""What must not be believed is left out, and what is missing is said."""

from __future__ import annotations

import numpy as np
import pytest

from ray_sentinel.diagnose import trust
from ray_sentinel.diagnose.case import DiagnoseOptions, JobCase
from ray_sentinel.diagnose.examine import examine, take_stock
from ray_sentinel.diagnose.view import View, scrape_interval
from ray_sentinel.errors import InputError
from ray_sentinel.store.event_files.memory import MemorySource
from tests.support.diagnosis import case_of, source_of
from tests.support.tsdb_scenarios.catalogue import scenario
from tests.support.tsdb_scenarios.world import World


def played(name: str = "healthy-plain", seed: int = 1) -> World:
    return scenario(name).make(seed)[0]


def view_of(source: MemorySource) -> View:
    span = source.span()
    assert span is not None
    return View(source, *span)


def ghosted(world: World, host: int, start: float) -> MemorySource:
    """The host's exporter serves its last file from ``start`` on."""
    frozen = MemorySource("ghost")
    for name, labels, times, values in world.series():
        values = np.array(values, dtype=float)
        if labels.get("host") == world.names[host] and name.startswith("hw_"):
            late = times >= world.begin + start
            if late.any():
                values[late] = values[np.flatnonzero(late)[0]]
        frozen.add(name, labels, times, values)
    return frozen


def test_ghost_data_are_found_and_hidden() -> None:
    world = played()
    case = JobCase(view_of(ghosted(world, 1, 1500.0)))
    assert list(case.ghosts) == ["node002"]
    power = case.view.panel("gpu.power").of("node002")
    assert np.isnan(power.values[:, -10:]).all()
    assert np.isfinite(case.view.panel("gpu.power").of("node001").values[:, -10:]).all()
    assert any("ghosts" in text for text in take_stock(case).warnings)


def test_a_job_whose_series_never_moved_is_no_ghost() -> None:
    source = MemorySource("flat")
    times = 1e9 + 10.0 * np.arange(200)
    for gpu in range(4):
        source.add("hw_gpu_power_watts", {"host": "a", "gpu": str(gpu)}, times, np.full(200, 900.0))
    source.add("hw_scrape_duration_seconds", {"host": "a"}, times, np.full(200, 0.1))
    assert trust.ghosts(view_of(source)) == {}


def test_synthetic_fill_is_left_out() -> None:
    source = MemorySource("fill")
    times = 1e9 + 10.0 * np.arange(100)
    fill = (np.arange(100) >= 60).astype(float)
    source.add("tb_step", {"host": "a"}, times, np.minimum(np.arange(100), 60))
    source.add("tb_metrics_plugin_staleness_fill", {"host": "a"}, times, fill)
    panel = view_of(source).panel("train.step")
    assert np.isnan(panel.values[0, 65:]).all()
    assert np.isfinite(panel.values[0, :60]).all()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [({"NNODES": "6"}, "only 4 of 6 nodes"), ({"NNODES": "4"}, ""), ({}, ""),
     ({"NNODES": "2"}, "some are not this job's")],
)  # fmt: skip
def test_nodes_without_series_are_told(arguments: dict[str, str], said: str) -> None:
    assert said in trust.unseen(4, arguments)
    assert bool(trust.unseen(4, arguments)) is bool(said)


def test_missing_families_say_what_is_lost() -> None:
    source = MemorySource("steps")
    times = 1e9 + 10.0 * np.arange(100)
    source.add("tb_step", {"host": "a"}, times, np.arange(100))
    stock = take_stock(JobCase(view_of(source)))
    assert any("hw_gpu_power_watts" in text for text in stock.missing)
    assert "one host only: it cannot be compared with others" in stock.warnings


def test_gaps_are_told() -> None:
    case = case_of(played("healthy-gaps"))
    assert len(take_stock(case).gaps) == 2


def test_the_interval_is_learned() -> None:
    world = played()
    source = source_of(world)
    assert scrape_interval(source, source.families(), *source.span()) == world.interval  # type: ignore[misc]


def test_nothing_at_all_is_an_error_with_a_remedy() -> None:
    with pytest.raises(InputError, match="triage"):
        examine(MemorySource("empty"))


def test_a_window_outside_the_data_is_an_error() -> None:
    source = source_of(played())
    with pytest.raises(InputError, match="outside"):
        examine(source, options=DiagnoseOptions(window=(1.0, 2.0)))


@pytest.mark.parametrize("length", [1, 2, 3, 7])
def test_a_handful_of_samples_is_survived(length: int) -> None:
    source = MemorySource("short")
    times = 1e9 + 10.0 * np.arange(length)
    for name in ("tb_step", "hw_gpu_power_watts", "hw_gpu_temperature_celsius",
                 "hw_rdma_tx_retx_pkts_total", "tb_learning_loss"):  # fmt: skip
        source.add(name, {"host": "a", "gpu": "0"}, times, np.arange(length))
    assert examine(source).diagnosis.outcome in {"healthy", "unknown", "not-this"}


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_series_of_bad_samples_are_survived(bad: float) -> None:
    source = MemorySource("bad")
    for name, labels, times, values in played().series():
        spoiled = np.array(values, dtype=float)
        if name.startswith(("hw_", "ray_")):
            spoiled[::3] = bad
        source.add(name, labels, times, spoiled)
    report = examine(source)
    assert report.diagnosis.culprits == ()


def test_a_job_that_never_trained_is_not_called_healthy_training() -> None:
    source = MemorySource("idle")
    times = 1e9 + 10.0 * np.arange(300)
    rng = np.random.default_rng(0)
    for gpu in range(8):
        labels = {"host": "a", "gpu": str(gpu)}
        source.add("hw_gpu_power_watts", labels, times, 260 + rng.normal(0, 2, 300))
        source.add("hw_gpu_utilization_ratio", labels, times, np.zeros(300))
    report = examine(source)
    assert report.diagnosis.outcome != "found"
    assert "never" in report.diagnosis.root_cause or "no playbook" in report.diagnosis.root_cause
