"""Which NCCL (or RCCL) a process has loaded, read from outside without its cooperation.

The file's name may hold the version (``libnccl.so.2.27.3``); the wheels that PyTorch depends on
have it in the name of the folder beside the package (``nvidia_nccl_cu12-2.27.3.dist-info``). A
library that is linked into another (``libtorch_cuda.so`` of some builds) cannot be identified.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from ray_sentinel import regex as re

_LIBRARY = re.compile(r"(/\S*/lib(nccl|rccl)\.so\S*)(?: \(deleted\))?$")
_NAMED = re.compile(r"\.so\.(\d+\.\d+\.\d+)")
_WHEEL = re.compile(r"^(?:nvidia_nccl|rccl|amd_rccl)\w*-(\d+\.\d+\.\d+)\S*\.dist-info$")
MOST_LINES = 200_000
"""Most lines read of a memory map: a process with more mappings is taken to have no library."""


class Library(msgspec.Struct, frozen=True, kw_only=True):
    """A collective library as a process has it mapped."""

    name: str
    """The library's name, "NCCL" or "RCCL"."""
    version: str = ""
    """The library's version; empty where it cannot be told."""
    path: str = ""


def library_of(pid: int, proc: str = "/proc") -> Library | None:
    """The library of a process; None if it has none, or cannot be examined."""
    found = _mapped(Path(proc) / str(pid) / "maps")
    if found is None:
        return None
    path, kind = found
    # The process may have another root: a container's file system is below this.
    root = Path(proc) / str(pid) / "root"
    # RCCL's file is numbered by a scheme of its own.
    version = _version(root, path) if kind == "nccl" else _wheel_version(Path(str(root) + path))
    return Library(name=kind.upper(), version=version, path=path)


def _mapped(maps: Path) -> tuple[str, str] | None:
    try:
        with maps.open(encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines):
                if (found := _LIBRARY.search(line.rstrip("\n"))) is not None:
                    return found[1], found[2]
                if number > MOST_LINES:
                    break
    except OSError:
        pass  # gone, or another user's: the caller goes without
    return None


def _version(root: Path, path: str) -> str:
    inside = Path(str(root) + path)
    names = [path]
    try:
        names.append(os.path.basename(os.path.realpath(inside)))
    except OSError:
        pass  # only the name that is mapped is known then
    for name in names:
        if (found := _NAMED.search(name)) is not None:
            return found[1]
    return _wheel_version(inside)


def _wheel_version(library: Path) -> str:
    """``site-packages/nvidia/nccl/lib/libnccl.so.2`` → the version of the wheel beside."""
    for folder in list(library.parents)[:4]:
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            if (found := _WHEEL.match(name)) is not None:
                return found[1]
    return ""
