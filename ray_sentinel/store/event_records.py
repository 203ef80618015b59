"""Records of TensorBoard's event files, with their checksums.

A record is its length, the masked CRC-32C of that, the data, and the masked CRC-32C of the data
(``tensorflow/core/lib/io/record_writer.h``). A torn tail ends a file; a record whose data are
damaged is left out, for its length still tells where the next one begins.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import google_crc32c

from ray_sentinel.store.event_proto import scalars_of

MAX_BYTES = 512 << 20
"""Of one file; a larger one is not read, for it holds more than scalars."""
_LENGTH = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")
_MASK = 0xA282EAD8


def read_scalars(
    file: Path, notes: list[str] | None = None
) -> Iterator[tuple[float, int, str, float]]:
    """(wall time, step, tag, value) of each scalar; what could not be read is said in ``notes``."""
    notes = notes if notes is not None else []
    try:
        if file.stat().st_size > MAX_BYTES:
            notes.append(f"{file.name} is larger than {MAX_BYTES >> 20} MiB and was not read")
            return
        data = file.read_bytes()
    except OSError as error:
        notes.append(f"{file.name} cannot be read: {error.strerror}")
        return
    damaged = 0
    for record in _records(data, file.name, notes):
        if record is None:
            damaged += 1
            continue
        try:
            yield from scalars_of(record)
        except (ValueError, IndexError, struct.error):
            damaged += 1
    if damaged:
        notes.append(f"{damaged} records of {file.name} are damaged and were left out")


def _records(data: bytes, name: str, notes: list[str]) -> Iterator[memoryview | None]:
    """The data of each record; None for one that is damaged."""
    at, view = 0, memoryview(data)
    while at + 12 <= len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        if _CHECKSUM.unpack_from(data, at + 8)[0] != masked_crc(data[at : at + 8]):
            notes.append(f"{name} is damaged at byte {at}, and was read up to there")
            return
        end = at + 12 + length
        if end + 4 > len(data):
            return  # torn, or still being written
        sound = _CHECKSUM.unpack_from(data, end)[0] == masked_crc(data[at + 12 : end])
        yield view[at + 12 : end] if sound else None
        at = end + 4


def masked_crc(data: bytes) -> int:
    """CRC-32C as record files have it: turned and shifted, so that one of a checksum is no trap."""
    crc = int(google_crc32c.value(data))
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF
