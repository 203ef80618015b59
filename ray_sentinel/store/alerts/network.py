"""Alerts on RDMA ports and network interfaces."""

from __future__ import annotations

from ray_sentinel.store.alerts.model import Alert, AlertGroup, grew

_PORT = "{{ $labels.device }} port {{ $labels.port }} of {{ $labels.host }}"

NETWORK = AlertGroup(
    "network",
    (
        Alert(
            name="RdmaPortDown",
            # A port that nobody ever plugged in has been down for as long as it is watched.
            expr="hw_rdma_port_state == 0 and max_over_time(hw_rdma_port_state[1d]) == 1",
            severity="critical",
            summary=f"RDMA port {_PORT} is down",
            action="Look at cable and switch port; the job hangs or is slow until it is back.",
        ),
        Alert(
            name="RdmaLinkFlaps",
            expr=grew("hw_rdma_link_downed_total", "30m"),
            severity="warning",
            summary=f"The link of {_PORT} went down within half an hour",
            action="Look at cable and switch port.",
        ),
        Alert(
            name="RdmaRetriesExceeded",
            expr=grew("hw_rdma_req_tx_retry_excd_err_total"),
            severity="critical",
            summary=f"A connection over {_PORT} was given up after all retries",
            action="The rank's collective fails or hangs: look at the path to its peer.",
        ),
        Alert(
            name="RdmaAckTimeouts",
            expr="rate(hw_rdma_tx_ack_timeout_total[5m]) > 1",
            severity="warning",
            wait="5m",
            summary=f"Peers of {_PORT} do not acknowledge in time",
            action="Look for congestion, a bad cable on the path, or a peer that is stuck.",
        ),
        Alert(
            name="RdmaRetransmits",
            expr="rate(hw_rdma_tx_retx_pkts_total[5m]) > 0.001 * rate(hw_rdma_tx_pkts_total[5m])",
            severity="warning",
            wait="10m",
            summary=f"More than 0.1 % of the packets of {_PORT} are sent again",
            action="Packets are lost on the path: look at flow control, cables and switches.",
        ),
        Alert(
            name="RdmaSymbolErrors",
            expr="increase(hw_rdma_symbol_errors_total[1h]) > 120",
            severity="warning",
            summary=f"More than 120 symbol errors an hour on {_PORT}",
            action="Beyond what InfiniBand allows for: clean or replace the cable.",
        ),
        Alert(
            name="NetworkErrors",
            expr="rate(hw_net_rx_errors_total[5m]) + rate(hw_net_tx_errors_total[5m]) > 1",
            severity="warning",
            wait="10m",
            summary="{{ $labels.device }} of {{ $labels.host }} has errors",
            action="Look at cable, transceiver and switch port.",
        ),
    ),
)
