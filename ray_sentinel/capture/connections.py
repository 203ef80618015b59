"""The connections of processes and their descendants on which an answer is due.

The kernel knows of every connection when something was last sent over it, and when something last
came (``struct tcp_info`` in ``linux/tcp.h``): the end that sent last awaits an answer, as the
client of an HTTP server does, and the other end owes it. Of a Unix socket it knows only which is
the other end. The kernel is asked by netlink (``man 7 sock_diag``), which is open to every user.
That takes one request and one kind of answer for each family; pyroute2, which can do the same,
brings a whole toolkit for configuring networks.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from ray_sentinel.kernel_files import boot_id
from ray_sentinel.model.connections import Connection
from ray_sentinel.model.identity import ProcessId
from ray_sentinel.progress.proc.proc_stat import Stat, all_stats

MOST_CONNECTIONS = 4096
"""Most connections of one node that are reported. One more is looked for, which shows that some are
left out."""
MOST_FILES = 4096
"""Most open files of one process that are looked at; the others are left out."""
ANSWER_SECONDS = 1.0
"""Seconds to wait for the kernel, which answers in a millisecond."""
_SOCK_DIAG = 4
"""The number of ``NETLINK_SOCK_DIAG``."""
_BY_FAMILY, _DUMP = 20, 0x301
"""``SOCK_DIAG_BY_FAMILY``, and ``NLM_F_REQUEST | NLM_F_DUMP``."""
_DONE, _ERROR = 3, 2
"""``NLMSG_DONE`` and ``NLMSG_ERROR``."""
_INFO = 2
"""``INET_DIAG_INFO``: the attribute that is a ``tcp_info``."""
_ESTABLISHED, _LISTEN = 1, 10
_HEADER = struct.Struct("=IHHII")
"""The layout of ``nlmsghdr``: length, type, flags, number, sender."""
_REQUEST = struct.Struct("=BBBBI48x")
"""The layout of ``inet_diag_req_v2`` for sockets with any addresses: family, protocol, attributes,
states."""
_MESSAGE = struct.Struct("=BBBB2s2s16s16s12xIIIII")
"""The layout of ``inet_diag_msg``: family and state come first, ports and addresses in network
order from the fifth field on, and the inode last."""
_UNIX_REQUEST = struct.Struct("=BBHIIIII")
"""The layout of ``unix_diag_req``: family, protocol, padding, states, inode, attributes, cookie."""
_UNIX_MESSAGE = struct.Struct("=BBBBIII")
"""The layout of ``unix_diag_msg``: family, type, state, padding, inode, cookie."""
_SHOW_PEER, _PEER = 4, 2
"""``UDIAG_SHOW_PEER``, and ``UNIX_DIAG_PEER``: the attribute that is the other end's inode."""
_ATTRIBUTE = struct.Struct("=HH")
_SENT, _RECEIVED = 44, 52
"""The offsets of ``tcpi_last_data_sent`` and ``tcpi_last_data_recv`` in a ``tcp_info``. They are
the milliseconds since data was last sent or received, or since the connection exists."""
_BYTES = struct.Struct("=120xQQ")
"""Where a ``tcp_info`` has ``tcpi_bytes_acked``, which counts a client's first packet as one, and
``tcpi_bytes_received``."""
_OF_RAY = ("raylet", "gcs_server", "ray-dashboard")
"""What the kernel's names of Ray's own processes begin with: what these do, a job does not. Workers
are below a raylet, and what they have forked has their names."""
_MOST_ABOVE = 64
"""Most ancestors of a process that are gone through."""


class TcpSocket(NamedTuple):
    """A listening socket, or one end of an established connection."""

    inode: int
    listens: bool
    port: int
    local: str
    remote: str
    awaits: float | None
    """Seconds since something was last sent, where nothing has come since; otherwise None."""
    owes: bool
    """Something has come, and nothing was sent since."""


