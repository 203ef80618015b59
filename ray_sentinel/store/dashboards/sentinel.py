"""The sentinel itself: a blind watcher must not look healthy."""

from __future__ import annotations

from ray_sentinel.store.dashboards.model import (
    BAD_FROM_ONE,
    HOST,
    Dashboard,
    PanelRow,
    graph,
    stat,
    states,
    table,
)

OF = '{host=~"$host"}'
EACH = "{{host}} {{collector}}"
RATE = "[$__rate_interval]"

NOW = PanelRow(
    "Now",
    (
        stat("Nodes watched", "none", "max(ray_sentinel_agent_nodes)"),
        stat(
            "Nodes unwatched",
            "none",
            "max(ray_sentinel_nodes_unwatched)",
            steps=((1.0, "orange"),),
        ),
        stat(
            "Age of the coordinator's last cycle",
            "s",
            "time() - max(ray_sentinel_coordinator_last_cycle_timestamp_seconds)",
            steps=((15.0, "orange"), (60.0, "red")),
        ),
        stat(
            "Collectors that fail",
            "none",
            f"count(ray_sentinel_collector_success{OF} == 0) or vector(0)",
            steps=((1.0, "orange"),),
        ),
        stat(
            "Stuck or in quarantine",
            "none",
            'sum(ray_sentinel_collector_state{host=~"$host",state=~"stuck|quarantined"})'
            " or vector(0)",
            steps=BAD_FROM_ONE,
        ),
        stat(
            "Targets that do not answer",
            "none",
            'count(up{job=~"ray_sentinel.*"} == 0) or vector(0)',
            steps=BAD_FROM_ONE,
        ),
    ),
)
COLLECTORS = PanelRow(
    "Collectors",
    (
        states(
            "Success",
            (f"ray_sentinel_collector_success{OF}", EACH),
            steps=((0.0, "red"), (1.0, "green")),
        ),
        graph(
            "Time of a run",
            "s",
            (f"ray_sentinel_collector_duration_seconds{OF}", EACH),
        ),
        graph(
            "Time since the last success",
            "s",
            (f"time() - ray_sentinel_collector_last_success_timestamp_seconds{OF}", EACH),
            steps=((60.0, "orange"),),
        ),
        graph(
            "Missed deadlines",
            "none",
            (f"increase(ray_sentinel_collector_timeouts_total{OF}{RATE})", EACH),
        ),
        graph(
            "Started again",
            "none",
            (f"increase(ray_sentinel_collector_restarts_total{OF}{RATE})", EACH),
        ),
        graph(
            "Processes that cannot be killed",
            "none",
            (f"ray_sentinel_collector_unkillable_processes{OF}", EACH),
            steps=BAD_FROM_ONE,
        ),
        graph(
            "Not running",
            "none",
            (
                'sum by (collector, state) (ray_sentinel_collector_state{host=~"$host",'
                'state!="running"})',
                "{{collector}} {{state}}",
            ),
            about="Nodes. Skipped: the hardware is not there.",
        ),
        graph("A whole cycle", "s", (f"hw_scrape_duration_seconds{OF}", "{{host}}")),
        graph(
            "TensorBoard: corrupt records",
            "none",
            (f"tb_corrupt_records_total{OF}", "{{host}} {{run}}"),
        ),
    ),
)
COORDINATOR = PanelRow(
    "Coordinator",
    (
        graph("Time of a cycle", "s", ("ray_sentinel_coordinator_cycle_seconds", "{{host}}")),
        graph(
            "Incidents",
            "none",
            (
                "sum by (kind, severity) (ray_sentinel_incidents_total)",
                "{{kind}} {{severity}}",
            ),
            stacked=True,
        ),
        graph(
            "Runs of capturing tools",
            "none",
            (
                f"sum by (tool, outcome) (ray_sentinel_captures_total{OF})",
                "{{tool}} {{outcome}}",
            ),
            stacked=True,
        ),
        graph("Time of the last capture", "s", (f"ray_sentinel_capture_seconds{OF}", "{{host}}")),
        graph(
            "Scrapes",
            "s",
            ('scrape_duration_seconds{job=~"ray_sentinel.*"}', "{{instance}} {{job}}"),
        ),
        graph(
            "Samples of a scrape",
            "none",
            ('scrape_samples_scraped{job=~"ray_sentinel.*"}', "{{instance}} {{job}}"),
        ),
        table("Versions", f"ray_sentinel_build_info{OF}", width=24),
    ),
)

SENTINEL = Dashboard(
    name="sentinel",
    title="Sentinel health",
    about="The sentinel itself: a blind watcher must not look healthy.",
    rows=(NOW, COLLECTORS, COORDINATOR),
    variables=(HOST,),
)
