"""Memory that a container may use, on a machine that has far more."""

from __future__ import annotations

import numpy as np
import pytest

from ray_sentinel.diagnose.examine import examine
from ray_sentinel.diagnose.series import Floats
from ray_sentinel.model.diagnosis import Diagnosis
from ray_sentinel.store.event_files.memory import MemorySource

BEGIN, CELLS = 1.7e9, 720
TIMES = BEGIN + 10.0 * np.arange(CELLS)
MACHINE, CONTAINER = 2e12, 64e9
FILLING = np.minimum(0.2 + 0.8 * np.arange(CELLS) / (CELLS - 20), 1.0)


def diagnosed(
    share: Floats, *, kill: bool = False, pressure: float = 0.0, machine: bool = True,
    counted: bool = True,
) -> Diagnosis:  # fmt: skip
    """Two hosts for two hours; the container on the second has ``share`` of its limit in use."""
    dice = np.random.default_rng(0)
    source = MemorySource()
    for host in ("n0", "n1"):
        own = share if host == "n1" else np.full(CELLS, 0.3)
        used = CONTAINER * np.minimum(own + dice.normal(0, 0.001, CELLS), 1.0)
        kills = ((np.arange(CELLS) >= CELLS - 15) & (host == "n1") & kill).astype(float)
        families = {
            "hw_cgroup_mem_used_bytes": used,
            "hw_cgroup_mem_limit_bytes": np.full(CELLS, CONTAINER),
            "hw_cgroup_oom_kills_total": kills,
            "hw_mem_pressure_some_pct": np.where(own > 0.95, pressure, 0.0),
        }
        if machine:
            families["hw_mem_total_bytes"] = np.full(CELLS, MACHINE)
            families["hw_mem_available_bytes"] = MACHINE * 0.8 - used
            families["hw_oom_kills_total"] = kills * counted
        for name, values in families.items():
            source.add(name, {"host": host}, TIMES, values)
    source.add("tb_step", {"host": "n0"}, TIMES, np.arange(CELLS) // 2)
    return examine(source).diagnosis


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("machine", [True, False])
def test_a_leak_up_to_the_containers_limit_is_one(machine: bool, counted: bool) -> None:
    found = diagnosed(FILLING, kill=True, machine=machine, counted=counted)
    assert (found.cause, [one.host for one in found.culprits]) == ("memory-leak", ["n1"])
    assert "memory of the container grew steadily, from 2" in found.culprits[0].reason


@pytest.mark.parametrize("machine", [True, False])
def test_a_container_full_of_page_cache_is_healthy(machine: bool) -> None:
    assert diagnosed(FILLING, machine=machine).outcome == "healthy"
    growing = np.asarray(0.2 + 0.5 * np.arange(CELLS) / CELLS)
    assert diagnosed(growing, machine=machine).outcome == "healthy"


@pytest.mark.parametrize("machine", [True, False])
def test_one_that_waits_for_memory_is_not(machine: bool) -> None:
    found = diagnosed(FILLING, pressure=30.0, machine=machine)
    assert (found.cause, [one.host for one in found.culprits]) == ("memory-leak", ["n1"])
