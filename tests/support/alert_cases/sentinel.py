"""Cases of the rules about the sentinel itself."""

from tests.support.alert_cases.case import WATCHED, Case, fires, quiet

HOST = {"host": "n1", "collector": "nvml"}
COLLECTOR = 'host="n1",collector="nvml"'
STATE = "ray_sentinel_collector_state"
CYCLE = "ray_sentinel_coordinator_last_cycle_timestamp_seconds"

WAITING = {'ray_sentinel_event_log_waiting_limit_bytes{host="n1"}': "67108864x60"}
SERIES = {'ray_sentinel_series_limit_bytes{host="n1"}': "268435456x60"}
MEMORY = {
    'ray_sentinel_memory_limit_bytes{host="n1",process="coordinator"}': "2147483648x60",
    'ray_sentinel_memory_limit_bytes{host="n1",process="agent"}': "1073741824x60",
}
DUE = 'ray_sentinel_reports_due_per_second{host="n1"}'
RELAYS_WANTED = 'ray_sentinel_relays_wanted{host="n1"}'
LOST_EXITS = 'ray_sentinel_agent_lost_total{host="n1",what="exits"}'
LOST_EVENTS = 'ray_sentinel_agent_lost_total{host="n1",what="events"}'
TAKEN = 'ray_sentinel_reports_total{host="n1"}'

