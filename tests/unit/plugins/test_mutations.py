"""Every file of every tree cut, garbled, unreadable, a folder, or gone after it was listed.

The collector goes on with what is left: each series that it still gives has the value that it has
on the whole tree, and what is missing is complained about.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from ray_sentinel.api import Collector, Context, NoData, Skip
from ray_sentinel_plugins import _files
from ray_sentinel_plugins._host import dstate
from ray_sentinel_plugins.amdgpu import AmdgpuCollector
from ray_sentinel_plugins.host import HostCollector
from ray_sentinel_plugins.kernel_log import KernelLogCollector
from ray_sentinel_plugins.nvml import NvmlCollector
from ray_sentinel_plugins.rdma import RdmaCollector

TREES = Path(__file__).parents[2] / "fixtures" / "trees"
COLLECTORS = (AmdgpuCollector, HostCollector, KernelLogCollector, NvmlCollector, RdmaCollector)
Series = dict[str, float]
Reader = Callable[[Path, int], bytes]

# Their labels name what could be read, their value is always 1.
INFOS = ("hw_host_info", "hw_gpu_info")
# Counts of what is in a file: with half of the file there is half of it.
COUNTED_IN = ("hw_dmesg_", "hw_gpu_xid_", "hw_gpu_remapped_rows_", "hw_gpu_row_remap_")


def cut(data: bytes) -> Iterator[bytes]:
    for part in (0, 1, len(data) // 3, len(data) // 2, len(data) - 2, len(data) - 1):
        yield data[: max(part, 0)]


def garbled(data: bytes) -> Iterator[bytes]:
    dice = random.Random(len(data))
    yield dice.randbytes(64)
    yield dice.randbytes(20_000) + b"\n"
    yield b"\0" * 4096
    yield b"9" * 5000 + b"\n"
    yield b"-1\n"
    yield b"a b c\n" * 1000


def broken(error: OSError) -> Reader:
    def read(path: Path, limit: int) -> bytes:
        raise error

    return read


def holding(data: bytes) -> Reader:
    return lambda path, limit: data[:limit]


def mutations(data: bytes) -> Iterator[Reader]:
    yield from map(holding, cut(data))
    yield from map(holding, garbled(data))
    yield broken(PermissionError(13, "Permission denied"))
    yield broken(IsADirectoryError(21, "Is a directory"))
    yield broken(FileNotFoundError(2, "No such file or directory"))
    yield broken(OSError(5, "Input/output error"))


class Tampered:
    """Reads files, one of them in another way."""

    def __init__(self, real: Reader) -> None:
        self.real = real
        self.read: set[Path] = set()
        self.path: Path | None = None
        self.instead: Reader = real

    def __call__(self, path: Path, limit: int) -> bytes:
        path = Path(path)
        self.read.add(path)
        return self.instead(path, limit) if path == self.path else self.real(path, limit)


@pytest.fixture
def tampered(monkeypatch: pytest.MonkeyPatch) -> Tampered:
    tampered = Tampered(_files.read_file)
    monkeypatch.setattr(_files, "read_file", tampered)

    def task_file(path: str) -> bytes:
        try:
            return tampered(Path(path), 4096)
        except OSError:
            return b""

    monkeypatch.setattr(dstate, "read_task", task_file)
    return tampered


def collected(
    kind: type[Collector], context: Context, series: Callable[[Iterable[object]], Series]
) -> Series:
    try:
        return series(kind(context).collect())
    except (Skip, NoData):
        return {}


@pytest.mark.parametrize("kind", COLLECTORS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("name", sorted(path.name for path in TREES.iterdir() if path.is_dir()))
def test_what_is_left_is_right(
    name: str,
    kind: type[Collector],
    tampered: Tampered,
    context: Callable[[Path], Context],
    series: Callable[[Iterable[object]], Series],
    caplog: pytest.LogCaptureFixture,
) -> None:
    root = context(TREES / name)
    before = collected(kind, root, series)
    files = sorted(path for path in tampered.read if path.is_file())
    caplog.set_level(logging.WARNING)
    for path in files:
        for instead in mutations(path.read_bytes()):
            tampered.path, tampered.instead = path, instead
            caplog.clear()
            after = collected(kind, root, series)
            wrong = {
                series_name: value
                for series_name, value in after.items()
                if not series_name.startswith((*INFOS, *COUNTED_IN))
                and before.get(series_name) != value
            }
            assert not wrong, path
            missing = {name for name in before.keys() - after.keys() if not name.startswith(INFOS)}
            assert not missing or caplog.records or _may_be_silent(instead, path), path


def _may_be_silent(instead: Reader, path: Path) -> bool:
    """A file that is not there, or empty, or of a process that ended, is nothing to complain of."""
    try:
        data = instead(path, 1 << 20)
    except OSError as error:
        return isinstance(error, FileNotFoundError)
    return not data.strip() or path.parent.name.isdigit()


def _folder(place: Path) -> None:
    place.mkdir(parents=True)


def _dangling(place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to("nowhere")


def _circle(place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(place.name)


def _fifo(place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(place)


@pytest.mark.parametrize("instead", [_folder, _dangling, _circle, _fifo])
def test_something_else_in_place_of_every_file(
    tmp_path: Path,
    instead: Callable[[Path], None],
    context: Callable[[Path], Context],
    series: Callable[..., Series],
) -> None:
    """Without any stand-in, and so for root too."""
    for tree in sorted(path for path in TREES.iterdir() if path.is_dir()):
        for folder, _, files in os.walk(tree):
            for file in files:
                place = tmp_path / tree.name / Path(folder).relative_to(tree) / file
                instead(place)
        for kind in COLLECTORS:
            assert not {
                name
                for name, value in collected(kind, context(tmp_path / tree.name), series).items()
                if value and not name.startswith(("hw_gpu_user_processes", *INFOS))
            }
