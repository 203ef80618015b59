"""When a file was made, which Python's ``os.stat`` does not tell on Linux.

``statx(2)``: ``struct statx`` is 256 bytes, ``stx_mask`` its first 4, ``stx_btime`` at 80 as 8
bytes of seconds and 4 of nanoseconds.
"""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path
from typing import Any

_AT_FDCWD = -100
_STATX_BTIME = 0x800
_SIZE = 256
_BTIME = struct.Struct("<qI")


def birth_time(path: Path) -> float | None:
    """Unix seconds; None where the C library or the file system does not know."""
    statx: Any = getattr(ctypes.CDLL(None), "statx", None)
    if statx is None:
        return None
    buffer = ctypes.create_string_buffer(_SIZE)
    if statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME, buffer) != 0:
        return None
    (mask,) = struct.unpack_from("=I", buffer)
    if not mask & _STATX_BTIME:
        return None
    seconds, nanoseconds = _BTIME.unpack_from(buffer, 80)
    return float(seconds + nanoseconds / 1e9)
