"""Hosts that are watched by NVIDIA's dcgm-exporter beside node_exporter."""

from __future__ import annotations

import numpy as np
import pytest

from ray_sentinel.diagnose.examine import examine
from ray_sentinel.diagnose.playbooks import named
from ray_sentinel.diagnose.view import aliases
from ray_sentinel.store.event_files.memory import MemorySource
from tests.support.diagnosis import case_of_source

TIMES = 1.7e9 + 10.0 * np.arange(360)
HOSTS = ("gpu-1", "gpu-2", "gpu-3", "gpu-4")


def exported(xid: float = 0.0, errors: bool = True) -> MemorySource:
    """Four hosts for an hour; after 40 minutes one GPU's last Xid becomes ``xid``."""
    dice = np.random.default_rng(0)
    source = MemorySource()
    for number, host in enumerate(HOSTS, 1):
        address = f"10.0.0.{number}"
        for gpu in range(2):
            labels = {"Hostname": host, "instance": f"{address}:9400", "gpu": str(gpu)}
            source.add("DCGM_FI_DEV_POWER_USAGE", labels, TIMES, dice.normal(600, 9, TIMES.size))
            source.add("DCGM_FI_DEV_GPU_UTIL", labels, TIMES, dice.uniform(95, 100, TIMES.size))
            if errors:
                hit = (TIMES[240] <= TIMES) & (host == "gpu-3") & (gpu == 1)
                old = 31.0 * (host == "gpu-1")
                last = np.where(hit, xid, old)
                source.add("DCGM_FI_DEV_XID_ERRORS", labels, TIMES, last)
        node = {"instance": f"{address}:9100"}
        source.add("node_load1", node, TIMES, dice.normal(9, 1, TIMES.size))
        source.add("node_procs_running", node, TIMES, dice.poisson(9, TIMES.size))
    source.add("tb_step", {"host": "gpu-1"}, TIMES, np.arange(TIMES.size))
    return source


def test_both_exporters_name_the_same_hosts() -> None:
    assert examine(exported()).inventory.hosts == HOSTS


def test_a_name_and_an_address_are_learned_from_any_label_of_a_host() -> None:
    found = aliases([{"nodename": "gpu-2", "instance": "10.0.0.2:9100"}])
    assert found == {"10.0.0.2": "gpu-2"}


def test_a_change_of_the_last_xid_is_that_xid() -> None:
    found = examine(exported(xid=79.0)).diagnosis
    assert (found.cause, [(one.host, one.gpu) for one in found.culprits]) == (
        "xid",
        [("gpu-3", "1")],
    )
    assert "Xid error 79" in found.root_cause
    assert all("increase(" not in link.promql for link in found.chain)


@pytest.mark.parametrize("xid", [0.0, 31.0])
def test_an_old_one_and_the_programs_own_are_no_fault(xid: float) -> None:
    assert examine(exported(xid=xid)).diagnosis.outcome == "healthy"


def test_without_any_error_counter_the_hardware_is_not_cleared() -> None:
    blind = case_of_source(exported(errors=False))
    answer = named("node-hardware-failure").run(blind)
    assert (answer.outcome, answer.cause) == ("unknown", "no-data")
    assert named("node-hardware-failure").applies(blind) == 0.0
    answer = named("node-hardware-failure").run(case_of_source(exported()))
    assert (answer.outcome, answer.cause) == ("not-this", "none")
