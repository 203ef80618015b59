"""Cases of the rules about ports and interfaces."""

from tests.support.alert_cases.case import Case, fires, quiet

PORT = {"host": "n1", "device": "mlx5_0", "port": "1"}
OF_PORT = 'host="n1",device="mlx5_0",port="1"'
NIC = {"host": "n1", "device": "eth0"}
OF_NIC = 'host="n1",device="eth0"'


def rdma(name: str) -> str:
    return f"hw_rdma_{name}{{{OF_PORT}}}"


CASES: tuple[Case, ...] = (
    fires("RdmaPortDown", "it was up", {rdma("port_state"): "1x20 0x40"}, PORT),
    quiet("RdmaPortDown", "never plugged in", {rdma("port_state"): "0x60"}),
    quiet("RdmaPortDown", "it came back", {rdma("port_state"): "1x10 0x10 1x40"}),
    fires("RdmaLinkFlaps", "once", {rdma("link_downed_total"): "3x20 4x40"}, PORT),
    quiet("RdmaLinkFlaps", "not since we look", {rdma("link_downed_total"): "3x60"}),
    fires("RdmaRetriesExceeded", "one", {rdma("req_tx_retry_excd_err_total"): "0x20 1x40"}, PORT),
    quiet("RdmaRetriesExceeded", "old ones", {rdma("req_tx_retry_excd_err_total"): "9x60"}),
    fires("RdmaAckTimeouts", "two a second", {rdma("tx_ack_timeout_total"): "0+60x60"}, PORT),
    quiet("RdmaAckTimeouts", "one a minute", {rdma("tx_ack_timeout_total"): "0+0.5x60"}),
    fires(
        "RdmaRetransmits",
        "one in a hundred",
        {rdma("tx_retx_pkts_total"): "0+100x60", rdma("tx_pkts_total"): "0+10000x60"},
        PORT,
    ),
    quiet(
        "RdmaRetransmits",
        "one in a million",
        {rdma("tx_retx_pkts_total"): "0+1x60", rdma("tx_pkts_total"): "0+1000000x60"},
    ),
    quiet(
        "RdmaRetransmits",
        "nothing is sent at all",
        {rdma("tx_retx_pkts_total"): "5x60", rdma("tx_pkts_total"): "100x60"},
    ),
    fires("RdmaSymbolErrors", "many", {rdma("symbol_errors_total"): "0+5x200"}, PORT, at="70m"),
    quiet("RdmaSymbolErrors", "few", {rdma("symbol_errors_total"): "0+0.5x200"}, at="70m"),
    fires(
        "NetworkErrors",
        "received",
        {
            f"hw_net_rx_errors_total{{{OF_NIC}}}": "0+90x60",
            f"hw_net_tx_errors_total{{{OF_NIC}}}": "0x60",
        },
        NIC,
    ),
    quiet(
        "NetworkErrors",
        "one now and then",
        {
            f"hw_net_rx_errors_total{{{OF_NIC}}}": "0x20 1x40",
            f"hw_net_tx_errors_total{{{OF_NIC}}}": "0x60",
        },
    ),
)