def connections_of(processes: Sequence[ProcessId]) -> tuple[Connection, ...]:
    """The connections of these processes and their descendants: those on which they owe an answer,
    those on which they await one, and the ports at which they listen. None for processes that may
    not be examined.

    Raises OSError if the kernel does not report them.
    """
    now, sockets, network = time.time(), list(tcp_sockets()), _network()
    ports = {one.port for one in sockets if one.listens}
    wanted = {
        one.inode: one
        for one in sockets
        if one.listens or (one.owes if one.port in ports else one.awaits is not None)
    }
    stats = all_stats()
    looked_at = {one.pid: one for one in processes}
    found = (
        Connection(
            process=above,
            owner=ProcessId(above.host, stat.pid, stat.start),
            local=wanted[inode].local,
            remote="" if wanted[inode].listens else wanted[inode].remote,
            network=network,
            serves=wanted[inode].port in ports,
            asked_at=None if (awaits := wanted[inode].awaits) is None else now - awaits,
        )
        for stat in (stats.values() if wanted else ())
        if (above := listed_ancestor(stat, stats, looked_at)) is not None
        for inode in _inodes(stat.pid)
        if inode in wanted
    )
    return tuple(islice(found, MOST_CONNECTIONS + 1))


def _network() -> str:
    """The network namespace of this process, with the machine's boot, because namespaces are
    numbered again after each boot."""
    return f"{boot_id()} {os.readlink('/proc/self/ns/net')}"


def listed_ancestor(
    stat: Stat, stats: Mapping[int, Stat], looked_at: Mapping[int, ProcessId]
) -> ProcessId | None:
    """The process itself, or the nearest one above it that is looked at. Ray's own processes do not
    count as descendants of the driver that started Ray."""
    for _ in range(_MOST_ABOVE):
        if (found := looked_at.get(stat.pid)) is not None:
            return found if found.start == stat.start else None
        above = stats.get(stat.parent)
        if above is None or stat.command.startswith(_OF_RAY):
            return None
        stat = above
    return None


def _inodes(pid: int) -> Iterator[int]:
    """The inodes of the sockets that a process has open; none if it has ended or is another
    user's."""
    try:
        with os.scandir(f"/proc/{pid}/fd") as files:
            for file in islice(files, MOST_FILES):
                try:
                    target = os.readlink(file.path)
                except OSError:
                    continue  # closed meanwhile
                if target.startswith("socket:["):
                    yield int(target[8:-1])
    except OSError:
        return


def asking_sockets() -> dict[int, int]:
    """The TCP sockets of this network namespace that sent last, by inode, each with the inode of
    the socket that is to answer. Until somebody accepts a connection, that is the listening one.
    Empty if the kernel does not report them."""
    try:
        sockets = list(tcp_sockets())
    except OSError:
        return {}
    ends = {(one.local, one.remote): one.inode for one in sockets if not one.listens}
    listening = {one.port: one.inode for one in sockets if one.listens}
    found: dict[int, int] = {}
    for one in sockets:
        if one.awaits is not None:
            host, _, port = one.remote.rpartition(":")
            here = one.local.rpartition(":")[0] == host
            waiting = listening.get(int(port), 0) if here else 0
            found[one.inode] = ends.get((one.remote, one.local), 0) or waiting
    return {inode: other for inode, other in found.items() if other}


def unix_peers() -> dict[int, int]:
    """The connected Unix sockets by inode, each with that of its other end. Empty if the kernel
    does not report them: not every one does."""
    try:
        return dict(_unix_peers())
    except OSError:
        return {}


def connected(pid: int, below: Iterable[int], others: Mapping[int, int]) -> set[int]:
    """Those processes ``below`` one that have the other end of one of its sockets, by ``others``,
    which gives it for each. A process that has both ends, such as one that was forked, is none."""
    ends = [(inode, others[inode]) for inode in _inodes(pid) if inode in others] if others else []
    found = set()
    for one in below if ends else ():
        open_here = set(_inodes(one))
        if any(far in open_here and near not in open_here for near, far in ends):
            found.add(one)
    return found


