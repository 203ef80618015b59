"""Alerts on the sentinel itself: a blind watcher must not look healthy."""

from __future__ import annotations

from ray_sentinel.store.alerts.model import WATCHED, AlertGroup, critical, warning

_COLLECTOR = "Collector {{ $labels.collector }} of {{ $labels.host }}"
_CYCLE = "ray_sentinel_coordinator_last_cycle_timestamp_seconds"

COLLECTORS = (
    warning(
        "CollectorStuck",
        'ray_sentinel_collector_state{state="stuck"} == 1',
        f"{_COLLECTOR} is stuck in the kernel",
        "A driver or a file server does not answer: the kernel log of the node tells.",
        wait="1m",
    ),
    warning(
        "CollectorQuarantined",
        'ray_sentinel_collector_state{state="quarantined"} == 1',
        f"{_COLLECTOR} misses its deadlines and is left alone",
        "`ray-sentinel plugins list` says why; it is tried again by itself.",
        wait="5m",
    ),
    warning(
        "CollectorFails",
        "ray_sentinel_collector_success == 0",
        f"{_COLLECTOR} fails",
        "`ray-sentinel plugins list` says why.",
        wait="10m",
    ),
    warning(
        "CollectorRestartsOften",
        "increase(ray_sentinel_collector_restarts_total[30m]) > 5",
        f"{_COLLECTOR} is started again and again",
        "Its log is in logs/ under log_dir.",
    ),
    warning(
        "CollectorUnkillable",
        "ray_sentinel_collector_unkillable_processes > 0",
        f"{_COLLECTOR} left processes that cannot be killed",
        "They hang in a driver: the node needs a restart once the job has ended.",
        wait="5m",
    ),
)
AGENTS = (
    critical(
        "SentinelNotScraped",
        f"absent({WATCHED})",
        "No agent is scraped: nobody watches the job",
        "`ray-sentinel status`; and check the scrape configuration.",
        wait="2m",
    ),
    warning(
        "AgentDown",
        'up{job="ray_sentinel"} == 0',
        "The agent at {{ $labels.instance }} does not answer",
        "The node is gone, or its agent is: `ray-sentinel status`.",
        wait="1m",
    ),
    warning(
        "StepsNotStored",
        'up{job="ray_sentinel_steps"} == 0',
        "The steps of {{ $labels.instance }} are not stored",
        "Set out_of_order_time_window, as `ray-sentinel prometheus config` prints it.",
        wait="5m",
    ),
    warning(
        "NodesUnwatched",
        "ray_sentinel_nodes_unwatched > 0",
        "Nodes of the cluster are not watched",
        "`ray-sentinel status` says which, and why.",
        wait="5m",
    ),
)
COORDINATOR = (
    critical(
        "CoordinatorGone",
        f"absent({_CYCLE}) unless absent({WATCHED})",
        "The coordinator is gone: hangs are not detected",
        "`ray-sentinel up` starts it again.",
        wait="2m",
    ),
    critical(
        "CoordinatorStandsStill",
        # Not against the scraper's clock, which may be another.
        f"changes({_CYCLE}[2m]) == 0",
        "The coordinator stands still: hangs are not detected",
        "Its log is in logs/ under log_dir.",
        wait="2m",
    ),
)

SENTINEL = AlertGroup("sentinel", AGENTS + COORDINATOR + COLLECTORS)
