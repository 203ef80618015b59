"""Facts about time series: a small job with something planted into it, and the same job without.

Nothing else is wrong in these jobs, so that what is said of one and not of the other comes from
what was planted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np

from ray_sentinel.diagnose.case import DiagnoseOptions, JobCase
from ray_sentinel.diagnose.examine import examine
from ray_sentinel.diagnose.playbooks import named
from ray_sentinel.diagnose.series import Grid, Reduce, Samples, Selector
from ray_sentinel.diagnose.view import View
from ray_sentinel.model.diagnosis import Diagnosis
from ray_sentinel.store.event_files.memory import MemorySource
from tests.support.diagnosis import diagnosed, faults
from tests.support.inventory.row import Check
from tests.support.tsdb_scenarios.world import World

Plant = Callable[[World], object]
BEGIN = 900.0
"""Seconds after the begin at which what is planted sets in."""
BESIDE = (
    "hw_gpu_pcie_nonfatal_total", "hw_gpu_ras_xgmi_ue_total", "hw_gpu_ras_gfx_ue_total",
    "hw_net_tx_errors_total", "hw_gpu_user_processes", "tb_learning_moe_lb_loss",
)  # fmt: skip
"""Further series that are there, and stand still."""


def nothing(world: World) -> None:
    """A job in which all is well."""


def played(plant: Plant = nothing, *, style: str = "ours", model: str = "MI355X") -> World:
    """Three hosts of two GPUs and two RDMA ports, for forty minutes."""
    world = World(seed=7, hosts=3, gpus=2, devices=2, minutes=40, style=style, model=model)
    world.checkpoints = False
    world.startup, world.step_seconds = 100.0, 6.0
    plant(world)
    world.play()
    return world


def case(plant: Plant = nothing, source: MemorySource | None = None, **options: object) -> JobCase:
    """The job as a case."""
    held = source or MemorySource()
    for name, labels, times, values in played(plant).series():
        held.add(name, labels, times, values)
    span = held.span()
    assert span is not None
    return JobCase(View(held, *span), None, DiagnoseOptions(**options))  # type: ignore[arg-type]


@lru_cache(maxsize=64)
def answer(playbook: str, plant: Plant = nothing) -> Diagnosis:
    """What a playbook says of the job."""
    return named(playbook).run(case(plant))


def said(found: Diagnosis) -> str:
    """All its words."""
    rows = [" ".join(row) for table in found.tables for row in table.rows]
    facts = [fact.text for fact in found.evidence]
    return " ".join([found.cause, found.root_cause, *found.anomalies, *facts, *rows])


def told(playbook: str, plant: Plant, *words: str, below: Plant = nothing) -> Check:
    """The playbook says so of the job with ``plant``, and not of the one ``below`` a threshold."""

    def run(folder: Path) -> None:
        text = said(answer(playbook, plant))
        assert not [word for word in words if word not in text], text
        calm = said(answer(playbook, below))
        assert not [word for word in words if word in calm], calm

    return Check(f"diagnose: {playbook}", run)


def cause(playbook: str, plant: Plant, name: str, *hosts: str, below: Plant = nothing) -> Check:
    """The playbook finds the cause, on these hosts, and nothing in the job ``below``."""

    def run(folder: Path) -> None:
        found = answer(playbook, plant)
        assert (found.outcome, found.cause) == ("found", name), found.root_cause
        assert sorted({one.host for one in found.culprits}) == sorted(hosts)
        assert answer(playbook, below).cause != name

    return Check(f"diagnose: {playbook}", run)


class Asked(MemorySource):
    """Remembers which series were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def query_range(
        self, selector: Selector, start: float, end: float, step: float, reduce: Reduce = "last"
    ) -> Grid:
        self.names.add(selector.name)
        return super().query_range(selector, start, end, step, reduce)

    def samples(self, selector: Selector, start: float, end: float) -> list[Samples]:
        self.names.add(selector.name)
        return super().samples(selector, start, end)


@lru_cache(maxsize=16)
def _asked(playbook: str, plant: Plant, options: tuple[tuple[str, object], ...]) -> set[str]:
    source = Asked()
    for name in BESIDE:
        world = played()
        labels = {"host": "node001", "gpu": "0", "device": "eth0"}
        source.add(name, labels, world.times, np.zeros_like(world.times))
    for name, labels, times, values in played(style="ray").series():
        if name == "ray_node_gpus_utilization":
            source.add(name, labels, times, values)
    named(playbook).run(case(plant, source, **dict(options)))
    return source.names


def asks(playbook: str, plant: Plant, *series: str, **options: object) -> Check:
    """The playbook asks for one of these names of a series, in a job that it is made for."""

    def run(folder: Path) -> None:
        names = _asked(playbook, plant, tuple(options.items()))
        assert names & set(series), sorted(names)
        assert "no_such_series" not in names

    return Check(f"diagnose: {playbook}", run)


@lru_cache(maxsize=64)
def _scenario(name: str) -> list[str]:
    _, truth, report = diagnosed(name, 1, hosts=3, gpus=4)
    return faults(truth, report.diagnosis)


def scenario(name: str) -> Check:
    """A whole job is diagnosed, and the planted cause and culprits are what is answered."""

    def run(folder: Path) -> None:
        assert _scenario(name) == []

    return Check("diagnose", run)


def clear(plant: Plant) -> Check:
    """What was planted is no fault of the job: the whole diagnosis accuses nobody."""

    def run(folder: Path) -> None:
        held = MemorySource()
        for name, labels, times, values in played(plant).series():
            held.add(name, labels, times, values)
        found = examine(held).diagnosis
        assert found.outcome == "healthy", found.root_cause
        assert not found.culprits

    return Check("diagnose: healthy", run)
