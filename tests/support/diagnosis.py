"""Between the generated jobs and the diagnosis: loading, and which answers are right."""

from __future__ import annotations

from ray_sentinel.diagnose.case import DiagnoseOptions, JobCase
from ray_sentinel.diagnose.examine import examine
from ray_sentinel.diagnose.view import View
from ray_sentinel.model.diagnosis import Diagnosis, DiagnosisReport
from ray_sentinel.store.event_files.memory import MemorySource
from tests.support.tsdb_scenarios.catalogue import scenario
from tests.support.tsdb_scenarios.truth import Truth
from tests.support.tsdb_scenarios.world import World

RIGHT: dict[str, set[str]] = {
    "": {"none"},
    "busy wait": {"busy-wait"},
    "partial busy wait": {"partial-busy-wait"},
    "rdma link": {"rdma-link"},
    "straggler": {"straggler"},
    "rank absent": {"rank-absent"},
    "node lost": {"node-lost"},
    "step series gap": {"none", "step-series-gap"},
    "congestion": {"congestion"},
    "tcp": {"tcp-retransmits"},
    "nic": {"nic-errors"},
    "uncorrectable": {"uncorrectable-memory-error"},
    "pcie fatal": {"pcie-fatal"},
    "gpu lost": {"gpu-lost"},
    "xid": {"xid"},
    "driver fault": {"driver-fault"},
    "thermal": {"thermal"},
    "clock": {"clock-drop"},
    "power outlier": {"power-outlier"},
    "correctable": {"degrading-memory"},
    "hot": {"overheating", "thermal"},
    "facility heat": {"thermal", "overheating"},
    "leak": {"memory-leak"},
    "spike": {"memory-spike"},
    "checkpoint": {"checkpoint-memory"},
    "loss": {"loss-nan", "grad-spike", "grad-nan", "loss-diverged"},
    "learning rate": {"lr-jump"},
    "routing": {"moe-shift"},
    "cpu": {"cpu-contention"},
    "storage": {"io-contention"},
    "unknown": {"slow-unexplained"},
    "clean heartbeat": {"heartbeat-false-positive"},
    "network heartbeat": {"heartbeat-network"},
    "storage heartbeat": {"heartbeat-storage"},
    "true heartbeat": {"heartbeat-true"},
    "congested checkpoint": {"checkpoint-storage"},
    "not congestion": {"checkpoint-not-congestion"},
}
"""The planted cause → the causes that may be answered."""


def source_of(world: World) -> MemorySource:
    """The job's series in memory."""
    source = MemorySource(f"world {world.seed}")
    for name, labels, times, values in world.series():
        source.add(name, labels, times, values)
    return source


def case_of(world: World, **options: object) -> JobCase:
    """The job as a case."""
    return case_of_source(source_of(world), **options)


def case_of_source(source: MemorySource, **options: object) -> JobCase:
    """All that a source holds as a case."""
    span = source.span()
    assert span is not None
    return JobCase(View(source, *span), None, DiagnoseOptions(**options))  # type: ignore[arg-type]


def diagnosed(name: str, seed: int, **how: object) -> tuple[World, Truth, DiagnosisReport]:
    """A scenario, made and diagnosed."""
    world, truth = scenario(name).make(seed, **how)  # type: ignore[arg-type]
    options = DiagnoseOptions(**dict(truth.options))  # type: ignore[arg-type]
    return world, truth, examine(source_of(world), options=options)


def faults(truth: Truth, answer: Diagnosis) -> list[str]:
    """What is wrong with an answer; empty if it is right."""
    wrong = []
    if answer.cause not in RIGHT[truth.cause]:
        wrong.append(f"cause {answer.cause}, planted {truth.cause or 'nothing'}")
    hosts = {one.host for one in answer.culprits}
    if hosts != truth.hosts:
        wrong.append(f"hosts {sorted(hosts)}, planted {sorted(truth.hosts)}")
    gpus = {(one.host, one.gpu) for one in answer.culprits if one.gpu}
    if truth.gpus and gpus != truth.gpus:
        wrong.append(f"GPUs {sorted(gpus)}, planted {sorted(truth.gpus)}")
    devices = {(one.host, one.device) for one in answer.culprits if one.device}
    if truth.devices and devices != truth.devices:
        wrong.append(f"devices {sorted(devices)}, planted {sorted(truth.devices)}")
    return wrong
