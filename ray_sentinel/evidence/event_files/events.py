"""Scalars from TensorFlow's ``EventRecord`` messages, read straight from the protobuf wire format.

Fields after ``tensorflow/core/util/event.proto``, ``framework/summary.proto`` and
``framework/tensor.proto``; encoding after https://protobuf.dev/programming-guides/encoding/.
Only what scalars need is read: pictures and histograms are skipped. Pure.

By hand rather than by protobuf's runtime: with the tags that it remembers it reads two to six times
as many events a second as protobuf does messages (``bench/event_files.py``); it builds no objects
for what it skips, where 8 MiB of empty values became 265 MiB of messages; and each collector's
process saves an import of 70 ms and 6 MiB.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

_double = struct.Struct("<d").unpack_from
_float = struct.Struct("<f").unpack_from

_CONTENT = {1: "<f", 2: "<d", 3: "<i", 4: "<B", 5: "<h", 6: "<b", 9: "<q", 10: "<?", 17: "<H"}
_CONTENT |= {19: "<e", 22: "<I", 23: "<Q"}
"""``DataType`` → layout of one element of ``tensor_content``."""
_BFLOAT16, _HALF, _STRING = 14, 19, 7
_VALUES = {5: "<f", 6: "<d"}
"""The packed fields of fixed width, float_val and double_val: field number → layout."""
_INTEGERS = frozenset({7, 10, 11, 16, 17})
"""The numbers of the fields int_val, int64_val, bool_val, uint32_val and uint64_val."""
_HALVES = 13

SCALARS = "scalars"
TEXT = "text"
MAX_TEXT = 1 << 20
"""Most bytes of a text; longer ones are passed over."""


class MalformedEvent(ValueError):
    """The bytes are not an ``EventRecord``, although their checksum is right."""


class Scalar(msgspec.Struct, frozen=True, gc=False):
    """One value of one tag. ``plugin`` is the plugin in its metadata, "" without any: TensorFlow
    writes the metadata only with a tag's first value."""

    tag: str
    value: float
    plugin: str = ""


class EventRecord(msgspec.Struct, frozen=True, gc=False):
    """One record: ``wall_time`` in Unix seconds, ``others`` the tags that are not scalars,
    ``texts`` the (tag, text) pairs of text tags."""

    wall_time: float
    step: int
    scalars: tuple[Scalar, ...] = ()
    others: tuple[str, ...] = ()
    texts: tuple[tuple[str, str], ...] = ()


def parse_event(data: bytes) -> EventRecord:
    """The event of one record. Raises MalformedEvent."""
    at = _after_step(data)
    tag = _TAGS.get(data[at:-4]) if at else None
    if tag is not None:
        value = _float(data, len(data) - 4)[0]
        step = _varint(data, 10, at)[0]
        return EventRecord(_double(data, 1)[0], _signed(step), (Scalar(tag, value),))
    event = _parse(data)
    if at and len(event.scalars) == 1 and len(_TAGS) < _MAX_TAGS:
        _remember(data, at, event)
    return event


_TAGS: dict[bytes, str] = {}
"""The bytes between an event's step and its value → its tag, for events whose value is their last
four bytes: most events of a file differ only in time, step and value."""
_MAX_TAGS = 10_000
"""Most tags remembered in ``_TAGS``: a job logs hundreds."""
_PROBE = struct.pack("<f", 0.625)


def _after_step(data: bytes) -> int:
    """Where an event that begins with its time and step goes on; 0 for any other."""
    if len(data) < 20 or data[0] != 0x09 or data[9] != 0x10:
        return 0
    at = 10
    while at < 20 and data[at] > 127:
        at += 1
    return at + 1


def _remember(data: bytes, at: int, event: EventRecord) -> None:
    """Note the tag of such events, if their value is indeed the last four bytes."""
    scalar = event.scalars[0]
    try:
        probed = _parse(data[:-4] + _PROBE)
    except MalformedEvent:
        return
    if not scalar.plugin and not event.others and probed.scalars == (Scalar(scalar.tag, 0.625),):
        _TAGS[data[at:-4]] = scalar.tag


def _parse(data: bytes) -> EventRecord:
    wall_time, step = 0.0, 0
    scalars: list[Scalar] = []
    others: list[str] = []
    texts: list[tuple[str, str]] = []
    try:
        for number, wire, start, end in _fields(data, 0, len(data)):
            if number == 1 and wire == _FIXED64:
                wall_time = _double(data, start)[0]
            elif number == 2 and wire == _VARINT:
                step = _signed(_varint(data, start, end)[0])
            elif number == 5 and wire == _BYTES:
                for inner, kind, begin, stop in _fields(data, start, end):
                    if inner == 1 and kind == _BYTES:
                        _value(data, begin, stop, scalars, others, texts)
    except (IndexError, struct.error, OverflowError, UnicodeDecodeError) as error:
        raise MalformedEvent(str(error)) from None
    return EventRecord(wall_time, step, tuple(scalars), tuple(others), tuple(texts))


