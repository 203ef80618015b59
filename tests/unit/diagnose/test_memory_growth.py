"""Memory that fills at the start of a job is no leak; memory that goes on growing is one."""

from __future__ import annotations

import numpy as np
import pytest

from ray_sentinel.diagnose.examine import examine
from ray_sentinel.diagnose.series import Floats
from ray_sentinel.model.diagnosis import Diagnosis
from ray_sentinel.store.event_files.memory import MemorySource

BEGIN, CELLS, LIMIT = 1.7e9, 480, 2e12
TIMES = BEGIN + 10.0 * np.arange(CELLS)
MINUTES = (TIMES - BEGIN) / 60


def diagnosed(seed: int, share: Floats, steps: bool = True, busy: float = 97.0) -> Diagnosis:
    """Three hosts for 80 minutes; on the second memory takes ``share`` of its limit."""
    rng = np.random.default_rng(seed)
    source = MemorySource()
    for index, host in enumerate(("n0", "n1", "n2")):
        usual = np.full(CELLS, 0.2) if index != 1 else share
        noisy = LIMIT * (usual + rng.normal(0, 0.001, CELLS))
        source.add("ray_node_mem_used", {"host": host}, TIMES, noisy)
        source.add("ray_node_mem_total", {"host": host}, TIMES, np.full(CELLS, LIMIT))
        for gpu in range(4):
            labels = {"host": host, "GpuIndex": str(gpu)}
            values = np.clip(busy + rng.normal(0, 1, CELLS), 0, 100)
            source.add("ray_node_gpus_utilization", labels, TIMES, values)
    if steps:
        source.add("tb_step", {"host": "n0"}, TIMES, np.arange(CELLS) // 2)
    return examine(source).diagnosis


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("steps", [True, False])
def test_what_fills_at_the_start_is_no_leak(seed: int, steps: bool) -> None:
    found = diagnosed(seed, 0.05 + 0.3 * np.clip(MINUTES / 12, 0, 1), steps)
    assert (found.outcome, found.culprits) == ("healthy", ())


@pytest.mark.parametrize("seed", range(3))
def test_what_goes_on_growing_is_a_leak(seed: int) -> None:
    found = diagnosed(seed, 0.05 + 0.2 * np.clip(MINUTES / 8, 0, 1) + 0.3 * MINUTES / 80)
    assert (found.outcome, found.cause) == ("found", "memory-leak")
    assert [one.host for one in found.culprits] == ["n1"]
    assert "22." in found.root_cause


def test_a_job_whose_gpus_were_never_busy_is_not_healthy() -> None:
    found = diagnosed(0, np.full(CELLS, 0.2), steps=False, busy=0.0)
    assert (found.outcome, found.cause, found.culprits) == ("unknown", "never-trained", ())


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("hw_gpu_ras_umc_ce_total", "degrading-memory"),
        ("hw_gpu_ras_xgmi_ce_total", "degrading-link"),
        ("hw_gpu_pcie_correctable_total", "degrading-link"),
        ("hw_gpu_ras_gfx_ce_total", "degrading-gpu"),
        ("hw_gpu_ras_umc_ue_total", "uncorrectable-memory-error"),
        ("hw_gpu_ras_xgmi_ue_total", "uncorrectable-link-error"),
        ("hw_gpu_ras_sdma_ue_total", "uncorrectable-gpu-error"),
    ],
)
def test_an_error_is_named_after_the_part_that_counts_it(name: str, cause: str) -> None:
    source = MemorySource()
    source.add("tb_step", {"host": "n0"}, TIMES, np.arange(CELLS) // 2)
    for host in ("n0", "n1"):
        for gpu in ("0", "1"):
            errors = np.maximum(np.arange(CELLS) - 200, 0) * float((host, gpu) == ("n1", "1"))
            source.add(name, {"host": host, "gpu": gpu}, TIMES, errors)
    found = examine(source).diagnosis
    assert (found.cause, [(one.host, one.gpu) for one in found.culprits]) == (cause, [("n1", "1")])
