"""``gpu_metrics`` 1.9, which describes itself: what ROCm 7 drivers give for MI300 and later.

After the header and a count (32 bits) come attributes without padding: 64 bits that encode how many
values follow (bits 0 to 9), what they are (10 to 19), their type (20 to 23) and their unit (24 to
31), then the values. A value that the firmware does not fill has all bits set. Source: the kernel's
drivers/gpu/drm/amd/include/kgd_pp_interface.h and pm/swsmu/smu_cmn.h.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

VERSION = (1, 9)
ENERGY, ACCUMULATION = 7, 9
PROCHOT, POWER = 10, 11
THERMAL = (12, 13, 14)
"""Of the socket, of the voltage regulators, of the memory."""
_TYPES = "BbHhIiQq"


def read(data: bytes) -> Mapping[int, tuple[int, ...]]:
    """The values of each attribute by its number, without those that are not filled.

    Raises ValueError where the table ends before its attributes do. An attribute of an unknown type
    has an unknown length: it and those behind it are left out.
    """
    try:
        (count,) = struct.unpack_from("<i", data, 4)
        at, found = 8, {}
        for _ in range(count):
            (code,) = struct.unpack_from("<Q", data, at)
            number, kind, values = code >> 10 & 0x3FF, code >> 20 & 0xF, code & 0x3FF
            if kind >= len(_TYPES):
                break
            form = f"<{values}{_TYPES[kind]}"
            filled = struct.unpack_from(form, data, at + 8)
            unfilled = (1 << 8 * struct.calcsize(_TYPES[kind])) - 1 if kind % 2 == 0 else -1
            if any(value != unfilled for value in filled):
                found[number] = filled
            at += 8 + struct.calcsize(form)
    except struct.error as error:
        raise ValueError(f"the table is cut off: {error}") from None
    return found
