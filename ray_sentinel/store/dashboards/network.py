"""RDMA ports, network interfaces, TCP."""

from __future__ import annotations

from ray_sentinel.store.dashboards.model import (
    BAD_FROM_ONE,
    HOST,
    Dashboard,
    Panel,
    PanelRow,
    Variable,
    graph,
    states,
)

DEVICE = Variable(
    name="device",
    title="Interface",
    query='label_values(hw_net_rx_bytes_total{host=~"$host"}, device)',
)
RDMA = "an RDMA adapter"
PORT = "{{host}} {{device}}/{{port}}"


def _rdma(title: str, unit: str, *counters: tuple[str, str], **more: object) -> Panel:
    """Rates of counters of a port."""
    queries = (
        (
            f'rate(hw_rdma_{name}_total{{host=~"$host"}}[$__rate_interval])',
            f"{PORT} {what}".strip(),
        )
        for name, what in counters
    )
    return graph(title, unit, *queries, hardware=RDMA, **more)


def _net(title: str, unit: str, what: str, **more: object) -> Panel:
    queries = (
        (
            f'rate(hw_net_{way}_{what}_total{{host=~"$host",device=~"$device"}}[$__rate_interval])',
            f"{{{{host}}}} {{{{device}}}} {way}",
        )
        for way in ("rx", "tx")
    )
    return graph(title, unit, *queries, **more)


def _tcp(title: str, *counters: tuple[str, str], **more: object) -> Panel:
    queries = (
        (f'rate(hw_tcp_{name}_total{{host=~"$host"}}[$__rate_interval])', f"{{{{host}}}} {what}")
        for name, what in counters
    )
    return graph(title, "cps", *queries, **more)


PORTS = PanelRow(
    "RDMA",
    (
        _rdma("Received", "Bps", ("rx_bytes", "")),
        _rdma("Sent", "Bps", ("tx_bytes", "")),
        states(
            "Port is up",
            ('hw_rdma_port_state{host=~"$host"}', PORT),
            steps=((0.0, "red"), (1.0, "green")),
            hardware=RDMA,
        ),
        _rdma("Packets", "pps", ("rx_pkts", "received"), ("tx_pkts", "sent")),
        _rdma("Sent again", "pps", ("tx_retx_pkts", "")),
        _rdma("Sent again, bytes", "Bps", ("tx_retx_bytes", "")),
        _rdma(
            "Time-outs and failed requests",
            "cps",
            ("tx_ack_timeout", "no acknowledgement"),
            ("req_tx_retry_excd_err", "retries exceeded"),
            ("req_rx_cqe_err", "failed completions"),
        ),
        _rdma(
            "Congestion notices",
            "pps",
            ("rx_cnp_pkts", "received"),
            ("tx_cnp_pkts", "sent"),
            about="Some are everyday life; a rise on one port alone points at its path.",
        ),
        graph(
            "Link errors",
            "none",
            (
                'increase(hw_rdma_link_downed_total{host=~"$host"}[$__rate_interval])',
                f"{PORT} went down",
            ),
            (
                'increase(hw_rdma_symbol_errors_total{host=~"$host"}[$__rate_interval])',
                f"{PORT} symbol errors",
            ),
            steps=BAD_FROM_ONE,
            hardware=RDMA,
        ),
    ),
)
INTERFACES = PanelRow(
    "Interfaces",
    (
        _net("Traffic", "Bps", "bytes"),
        _net("Errors", "pps", "errors"),
        _net("Dropped", "pps", "drop"),
    ),
)
TCP = PanelRow(
    "TCP",
    (
        _tcp(
            "Segments sent again",
            ("retransmits", ""),
            about="A burst before a stall: the network was lost for a moment.",
        ),
        _tcp("Connections lost", ("estab_resets", "reset"), ("abort_on_timeout", "timed out")),
        _tcp(
            "Connections refused",
            ("listen_overflows", "queue full"),
            ("listen_drops", "dropped"),
            about="A server that does not accept fast enough: a rendezvous, a file server.",
        ),
    ),
)

NETWORK = Dashboard(
    name="network",
    title="Network",
    about="RDMA ports, network interfaces, TCP.",
    rows=(PORTS, INTERFACES, TCP),
    variables=(HOST, DEVICE),
)
