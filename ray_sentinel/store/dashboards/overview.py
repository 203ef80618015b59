"""The first look: does the job go on, and is everything watched?"""

from __future__ import annotations

from ray_sentinel.store.dashboards.model import (
    BAD_FROM_ONE,
    HOST,
    JOB,
    Dashboard,
    PanelRow,
    graph,
    stat,
    states,
    table,
)

NOW = PanelRow(
    "Now",
    (
        stat("Step", "none", 'max(train_step{job=~"$job"})'),
        stat(
            "Time since the last step",
            "s",
            'min(train_step_age_seconds{job=~"$job"})',
            steps=((60.0, "orange"), (600.0, "red")),
            about="Of the rank that stepped last: it grows only when nobody steps.",
        ),
        stat(
            "Ranks gone",
            "none",
            'sum(1 - train_rank_alive{job=~"$job"})',
            steps=BAD_FROM_ONE,
            about="Ranks whose process has ended. At the end of a job that is all of them.",
        ),
        stat(
            "Active incidents",
            "none",
            'count(ray_sentinel_incident_active{job=~"$job"}) or vector(0)',
            steps=BAD_FROM_ONE,
        ),
        stat("Nodes watched", "none", "max(ray_sentinel_agent_nodes)"),
        stat(
            "Nodes unwatched",
            "none",
            "max(ray_sentinel_nodes_unwatched)",
            steps=((1.0, "orange"),),
        ),
    ),
)
PROGRESS = PanelRow(
    "Progress",
    (
        graph("Step over time", "none", ('max by (job) (train_step{job=~"$job"})', "{{job}}")),
        graph(
            "Time of a step",
            "s",
            ('max by (job) (train_step_seconds{job=~"$job"})', "{{job}} slowest rank"),
            ('quantile by (job) (0.5, train_step_seconds{job=~"$job"})', "{{job}} median"),
        ),
        graph(
            "Ranks alive",
            "none",
            ('sum by (job) (train_rank_alive{job=~"$job"})', "{{job}} alive"),
            ('max by (job) (train_world_size{job=~"$job"})', "{{job}} world size"),
        ),
        graph(
            "Ranks by phase",
            "none",
            ('count by (phase) (train_phase{job=~"$job"})', "{{phase}}"),
            stacked=True,
        ),
        states(
            "Incidents",
            ('max by (job, kind) (ray_sentinel_incident_active{job=~"$job"})', "{{job}} {{kind}}"),
            steps=BAD_FROM_ONE,
        ),
        table(
            "Firing alerts",
            'ALERTS{alertstate="firing"}',
            about="Of the rules that `ray-sentinel prometheus rules` prints.",
        ),
    ),
)
MACHINES = PanelRow(
    "Machines",
    (
        graph(
            "GPU utilisation",
            "percentunit",
            ('avg by (host) (hw_gpu_utilization_ratio{host=~"$host"})', "{{host}}"),
            most=1.0,
            hardware="a GPU",
        ),
        graph(
            "GPU power",
            "watt",
            ('sum by (host) (hw_gpu_power_watts{host=~"$host"})', "{{host}}"),
            about="A GPU that waits in a collective is utilised, and draws little: trust power.",
            hardware="a GPU",
        ),
        graph(
            "Memory in use",
            "percentunit",
            (
                '1 - hw_mem_available_bytes{host=~"$host"} / hw_mem_total_bytes{host=~"$host"}',
                "{{host}}",
            ),
            most=1.0,
            steps=((0.97, "red"),),
        ),
        graph(
            "RDMA, sent",
            "Bps",
            (
                'sum by (host) (rate(hw_rdma_tx_bytes_total{host=~"$host"}[$__rate_interval]))',
                "{{host}}",
            ),
            hardware="an RDMA adapter",
        ),
        graph(
            "Network, sent",
            "Bps",
            (
                'sum by (host) (rate(hw_net_tx_bytes_total{host=~"$host",device!="lo"}'
                "[$__rate_interval]))",
                "{{host}}",
            ),
        ),
        graph(
            "Waiting for storage",
            "percent",
            ('hw_io_pressure_full_pct{host=~"$host"}', "{{host}}"),
            most=100.0,
            steps=((50.0, "red"),),
        ),
    ),
)
RAY = PanelRow(
    "Ray",
    (
        graph(
            "Resources given out",
            "percentunit",
            (
                "sum by (resource) (ray_cluster_resource_used)"
                " / sum by (resource) (ray_cluster_resource)",
                "{{resource}}",
            ),
            most=1.0,
        ),
        graph(
            "Resources waited for",
            "none",
            ("sum by (resource) (ray_cluster_resource_asked)", "{{resource}}"),
            about="By tasks, actors and placement groups. What stays here cannot be had.",
        ),
        graph(
            "Nodes and actors",
            "none",
            ("sum by (state) (ray_cluster_nodes)", "nodes {{state}}"),
            ("sum by (state) (ray_cluster_actors)", "actors {{state}}"),
            ("sum by (cause) (ray_cluster_dead_actors)", "actors dead: {{cause}}"),
        ),
    ),
)

OVERVIEW = Dashboard(
    name="overview",
    title="Job overview",
    about="Does the job go on, and is everything watched?",
    rows=(NOW, PROGRESS, MACHINES, RAY),
    variables=(JOB, HOST),
)