def _value(
    data: bytes,
    start: int,
    end: int,
    scalars: list[Scalar],
    others: list[str],
    texts: list[tuple[str, str]],
) -> None:
    tag, plugin = "", ""
    value: float | None = None
    tensor = (0, 0)
    for number, wire, begin, stop in _fields(data, start, end):
        if number == 1 and wire == _BYTES:
            tag = data[begin:stop].decode("utf-8")
        elif number == 2 and wire == _FIXED32:
            value = _float(data, begin)[0]
        elif number == 8 and wire == _BYTES:
            value, tensor = _tensor(data, begin, stop), (begin, stop)
        elif number == 9 and wire == _BYTES:
            plugin = _plugin(data, begin, stop)
    if not tag:
        return
    if value is None or plugin not in ("", SCALARS):
        others.append(tag)
        if plugin == TEXT and 0 < tensor[1] - tensor[0] <= MAX_TEXT:
            texts.append((tag, _text(data, *tensor)))
    else:
        scalars.append(Scalar(tag, value, plugin))


def _plugin(data: bytes, start: int, end: int) -> str:
    """``SummaryMetadata.plugin_data.plugin_name``."""
    for number, wire, begin, stop in _fields(data, start, end):
        if number == 1 and wire == _BYTES:
            for inner, kind, first, last in _fields(data, begin, stop):
                if inner == 1 and kind == _BYTES:
                    return data[first:last].decode("utf-8")
    return ""


def _text(data: bytes, start: int, end: int) -> str:
    """The strings of a ``TensorProto``, a line each."""
    return "\n".join(
        data[begin:stop].decode("utf-8", "replace")
        for number, wire, begin, stop in _fields(data, start, end)
        if number == 8 and wire == _BYTES
    )


def _tensor(data: bytes, start: int, end: int) -> float | None:
    """The value of a ``TensorProto`` with one number in it; None for any other."""
    dtype, elements = 0, 1
    found: list[float] = []
    content = b""
    for number, wire, begin, stop in _fields(data, start, end):
        if number == 1 and wire == _VARINT:
            dtype = _varint(data, begin, stop)[0]
        elif number == 2 and wire == _BYTES:
            elements = _elements(data, begin, stop)
        elif number == 4 and wire == _BYTES:
            content = data[begin:stop] if stop - begin <= 8 else b""
        elif number in _VALUES:
            found += _fixed(data, begin, stop, _VALUES[number])
        elif number in _INTEGERS or number == _HALVES:
            found += [_signed(number) for number in _packed(data, begin, stop)]
        if len(found) > 1:
            return None
    if elements != 1 or dtype == _STRING:
        return None
    if content:
        return _content(dtype, content)
    if not found:
        return None
    return _half(dtype, int(found[0])) if dtype in (_BFLOAT16, _HALF) else float(found[0])


def _content(dtype: int, content: bytes) -> float | None:
    if dtype == _BFLOAT16 and len(content) == 2:
        return _half(dtype, int.from_bytes(content, "little"))
    layout = _CONTENT.get(dtype)
    if layout is None or struct.calcsize(layout) != len(content):
        return None
    return float(struct.unpack(layout, content)[0])


def _half(dtype: int, bits: int) -> float:
    """A number of 16 bits that is stored in an integer."""
    if dtype == _BFLOAT16:
        return float(struct.unpack("<f", struct.pack("<I", (bits & 0xFFFF) << 16))[0])
    return float(struct.unpack("<e", struct.pack("<H", bits & 0xFFFF))[0])


def _elements(data: bytes, start: int, end: int) -> int:
    """The product of the dimensions in a ``TensorShapeProto``."""
    product = 1
    for number, wire, begin, stop in _fields(data, start, end):
        if number == 2 and wire == _BYTES:
            size = 0
            for inner, kind, first, last in _fields(data, begin, stop):
                if inner == 1 and kind == _VARINT:
                    size = _varint(data, first, last)[0]
            product *= size
    return product


def _fixed(data: bytes, start: int, end: int, layout: str) -> list[float]:
    size = struct.calcsize(layout)
    if end - start > 2 * size:
        return [0.0, 0.0]  # more than one: no scalar
    return [struct.unpack_from(layout, data, at)[0] for at in range(start, end - size + 1, size)]


def _packed(data: bytes, start: int, end: int) -> Iterator[int]:
    """At most two of the varints there: one is a scalar, more are not."""
    for _ in range(2):
        if start >= end:
            return
        value, start = _varint(data, start, end)
        yield value


def _fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Field number, wire type, and where its content begins and ends."""
    while at < end:
        key = data[at]
        if key < 128:
            at += 1
        else:
            key, at = _varint(data, at, end)
        wire = key & 7
        if wire == _BYTES:
            size = data[at]
            if size < 128:
                at += 1
            else:
                size, at = _varint(data, at, end)
        elif wire == _FIXED64:
            size = 8
        elif wire == _FIXED32:
            size = 4
        elif wire == _VARINT:
            size = _varint(data, at, end)[1] - at
        else:
            raise MalformedEvent(f"wire type {wire}")
        stop = at + size
        if stop > end:
            raise MalformedEvent("a field is longer than what it is in")
        yield key >> 3, wire, at, stop
        at = stop


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A varint and where it ends."""
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
    raise MalformedEvent("a varint does not end")


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
