"""TensorBoard's ``Event`` message (``tensorflow/core/util/event.proto``): its scalars, no more."""

from __future__ import annotations

import struct
from collections.abc import Iterator


def _fields(data: memoryview) -> Iterator[tuple[int, int, memoryview]]:
    """(number, wire type, content) of a protobuf message's fields."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            start = at
            _, at = _varint(data, at)
            yield number, kind, data[start:at]
            continue
        if kind == 2:
            size, at = _varint(data, at)
        elif kind in {1, 5}:
            size = 8 if kind == 1 else 4
        else:
            raise ValueError("unknown wire type")
        if at + size > len(data):
            raise ValueError("truncated field")
        yield number, kind, data[at : at + size]
        at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("varint too long")


def scalars_of(data: memoryview) -> Iterator[tuple[float, int, str, float]]:
    """(wall time, step, tag, value) of each scalar in an event.

    Raises ValueError, IndexError or struct.error for what is no such message.
    """
    time, step, summaries = 0.0, 0, []
    for number, _, content in _fields(data):
        if number == 1:
            time = struct.unpack("<d", content)[0]
        elif number == 2:
            step = _varint(content, 0)[0]
        elif number == 5:
            summaries.append(content)
    for summary in summaries:
        for number, _, value in _fields(summary):
            if number == 1 and (scalar := _value(value)) is not None:
                yield time, step, *scalar


def _value(data: memoryview) -> tuple[str, float] | None:
    """Tag and value of a ``Summary.Value``: ``simple_value``, or a tensor of one number."""
    tag, value = "", None
    for number, kind, content in _fields(data):
        if number == 1:
            tag = bytes(content).decode("utf-8", "replace")
        elif number == 2 and kind == 5:
            value = float(struct.unpack("<f", content)[0])
        elif number == 8:
            value = _tensor(content)
    return (tag, value) if tag and value is not None else None


def _tensor(data: memoryview) -> float | None:
    kind, raw, floats, doubles = 0, b"", b"", b""
    for number, _, content in _fields(data):
        if number == 1:
            kind = _varint(content, 0)[0]
        elif number == 2:
            # A shape with dimensions is no scalar.
            if any(True for _ in _fields(content)):
                return None
        elif number == 4:
            raw = bytes(content)
        elif number == 5:
            floats = bytes(content)
        elif number == 6:
            doubles = bytes(content)
    if kind == 1:
        return float(struct.unpack("<f", (raw or floats)[:4])[0]) if raw or floats else None
    if kind == 2:
        return float(struct.unpack("<d", (raw or doubles)[:8])[0]) if raw or doubles else None
    return None
