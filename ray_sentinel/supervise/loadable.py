"""Checks by their structure whether a checkpoint's files are complete; nothing is executed.

A ``.pt`` file of torch is a zip file, whose directory is at its end (APPNOTE.TXT, 4.3.16): a
truncated file has none. A ``.safetensors`` file begins with the length of a JSON header that states
the length of the data (safetensors' format). Other files only must not be empty.
"""

from __future__ import annotations

import os
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

MOST_FILES = 20_000
"""Most files of one checkpoint that are looked at; the rest is taken as good."""
MOST_HEADER = 100 << 20
"""Most bytes of a header; safetensors itself allows 100 MB."""
_TORCH = (".pt", ".pth", ".bin", ".ckpt", ".distcp")
_ZIP = b"PK\x03\x04"


class _Tensor(msgspec.Struct, frozen=True, gc=False):
    """What is read of a tensor's entry; the free text of ``__metadata__`` has no such field."""

    data_offsets: tuple[int, int] = (-1, -1)


def problem_of(path: Path) -> str:
    """Why a checkpoint (a file or a folder) cannot be loaded; empty if it seems complete."""
    try:
        for file in _files(path):
            if problem := _problem(file):
                return f"{file}: {problem}"
    except OSError as error:
        return f"{error.filename or path}: {error.strerror}"
    return ""


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    count = 0
    for folder, _, names in os.walk(path):
        for name in sorted(names):
            count += 1
            if count > MOST_FILES:
                return  # what is left is not looked at: it would take minutes
            if name.endswith((*_TORCH, ".safetensors")):
                yield Path(folder, name)


def _problem(file: Path) -> str:
    size = file.stat().st_size
    if size == 0:
        # Single files of DCP may be empty: a rank, or a writing thread of it, had nothing to save.
        return "" if file.suffix == ".distcp" else "is empty"
    with file.open("rb") as data:
        begin = data.read(8)
        if file.suffix == ".safetensors":
            return _safetensors(begin, data.read(_length(begin)), size)
    # A legacy .pt is a pickle, and .distcp is a row of zip files: only what begins as one zip file
    # must end as one.
    if begin[:4] == _ZIP and file.suffix != ".distcp" and not zipfile.is_zipfile(file):
        return "was cut off: the zip file has no directory"
    return ""


def _length(begin: bytes) -> int:
    length = int(struct.unpack("<Q", begin)[0]) if len(begin) == 8 else 0
    return length if length <= MOST_HEADER else 0


def _safetensors(begin: bytes, header: bytes, size: int) -> str:
    length = _length(begin)
    if not length or len(header) < length:
        return "was cut off inside its header"
    try:
        entries = msgspec.json.decode(header, type=dict[str, _Tensor])
    except (ValueError, RecursionError):
        return "has a header that cannot be read"
    tensors = (entry for name, entry in entries.items() if name != "__metadata__")
    ends = [entry.data_offsets[1] for entry in tensors]
    if any(end < 0 for end in ends):
        return "has a header that cannot be read"
    missing = 8 + length + max(ends, default=0) - size
    return f"was cut off: {missing} bytes are missing" if missing > 0 else ""
