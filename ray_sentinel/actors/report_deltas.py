"""Reports that say only what has changed. Pure.

From one report of an agent to its next most bytes stay: names, who is there, what rests. So the
next is sent compressed with the last one as the dictionary (DEFLATE, whose format keeps a checksum
of both): nine tenths less while eight ranks train. What comes out is the report byte by byte, so
nothing beyond knows of this, and no field of a record can be forgotten here.

The agent builds on a report only if its receipt says that the coordinator has it (``Receipt.held``,
which one that knows no deltas does not tell), and only on the last one that it sent: after one
without a receipt it sends a whole one. The coordinator keeps the last that it took of each node. If
that is another one, since it was started anew meanwhile, it takes nothing, and the agent sends the
whole at once. So whatever is lost, doubled or overtaken on the way, what is taken is what was sent.
"""

from __future__ import annotations

import zlib

import msgspec

from ray_sentinel.actors.messages import AgentReport, Receipt, pack, pack_masked, unpack

MARK = b"\xc1"
"""Begins a delta: no MessagePack begins so."""
PIECE_BYTES = 16_384
MARGIN_BYTES = 8_192
"""What is before and behind a piece's own place in the base: it may have moved so far."""
LEVEL = 3
"""Of zlib: the next ones take more time for a few per cent."""


class ReportDelta(msgspec.Struct, frozen=True, array_like=True):
    """A report, to be completed from an earlier one of the same agent."""

    node: str
    incarnation: str
    sequence: int
    base: int
    """The sequence of that earlier one."""
    pieces: tuple[bytes, ...]


def delta_of(report: AgentReport, data: bytes, base: int, base_data: bytes) -> bytes:
    """The message for a report whose bytes are ``data``."""
    places = range(0, len(data), PIECE_BYTES)
    pieces = (_deflated(data[at : at + PIECE_BYTES], _around(base_data, at)) for at in places)
    node, sequence = report.snapshot.node.id, report.snapshot.sequence
    return MARK + pack(ReportDelta(node, report.incarnation, sequence, base, tuple(pieces)))


def read_message(data: bytes) -> AgentReport | ReportDelta:
    """What an agent sent. Raises msgspec.DecodeError where it is neither."""
    if data.startswith(MARK):
        return unpack(data[len(MARK) :], ReportDelta)
    return unpack(data, AgentReport)


def completed(delta: ReportDelta, last: AgentReport, last_data: bytes) -> bytes | None:
    """The bytes of the report that a delta stands for, from those of the last that was taken of its
    node; None where it builds on another one."""
    if delta.incarnation != last.incarnation or not last_data:
        return None
    if delta.sequence == last.snapshot.sequence:
        return last_data  # it has come twice
    if delta.base != last.snapshot.sequence:
        return None
    try:
        return b"".join(
            _inflated(piece, _around(last_data, number * PIECE_BYTES))
            for number, piece in enumerate(delta.pieces)
        )
    except (zlib.error, EOFError):
        return None


class DeltaSender:
    """What one agent sends. Each message is followed by ``answered``, or by the next message where
    no receipt came. Used by one thread."""

    def __init__(self) -> None:
        self._sequence = 0
        self._data = b""
        """Of the report that was sent last."""
        self._held = self._whole = False
        """Whether the coordinator has it; whether it was sent whole."""

    def message(self, report: AgentReport) -> bytes:
        """The report as it is to be sent now, its secrets masked."""
        data, delta = pack_masked(report), b""
        if self._held:
            delta = delta_of(report, data, self._sequence, self._data)
        self._sequence, self._data = report.snapshot.sequence, data
        self._held, self._whole = False, not delta or len(delta) >= len(data)
        return data if self._whole else delta

    def answered(self, receipt: Receipt) -> bytes:
        """What is to be sent at once, where what was sent builds on what the coordinator does not
        have: the same report, whole. The receipt says nothing else then. Empty where it was
        taken."""
        self._held = bool(receipt.held) and receipt.held == self._sequence
        if self._held or self._whole:
            return b""
        self._whole = True
        return self._data


def _around(base: bytes, at: int) -> bytes:
    """What a piece is compressed with: no more than the window of DEFLATE."""
    return base[max(0, at - MARGIN_BYTES) : at + PIECE_BYTES + MARGIN_BYTES]


def _deflated(piece: bytes, base: bytes) -> bytes:
    deflate = zlib.compressobj(LEVEL, zdict=base)
    return deflate.compress(piece) + deflate.flush()


def _inflated(piece: bytes, base: bytes) -> bytes:
    """Raises zlib.error or EOFError where it is no whole piece, or one of another base."""
    inflate = zlib.decompressobj(zdict=base)
    found = inflate.decompress(piece, PIECE_BYTES + 1)
    if not inflate.eof or len(found) > PIECE_BYTES:
        raise EOFError
    return found
