"""Network devices and TCP, from ``/proc/net`` (``man 5 proc_pid_net``)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ray_sentinel.api import Metric, Sample
from ray_sentinel.text import natural
from ray_sentinel_plugins._files import Files, clean, counter

MAX_DEVICES = 256
"""Most devices that get series: a node of a large Kubernetes cluster has hundreds of virtual
ones."""
_VIRTUAL = ("veth", "cali", "lxc", "tap", "vnet", "docker", "br-")


def _device(name: str, text: str) -> Metric:
    return Metric(name, "counter", text, ("device",))


# The columns of /proc/net/dev after the name: 8 received, then 8 sent.
DEVICE = {
    0: _device("hw_net_rx_bytes_total", "Bytes received."),
    2: _device("hw_net_rx_errors_total", "Receive errors."),
    3: _device("hw_net_rx_drop_total", "Received packets dropped."),
    8: _device("hw_net_tx_bytes_total", "Bytes sent."),
    10: _device("hw_net_tx_errors_total", "Transmit errors."),
    11: _device("hw_net_tx_drop_total", "Packets dropped on the way out."),
}
SNMP = {
    ("Tcp", "RetransSegs"): Metric(
        "hw_tcp_retransmits_total", "counter", "TCP segments sent again."
    ),
    ("Tcp", "EstabResets"): Metric(
        "hw_tcp_estab_resets_total", "counter", "Established TCP connections that were reset."
    ),
}
NETSTAT = {
    ("TcpExt", "ListenOverflows"): Metric(
        "hw_tcp_listen_overflows_total", "counter", "Connections that found the accept queue full."
    ),
    ("TcpExt", "ListenDrops"): Metric(
        "hw_tcp_listen_drops_total", "counter", "Connections dropped while listening."
    ),
    ("TcpExt", "TCPAbortOnTimeout"): Metric(
        "hw_tcp_abort_on_timeout_total", "counter", "TCP connections given up after a timeout."
    ),
}
METRICS = (*DEVICE.values(), *SNMP.values(), *NETSTAT.values())


def read(files: Files, proc: Path) -> Iterator[Sample]:
    """All samples of this subject. ``/proc/net`` is ``/proc/self/net``: the agent's namespace."""
    folder = proc / "net" if files.is_folder(proc / "net") else proc / "self/net"
    if not files.live and not files.is_folder(folder):
        folder = _copied(files, proc)
    if text := files.text(path := folder / "dev"):
        found = files.sound(path, parse_dev(text))
        devices = sorted(found.items(), key=lambda item: (_virtual(item[0]), natural(item[0])))
        for name, row in files.bounded(devices, MAX_DEVICES, "/proc/net/dev"):
            for column, metric in DEVICE.items():
                yield metric(row[column], clean(name))
    yield from files.samples(folder / "snmp", parse_snmp, SNMP)
    yield from files.samples(folder / "netstat", parse_snmp, NETSTAT)


def _copied(files: Files, proc: Path) -> Path:
    """In a copied tree, ``self`` leads to the process that copied it. If that is the only one whose
    tables were kept, as in sosreport's archives, they are the machine's."""
    kept = [
        proc / name / "net"
        for name in files.names(proc)
        if name.isdigit() and files.is_folder(proc / name / "net")
    ]
    return kept[0] if len(kept) == 1 else proc / "1/net"


def _virtual(name: str) -> bool:
    return name.startswith(_VIRTUAL)


def parse_dev(text: str) -> dict[str, list[int]]:
    """``/proc/net/dev``: device → its 16 counters. Old kernels put no blank after the colon.

    >>> parse_dev("  eth0:1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\\n")["eth0"][8]
    9
    """
    devices = {}
    for line in text.splitlines():
        # An alias has a colon in its name: eth0:1.
        name, colon, rest = line.rpartition(":")
        numbers = [counter(word) for word in rest.split()]
        row = [number for number in numbers if number is not None]
        if colon and name.strip() and len(row) == len(numbers) >= 16:
            devices[name.strip()] = row
    return devices


def parse_snmp(text: str) -> dict[tuple[str, str], int]:
    """``/proc/net/snmp`` and ``netstat``: a line of names, then a line of values, per protocol.

    Values may be negative (``MaxConn -1``); those are no counters and are left out.
    """
    values: dict[tuple[str, str], int] = {}
    header: list[str] = []
    for line in text.splitlines():
        words = line.split()
        if header and words and words[0] == header[0]:
            for name, word in zip(header[1:], words[1:], strict=False):
                number = counter(word)
                if number is not None:
                    values[words[0].rstrip(":"), name] = number
            header = []
        else:
            header = words
    return values