def tcp_sockets() -> Iterator[TcpSocket]:
    """The sockets of this network namespace that listen or are connected. Raises OSError."""
    for family in (socket.AF_INET, socket.AF_INET6):
        request = _REQUEST.pack(
            family, socket.IPPROTO_TCP, 1 << _INFO - 1, 0, 1 << _ESTABLISHED | 1 << _LISTEN
        )
        yield from map(_socket, _answers(request))


def _unix_peers() -> Iterator[tuple[int, int]]:
    """The inodes of connected Unix sockets, each with that of the other end. Raises OSError."""
    request = _UNIX_REQUEST.pack(socket.AF_UNIX, 0, 0, 1 << _ESTABLISHED, 0, _SHOW_PEER, 0, 0)
    for message in _answers(request):
        inode = _UNIX_MESSAGE.unpack_from(message)[4]
        if len(peer := _attribute(message, _UNIX_MESSAGE.size, _PEER)) >= 4:
            yield inode, struct.unpack_from("=I", peer)[0]


def _answers(request: bytes) -> Iterator[bytes]:
    """What the kernel says of each socket that a request is for. Raises OSError."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _SOCK_DIAG) as kernel:
        kernel.settimeout(ANSWER_SECONDS)
        kernel.send(_HEADER.pack(_HEADER.size + len(request), _BY_FAMILY, _DUMP, 1, 0) + request)
        yield from _messages(kernel)


def _messages(kernel: socket.socket) -> Iterator[bytes]:
    while True:
        data = kernel.recv(1 << 18)
        at = 0
        while at < len(data):
            length, kind, *_ = _HEADER.unpack_from(data, at)
            if kind == _DONE:
                return
            if kind == _ERROR:
                code = -struct.unpack_from("=i", data, at + _HEADER.size)[0]
                raise OSError(code, os.strerror(code))
            yield data[at + _HEADER.size : at + length]
            at += length + 3 & ~3


def _socket(message: bytes) -> TcpSocket:
    family, state, _, _, port, other_port, here, there, *rest = _MESSAGE.unpack_from(message)
    awaits, owes = _due(_attribute(message, _MESSAGE.size, _INFO))
    local, remote = int.from_bytes(port, "big"), int.from_bytes(other_port, "big")
    return TcpSocket(
        inode=rest[-1],
        listens=state == _LISTEN,
        port=local,
        local=f"{_address(family, here)}:{local}",
        remote=f"{_address(family, there)}:{remote}",
        awaits=awaits,
        owes=owes,
    )


def _address(family: int, raw: bytes) -> str:
    """An IPv4 address is written as one also where the socket is of IPv6."""
    if family == socket.AF_INET6 and raw.startswith(bytes(10) + b"\xff\xff"):
        family, raw = socket.AF_INET, raw[12:]
    return socket.inet_ntop(family, raw[: 4 if family == socket.AF_INET else 16])


def _attribute(message: bytes, at: int, wanted: int) -> bytes:
    """One of the attributes of a message, which begin ``at`` a place; empty if it lacks that."""
    while at + _ATTRIBUTE.size <= len(message):
        length, kind = _ATTRIBUTE.unpack_from(message, at)
        if kind == wanted:
            return message[at + _ATTRIBUTE.size : at + length]
        at += max(_ATTRIBUTE.size, length) + 3 & ~3
    return b""


def _due(info: bytes) -> tuple[float | None, bool]:
    """The ``awaits`` and the ``owes`` of a ``TcpSocket``."""
    if len(info) < _BYTES.size:
        return None, False  # an older kernel
    sent, received = (struct.unpack_from("=I", info, at)[0] for at in (_SENT, _RECEIVED))
    # Both are counted from the beginning at first, and a request follows it within a millisecond.
    bytes_sent, bytes_received = _BYTES.unpack_from(info)
    asked_at_once = sent == received and bytes_sent > 1 and not bytes_received
    was_asked = bytes_received > 0 and (received < sent or bytes_sent <= 1)
    return sent / 1000 if sent < received or asked_at_once else None, was_asked