CASES: tuple[Case, ...] = (
    fires("SentinelNotScraped", "nothing at all", {"up": "0x60"}, {}),
    fires("SentinelNotScraped", "gone", {WATCHED: "1x10 stale"}, {}),
    quiet("SentinelNotScraped", "one agent is enough", {WATCHED: "1x60"}),
    quiet("SentinelNotScraped", "a gap", {WATCHED: "1x27 stale 1x9"}, at="14m30s"),
    fires(
        "AgentDown",
        "one of two",
        {
            'up{job="ray_sentinel",instance="a:9400"}': "1x20 0x20",
            'up{job="ray_sentinel",instance="b:9400"}': "1x40",
        },
        {"job": "ray_sentinel", "instance": "a:9400"},
    ),
    quiet(
        "AgentDown",
        "one scrape that failed, and another job's target",
        {
            'up{job="ray_sentinel",instance="a:9400"}': "1x28 0 1x20",
            'up{job="other",instance="b:1"}': "0x60",
        },
    ),
    fires(
        "StepsNotStored",
        "too old for the window",
        {'up{job="ray_sentinel_steps",instance="a:9400"}': "0x60"},
        {"job": "ray_sentinel_steps", "instance": "a:9400"},
    ),
    quiet("StepsNotStored", "well", {'up{job="ray_sentinel_steps",instance="a:9400"}': "1x60"}),
    fires(
        "NodesUnwatched",
        "for long",
        {'ray_sentinel_nodes_unwatched{host="n1"}': "2x60"},
        {"host": "n1"},
    ),
    quiet(
        "NodesUnwatched",
        "a node that just joined",
        {'ray_sentinel_nodes_unwatched{host="n1"}': "0x25 1x4 0x20"},
    ),
    fires("CoordinatorGone", "agents go on", {WATCHED: "1x60"}, {}),
    quiet("CoordinatorGone", "it is there", {WATCHED: "1x60", CYCLE: "0+30x60"}),
    quiet("CoordinatorGone", "nothing is scraped: another alert says so", {"up": "0x60"}),
    fires("CoordinatorStandsStill", "the time of its cycle stays", {CYCLE: "0+30x10 300x60"}, {}),
    quiet("CoordinatorStandsStill", "it goes on", {CYCLE: "0+30x60"}),
    quiet("CoordinatorStandsStill", "its clock is an hour behind", {CYCLE: "-3600+30x60"}),
    fires(
        "CoordinatorSlow",
        "for long",
        {'ray_sentinel_coordinator_cycle_seconds{host="n1"}': "2.5x60"},
        {"host": "n1"},
    ),
    quiet(
        "CoordinatorSlow",
        "one cycle",
        {'ray_sentinel_coordinator_cycle_seconds{host="n1"}': "0.1x28 5 0.1x30"},
    ),
    fires(
        "ReportsSlow",
        "one node of two",
        {
            'ray_sentinel_report_seconds{host="n1"}': "3x60",
            'ray_sentinel_report_seconds{host="n2"}': "0.1x60",
        },
        {"host": "n1"},
    ),
    quiet(
        "ReportsSlow",
        "while the coordinator was started again",
        {'ray_sentinel_report_seconds{host="n1"}': "0.1x25 5x4 0.1x30"},
    ),
    fires(
        "ReportsMissing",
        "a coordinator that takes half of them",
        {DUE: "1000x60", TAKEN: "0+15000x60"},
        {"host": "n1"},
    ),
    quiet(
        "ReportsMissing",
        "all of 1,000 nodes every two seconds",
        {DUE: "500x60", TAKEN: "0+15000x60"},
    ),
    quiet(
        "ReportsMissing",
        "nodes that have just come",
        {DUE: "100x23 1000x40", TAKEN: "0+3000x23 99000+30000x40"},
    ),
    quiet(
        "ReportsMissing",
        "a coordinator that was started again",
        {DUE: "1000x60", TAKEN: "0+30000x24 30000+30000x40"},
    ),
    fires(
        "RelaysMissing",
        "one that hangs, and none could be made elsewhere",
        {'ray_sentinel_relays{host="n1"}': "15x60", RELAYS_WANTED: "16x60"},
        {"host": "n1"},
    ),
    quiet(
        "RelaysMissing",
        "one that was replaced",
        {'ray_sentinel_relays{host="n1"}': "16x25 15x4 16x30", RELAYS_WANTED: "16x60"},
    ),
    quiet(
        "RelaysMissing",
        "a small cluster",
        {'ray_sentinel_relays{host="n1"}': "0x60", RELAYS_WANTED: "0x60"},
    ),
    quiet(
        "RelaysMissing",
        "nodes that have just gone",
        {'ray_sentinel_relays{host="n1"}': "16x60", RELAYS_WANTED: "16x20 15x40"},
    ),
    fires(
        "AgentLostEvents",
        "the coordinator was away for long",
        {LOST_EXITS: "0x60", LOST_EVENTS: "0x25 40x40"},
        {"host": "n1", "what": "events"},
    ),
    quiet("AgentLostEvents", "long ago", {LOST_EXITS: "7x60", LOST_EVENTS: "40x60"}),
    quiet(
        "AgentLostEvents",
        "an agent that was started again",
        {LOST_EXITS: "7x25 0x40", LOST_EVENTS: "40x25 0x40"},
    ),
    fires(
        "EventLogIncomplete",
        "a disk that hung",
        {'ray_sentinel_event_log_missing_total{host="n1"}': "0x25 400x40"},
        {"host": "n1"},
    ),
    quiet(
        "EventLogIncomplete",
        "long ago",
        {'ray_sentinel_event_log_missing_total{host="n1"}': "400x60"},
    ),
    fires(
        "EventLogWaits",
        "a slow disk",
        {'ray_sentinel_event_log_waiting_bytes{host="n1"}': "40000000x60", **WAITING},
        {"host": "n1"},
    ),
    quiet(
        "EventLogWaits",
        "for a moment",
        {'ray_sentinel_event_log_waiting_bytes{host="n1"}': "0x25 60000000x4 0x20", **WAITING},
    ),
    fires(
        "SeriesFull",
        "more than there is room for",
        {'ray_sentinel_series_bytes{host="n1"}': "270000000x60", **SERIES},
        {"host": "n1"},
    ),
    quiet(
        "SeriesFull",
        "as much as they may",
        {'ray_sentinel_series_bytes{host="n1"}': "250000000x60", **SERIES},
    ),
    fires(
        "SentinelMemoryHigh",
        "the coordinator",
        {'ray_sentinel_memory_bytes{host="n1",process="coordinator"}': "3000000000x60", **MEMORY},
        {"host": "n1", "process": "coordinator"},
    ),
    quiet(
        "SentinelMemoryHigh",
        "what a coordinator may take",
        {
            'ray_sentinel_memory_bytes{host="n1",process="coordinator"}': "1500000000x60",
            'ray_sentinel_memory_bytes{host="n1",process="agent"}': "200000000x60",
            **MEMORY,
        },
    ),
    fires(
        "SentinelMemoryShort",
        "the first part is let go",
        {
            'ray_sentinel_memory_shed_total{host="n1",part="history"}': "0x25 1x40",
            'ray_sentinel_memory_shed_total{host="n1",part="series"}': "0x60",
        },
        {"host": "n1", "part": "history"},
    ),
    quiet(
        "SentinelMemoryShort",
        "long ago",
        {'ray_sentinel_memory_shed_total{host="n1",part="history"}': "4x60"},
    ),
    fires(
        "CollectorStuck",
        "in a driver",
        {f'{STATE}{{{COLLECTOR},state="stuck"}}': "0x10 1x60"},
        {**HOST, "state": "stuck"},
    ),
    quiet(
        "CollectorStuck",
        "another state",
        {
            f'{STATE}{{{COLLECTOR},state="stuck"}}': "0x60",
            f'{STATE}{{{COLLECTOR},state="skipped"}}': "1x60",
        },
    ),
    fires(
        "CollectorQuarantined",
        "for long",
        {f'{STATE}{{{COLLECTOR},state="quarantined"}}': "1x60"},
        {**HOST, "state": "quarantined"},
    ),
    quiet(
        "CollectorQuarantined",
        "it came back",
        {f'{STATE}{{{COLLECTOR},state="quarantined"}}': "1x20 0x60"},
    ),
    fires(
        "CollectorFails", "always", {f"ray_sentinel_collector_success{{{COLLECTOR}}}": "0x60"}, HOST
    ),
    quiet(
        "CollectorFails",
        "now and then",
        {f"ray_sentinel_collector_success{{{COLLECTOR}}}": "0x15 1 0x20"},
    ),
    fires(
        "CollectorRestartsOften",
        "ten times",
        {f"ray_sentinel_collector_restarts_total{{{COLLECTOR}}}": "0+1x10 10x60"},
        HOST,
    ),
    quiet(
        "CollectorRestartsOften",
        "many, but long ago",
        {f"ray_sentinel_collector_restarts_total{{{COLLECTOR}}}": "50x60"},
    ),
    fires(
        "CollectorUnkillable",
        "one is left",
        {f"ray_sentinel_collector_unkillable_processes{{{COLLECTOR}}}": "1x60"},
        HOST,
    ),
    quiet(
        "CollectorUnkillable",
        "none",
        {f"ray_sentinel_collector_unkillable_processes{{{COLLECTOR}}}": "0x60"},
    ),
)
