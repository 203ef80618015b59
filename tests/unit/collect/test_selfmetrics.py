"""What is served about the collectors."""

from __future__ import annotations

from ray_sentinel.collect.selfmetrics import families
from ray_sentinel.model.exposition import Renderer
from ray_sentinel.model.metrics import CollectorStatus

WELL = CollectorStatus(
    name="host", state="running", success=True, seconds=0.02, last_success=1700000000.0
)
SLOW = CollectorStatus(name="nvml", state="stuck", success=False, seconds=5.5, unkillable=1)
NEW = CollectorStatus(name="rdma", state="starting")


def lines(*statuses: CollectorStatus) -> set[str]:
    return set(Renderer("h").render(families(statuses)).decode().splitlines())


def test_well_and_stuck() -> None:
    found = lines(WELL, SLOW)
    assert 'ray_sentinel_collector_success{host="h",collector="host"} 1.0' in found
    assert 'ray_sentinel_collector_success{host="h",collector="nvml"} 0.0' in found
    assert 'ray_sentinel_collector_state{host="h",collector="nvml",state="stuck"} 1.0' in found
    assert 'ray_sentinel_collector_state{host="h",collector="nvml",state="running"} 0.0' in found
    assert 'ray_sentinel_collector_unkillable_processes{host="h",collector="nvml"} 1.0' in found


def test_a_cycle_takes_as_long_as_its_longest_run() -> None:
    assert 'hw_scrape_duration_seconds{host="h"} 5.5' in lines(WELL, SLOW)


def test_what_is_not_known_yet_is_absent() -> None:
    found = lines(NEW)
    assert not any("success{" in line or "scrape_duration" in line for line in found)
    assert not any("state{" in line and line.endswith(" 1.0") for line in found)
