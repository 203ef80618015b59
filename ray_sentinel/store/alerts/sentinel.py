"""Alerts on the sentinel itself: a blind watcher must not look healthy."""

from __future__ import annotations

from ray_sentinel.store.alerts.model import WATCHED, Alert, AlertGroup

_COLLECTOR = "Collector {{ $labels.collector }} of {{ $labels.host }}"
_CYCLE = "ray_sentinel_coordinator_last_cycle_timestamp_seconds"

COLLECTORS = (
    Alert(
        name="CollectorStuck",
        expr='ray_sentinel_collector_state{state="stuck"} == 1',
        severity="warning",
        wait="1m",
        summary=f"{_COLLECTOR} is stuck in the kernel",
        action="A driver or a file server does not answer: the kernel log of the node tells.",
    ),
    Alert(
        name="CollectorQuarantined",
        expr='ray_sentinel_collector_state{state="quarantined"} == 1',
        severity="warning",
        wait="5m",
        summary=f"{_COLLECTOR} misses its deadlines and is left alone",
        action="`ray-sentinel plugins list` says why; it is tried again by itself.",
    ),
    Alert(
        name="CollectorFails",
        expr="ray_sentinel_collector_success == 0",
        severity="warning",
        wait="10m",
        summary=f"{_COLLECTOR} fails",
        action="`ray-sentinel plugins list` says why.",
    ),
    Alert(
        name="CollectorRestartsOften",
        expr="increase(ray_sentinel_collector_restarts_total[30m]) > 5",
        severity="warning",
        summary=f"{_COLLECTOR} is started again and again",
        action="Its log is in logs/ under log_dir.",
    ),
    Alert(
        name="CollectorUnkillable",
        expr="ray_sentinel_collector_unkillable_processes > 0",
        severity="warning",
        wait="5m",
        summary=f"{_COLLECTOR} left processes that cannot be killed",
        action="They hang in a driver: the node needs a restart once the job has ended.",
    ),
)
AGENTS = (
    Alert(
        name="SentinelNotScraped",
        expr=f"absent({WATCHED})",
        severity="critical",
        wait="2m",
        summary="No agent is scraped: nobody watches the job",
        action="`ray-sentinel status`; and check the scrape configuration.",
    ),
    Alert(
        name="AgentDown",
        expr='up{job="ray_sentinel"} == 0',
        severity="warning",
        wait="1m",
        summary="The agent at {{ $labels.instance }} does not answer",
        action="The node is gone, or its agent is: `ray-sentinel status`.",
    ),
    Alert(
        name="StepsNotStored",
        expr='up{job="ray_sentinel_steps"} == 0',
        severity="warning",
        wait="5m",
        summary="The steps of {{ $labels.instance }} are not stored",
        action="Set out_of_order_time_window, as `ray-sentinel prometheus config` prints it.",
    ),
    Alert(
        name="NodesUnwatched",
        expr="ray_sentinel_nodes_unwatched > 0",
        severity="warning",
        wait="5m",
        summary="Nodes of the cluster are not watched",
        action="`ray-sentinel status` says which, and why.",
    ),
)
COORDINATOR = (
    Alert(
        name="CoordinatorGone",
        expr=f"absent({_CYCLE}) unless absent({WATCHED})",
        severity="critical",
        wait="2m",
        summary="The coordinator is gone: hangs are not detected",
        action="`ray-sentinel up` starts it again.",
    ),
    Alert(
        name="CoordinatorStandsStill",
        # Not against the scraper's clock, which may be another.
        expr=f"changes({_CYCLE}[2m]) == 0",
        severity="critical",
        wait="2m",
        summary="The coordinator stands still: hangs are not detected",
        action="Its log is in logs/ under log_dir.",
    ),
)

SENTINEL = AlertGroup("sentinel", AGENTS + COORDINATOR + COLLECTORS)
