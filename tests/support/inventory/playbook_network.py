"""The playbook of the network's health: what it looks at, its thresholds, what follows."""

from __future__ import annotations

from pathlib import Path

from tests.support.inventory.planted import (
    ACK,
    CNP,
    NET,
    RETX,
    TCP,
    both,
    card,
    down,
    host,
    link,
    old,
    slower,
)
from tests.support.inventory.row import Check, Row
from tests.support.inventory.series import (
    answer,
    cause,
    clear,
    scenario,
    told,
)
from tests.support.tsdb_scenarios.world import World


def never_up(world: World) -> None:
    """A port that is not cabled."""
    world.port_state[1, 1] = 0.0


RETRY, CQE = "hw_rdma_req_tx_retry_excd_err_total", "hw_rdma_req_rx_cqe_err_total"
BAD_LINK = both(link(RETX, 500), link(ACK, 2), slower(1.25))


def _no_exclusion(folder: Path) -> None:
    found = answer(NET, host(TCP, 20))
    assert not found.culprits
    assert not [row for table in found.tables for row in table.rows if "node002" in row]
    jammed = answer(NET, both(host(TCP, 20), BAD_LINK))
    rows = [row for table in jammed.tables for row in table.rows]
    assert [row[0] for row in rows if "node002" in row] == ["2"]
    assert "Do not exclude nodes for TCP" in " ".join(jammed.next_steps)


ROWS = [
    # Network health
    Row(
        "net.tcp",
        "TCP retransmits above 10 a second",
        told(NET, host(TCP, 20), "TCP retransmits up to", below=host(TCP, 2)),
    ),
    Row(
        "net.tcp-innocent",
        "which slow no collective where RDMA carries them",
        clear(host(TCP, 2000)),
    ),
    Row(
        "net.retx",
        "RDMA retransmits that last",
        told(NET, link(RETX, 50), "RDMA retransmits on rdma1/1 of node002"),
    ),
    Row(
        "net.ack",
        "time-outs: a link or a switch",
        told(NET, link(ACK, 1), "ACK timeouts on rdma1/1 of node002", "a link or a switch"),
    ),
    Row(
        "net.port",
        "a port that goes down",
        cause(NET, down, "rdma-link", "node002", below=never_up),
    ),
    Row(
        "net.congestion",
        "notifications on many nodes: the switch",
        cause(NET, link(CNP, 2000, everywhere=True), "congestion"),
    ),
    Row(
        "net.retry",
        "retries that run out: packets are lost for good",
        cause(NET, link(RETRY, 0.1), "rdma-link", "node002"),
    ),
    Row(
        "net.cqe",
        "completions with errors",
        told(NET, link(CQE, 0.1), "completion errors on rdma1/1 of node002", "a link or a switch"),
    ),
    Row(
        "net.rx",
        "a card's receive errors",
        cause(
            NET,
            card("hw_net_rx_errors_total", 5),
            "nic-errors",
            "node002",
            below=card("hw_net_rx_errors_total", 0),
        ),
    ),
    Row(
        "net.tx",
        "a card's transmit errors",
        cause(
            NET,
            card("hw_net_tx_errors_total", 5),
            "nic-errors",
            "node002",
            below=card("hw_net_tx_errors_total", 0),
        ),
    ),
    Row(
        "net.abort",
        "connections given up",
        told(NET, host("hw_tcp_abort_on_timeout_total", 0.2), "connections aborted on timeout"),
    ),
    Row(
        "net.slow",
        "a bad link slows every step of all",
        cause(NET, BAD_LINK, "rdma-link", "node002", below=slower(1.25)),
    ),
    Row("net.device", "with its device and port", told(NET, BAD_LINK, "rdma1/1 of node002")),
    Row("net.boot", "counts from before the job say nothing", clear(old)),
    Row(
        "net.phases",
        "links that are bad by turns, and steps that follow them",
        scenario("network-phases"),
    ),
    Row("net.recovery", "steps are fast again when it ends", scenario("network-transient")),
    Row(
        "net.transient",
        "a storm of TCP beside it misleads nobody",
        scenario("network-beside-a-storm"),
    ),
    *(
        Row(f"net.priority-{number}", what, told(NET, plant, word))
        for number, what, plant, word in (
            (1, "exhausted retries go first", link(RETRY, 0.1), "packets are lost for good"),
            (
                2,
                "retransmits with time-outs next",
                both(link(RETX, 50), link(ACK, 1)),
                "retransmits with errors",
            ),
            (
                3,
                "congestion is a switch's rather than a node's",
                link(CNP, 2000, everywhere=True),
                "the fabric, not a node",
            ),
            (4, "TCP alone excludes nobody", host(TCP, 20), "not the collectives' path"),
        )
    ),
    Row(
        "net.exclude-never",
        "for TCP no node is excluded",
        Check("diagnose: network-health", _no_exclusion),
    ),
]
