"""Alerts on RDMA ports and network interfaces."""

from __future__ import annotations

from ray_sentinel.store.alerts.model import AlertGroup, critical, grew, warning

_PORT = "{{ $labels.device }} port {{ $labels.port }} of {{ $labels.host }}"

NETWORK = AlertGroup(
    "network",
    (
        critical(
            "RdmaPortDown",
            # A port that nobody ever plugged in has been down for as long as it is watched.
            "hw_rdma_port_state == 0 and max_over_time(hw_rdma_port_state[1d]) == 1",
            f"RDMA port {_PORT} is down",
            "Look at cable and switch port; the job hangs or is slow until it is back.",
        ),
        warning(
            "RdmaLinkFlaps",
            grew("hw_rdma_link_downed_total", "30m"),
            f"The link of {_PORT} went down within half an hour",
            "Look at cable and switch port.",
        ),
        critical(
            "RdmaRetriesExceeded",
            grew("hw_rdma_req_tx_retry_excd_err_total"),
            f"A connection over {_PORT} was given up after all retries",
            "The rank's collective fails or hangs: look at the path to its peer.",
        ),
        warning(
            "RdmaAckTimeouts",
            "rate(hw_rdma_tx_ack_timeout_total[5m]) > 1",
            f"Peers of {_PORT} do not acknowledge in time",
            "Look for congestion, a bad cable on the path, or a peer that is stuck.",
            wait="5m",
        ),
        warning(
            "RdmaRetransmits",
            "rate(hw_rdma_tx_retx_pkts_total[5m]) > 0.001 * rate(hw_rdma_tx_pkts_total[5m])",
            f"More than 0.1 % of the packets of {_PORT} are sent again",
            "Packets are lost on the path: look at flow control, cables and switches.",
            wait="10m",
        ),
        warning(
            "RdmaSymbolErrors",
            "increase(hw_rdma_symbol_errors_total[1h]) > 120",
            f"More than 120 symbol errors an hour on {_PORT}",
            "Beyond what InfiniBand allows for: clean or replace the cable.",
        ),
        warning(
            "NetworkErrors",
            "rate(hw_net_rx_errors_total[5m]) + rate(hw_net_tx_errors_total[5m]) > 1",
            "{{ $labels.device }} of {{ $labels.host }} has errors",
            "Look at cable, transceiver and switch port.",
            wait="10m",
        ),
    ),
)
