"""Which file of which RDMA driver holds which metric: the one table.

Paths are relative to ``/sys/class/infiniband/<device>/ports/<port>``. ``counters`` are the PMA
counters of the InfiniBand standard, whose ``port_*_data`` count words of four bytes;
``hw_counters`` are the driver's own, in bytes. Names are from the drivers' sources
(drivers/infiniband/hw/*/): mlx4 ``main.c``, mlx5 ``counters.c``, bnxt_re ``hw_counters.c`` (which
took over mlx5's names in 2025), ionic (its firmware's names), efa ``efa_verbs.c``, irdma and i40iw
``verbs.c``, hfi1 ``verbs.c``, mana ``counters.c``, erdma ``erdma_verbs.c``, rxe
``rxe_hw_counters.c``. A metric that a driver does not count has no entry for it.
"""

from __future__ import annotations

import msgspec

from ray_sentinel.api import Metric

WORD = 4


class CounterFiles(msgspec.Struct, frozen=True):
    """Files whose sum, times ``scale``, is a metric's value; all of them are needed.

    ``wide`` is the same counter in 64 bits, for kernels before 4.10 whose ``counters`` stop at
    2^32-1.
    """

    files: tuple[str, ...]
    scale: int = 1
    wide: str = ""


def _pma(name: str, scale: int = 1) -> CounterFiles:
    return CounterFiles((f"counters/{name}",), scale, f"counters_ext/{name}_64")


def _hw(*names: str) -> CounterFiles:
    return CounterFiles(tuple(f"hw_counters/{name}" for name in names))


def _counter(name: str, text: str) -> Metric:
    return Metric(name, "counter", text, ("device", "port"))


# The first source of which a port has all files is the metric's.
COUNTERS: dict[Metric, tuple[CounterFiles, ...]] = {
    _counter("hw_rdma_rx_bytes_total", "Bytes received over RDMA."): (
        _pma("port_rcv_data", WORD),
        _hw("rx_rdma_ucast_bytes"),  # ionic
        _hw("rx_bytes"),  # bnxt_re, efa, mana
        _hw("ip4InOctets", "ip6InOctets"),  # irdma, i40iw
        _hw("hw_rx_bytes_cnt"),  # erdma
    ),
    _counter("hw_rdma_tx_bytes_total", "Bytes sent over RDMA."): (
        _pma("port_xmit_data", WORD),
        _hw("tx_rdma_ucast_bytes"),
        _hw("tx_bytes"),
        _hw("ip4OutOctets", "ip6OutOctets"),
        _hw("hw_tx_bytes_cnt"),
    ),
    _counter("hw_rdma_rx_pkts_total", "Packets received over RDMA."): (
        _pma("port_rcv_packets"),
        _hw("rx_rdma_ucast_pkts"),
        _hw("rx_pkts"),
        _hw("ip4InPkts", "ip6InPkts"),
        _hw("rx_packets"),  # mana
        _hw("hw_rx_packets_cnt"),
        _hw("rcvd_pkts"),  # rxe
    ),
    _counter("hw_rdma_tx_pkts_total", "Packets sent over RDMA."): (
        _pma("port_xmit_packets"),
        _hw("tx_rdma_ucast_pkts"),
        _hw("tx_pkts"),
        _hw("ip4OutPkts", "ip6OutPkts"),
        _hw("tx_packets"),
        _hw("hw_tx_packets_cnt"),
        _hw("sent_pkts"),
    ),
    _counter("hw_rdma_tx_retx_bytes_total", "Bytes sent again."): (
        _hw("tx_rdma_retx_bytes"),
        _hw("retrans_bytes"),  # efa
    ),
    _counter("hw_rdma_tx_retx_pkts_total", "Packets sent again."): (
        _hw("tx_rdma_retx_pkts"),
        _hw("retrans_pkts"),
        _hw("RcResend"),  # hfi1
        _hw("RetransSegs"),  # irdma
        _hw("tcpRetransSegs"),  # i40iw, irdma before 6.1
    ),
    _counter("hw_rdma_tx_ack_timeout_total", "Timeouts while waiting for an acknowledgement."): (
        _hw("tx_rdma_ack_timeout"),
        _hw("local_ack_timeout_err"),  # mlx5
        _hw("sq_num_to"),  # mlx4
        _hw("to_retransmits"),  # bnxt_re
        _hw("retrans_timeout_events"),  # efa
        _hw("RcTimeOut"),  # hfi1
        _hw("requester_timeout"),  # mana
        _hw("RTO"),  # irdma since its third generation
    ),
    _counter("hw_rdma_rx_cnp_pkts_total", "Congestion notifications received."): (
        _hw("rx_rdma_cnp_pkts"),
        _hw("rp_cnp_handled"),  # mlx5
        _hw("rx_cnp_pkts"),  # bnxt_re
        _hw("cnpHandled"),  # irdma
        _hw("received_cnps"),  # mana
    ),
    _counter("hw_rdma_tx_cnp_pkts_total", "Congestion notifications sent."): (
        _hw("tx_rdma_cnp_pkts"),
        _hw("np_cnp_sent"),
        _hw("tx_cnp_pkts"),
        _hw("np_cnp_pkts"),  # bnxt_re since 2025
        _hw("cnpSent"),
        _hw("sent_cnps"),
    ),
    _counter("hw_rdma_req_rx_cqe_err_total", "Requests completed with an error."): (
        _hw("req_rx_cqe_err"),
        _hw("req_cqe_error"),
    ),
    _counter("hw_rdma_req_tx_retry_excd_err_total", "Requests given up after all retries."): (
        _hw("req_tx_retry_excd_err"),
        _hw("req_transport_retries_exceeded"),
        _hw("sq_num_tree"),
        _hw("max_retry_exceeded"),
        _hw("requester_retries_exceeded"),
        _hw("retry_exceeded_err"),  # rxe
    ),
    _counter("hw_rdma_link_downed_total", "How often the link failed and could not recover."): (
        CounterFiles(("counters/link_downed",)),
        _hw("link_downed"),  # rxe
    ),
    _counter("hw_rdma_symbol_errors_total", "Symbol errors on the link."): (
        CounterFiles(("counters/symbol_error",)),
    ),
}
